# SPDX-License-Identifier: Apache-2.0
"""Summaries into arrays, reports, series and closed windows."""
