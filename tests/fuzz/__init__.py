# SPDX-License-Identifier: Apache-2.0
"""Fuzzing of what reads bytes from outside, for minutes rather than for a test's second."""
