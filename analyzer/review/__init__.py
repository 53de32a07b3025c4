# SPDX-License-Identifier: Apache-2.0
"""What people say of verdicts, and what became of all of them in some days. Pure."""
