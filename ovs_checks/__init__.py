# SPDX-License-Identifier: Apache-2.0
"""Can A reach B over the overlay, and if not, which entry of which flow table stops it.

`parse` reads what Open vSwitch prints into the values of `flow`; `pipeline` carries one packet
(`packet`) through one host's bridges; `reach` joins the walks of two hosts into a verdict.
All of that is pure. `vswitchd` is the rim that asks a live Open vSwitch.
"""
