# SPDX-License-Identifier: Apache-2.0
"""Measured claims: each benchmark prints JSON lines, ratios against a baseline of the same run."""
