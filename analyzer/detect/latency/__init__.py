# SPDX-License-Identifier: Apache-2.0
"""Slowness: of a window, of half a minute, of half an hour."""
