# SPDX-License-Identifier: Apache-2.0
"""Readers of what jobs write about their operators: bytes in, a log out."""
