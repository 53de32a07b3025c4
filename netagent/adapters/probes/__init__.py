# SPDX-License-Identifier: Apache-2.0
"""Probes by UDP and by RDMA: their transports, and the loop that drives them."""
