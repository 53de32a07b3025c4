# SPDX-License-Identifier: Apache-2.0
"""Probing by RDMA as values: addresses, rings of work requests, neighbours, source ports."""
