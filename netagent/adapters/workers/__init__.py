# SPDX-License-Identifier: Apache-2.0
"""The agent's side of the processes that work for it: flow tables, and eBPF."""
