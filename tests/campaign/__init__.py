# SPDX-License-Identifier: Apache-2.0
"""Thousands of simulated failures against the diagnosis as it is: `make campaign`."""
