# SPDX-License-Identifier: Apache-2.0
"""Simulated training jobs, operator by operator: what their ranks would log, and the truth."""
