# SPDX-License-Identifier: Apache-2.0
"""A packet's walk through one host, and what two hosts' walks say of a pair."""
