# SPDX-License-Identifier: Apache-2.0
"""From a packet and the flow tables to datapath actions, as Open vSwitch does it.

Each module carries over a part of `ofproto-dpif-xlate.c`; `translation` is the way in.
"""
