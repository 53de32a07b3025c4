# SPDX-License-Identifier: Apache-2.0
"""Probing as values: whom to probe when, and what became of each probe."""
