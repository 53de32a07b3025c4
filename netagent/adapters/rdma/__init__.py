# SPDX-License-Identifier: Apache-2.0
"""Probes by RDMA: the devices, two helper processes, and the state of all of them."""
