# SPDX-License-Identifier: Apache-2.0
"""What becomes of many packets at once: whole columns of them, through one host's bridges."""
