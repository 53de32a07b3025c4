# SPDX-License-Identifier: Apache-2.0
"""Sending a packet out: to ports, by NORMAL, to mirrors and into tunnels."""
