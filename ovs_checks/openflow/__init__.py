# SPDX-License-Identifier: Apache-2.0
"""OpenFlow as Open vSwitch prints it: packets, matches, actions, flows, and their lookup."""
