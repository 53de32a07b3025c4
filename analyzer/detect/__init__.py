# SPDX-License-Identifier: Apache-2.0
"""Whether a path deviates."""
