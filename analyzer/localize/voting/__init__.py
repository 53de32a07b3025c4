# SPDX-License-Identifier: Apache-2.0
"""Which component probes that were lost, or slow, have in common."""
