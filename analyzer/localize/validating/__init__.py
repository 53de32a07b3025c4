# SPDX-License-Identifier: Apache-2.0
"""Which hosts are asked to compare the copies of their flow tables, and what their answers say."""
