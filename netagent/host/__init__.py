# SPDX-License-Identifier: Apache-2.0
"""What this host is: its endpoints, uplinks and RDMA devices, what they count and what is wrong."""
