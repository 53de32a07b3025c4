# SPDX-License-Identifier: Apache-2.0
"""The process that reads what controllers say should be."""
