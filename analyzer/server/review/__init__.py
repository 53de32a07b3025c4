# SPDX-License-Identifier: Apache-2.0
"""The routes by which people say what they think of verdicts, and look back."""
