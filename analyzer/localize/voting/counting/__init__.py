# SPDX-License-Identifier: Apache-2.0
"""Packets that hosts count on the way, where end-to-end probes leave a tie."""
