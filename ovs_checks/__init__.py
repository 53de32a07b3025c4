# SPDX-License-Identifier: Apache-2.0
"""Can A reach B over the overlay, and if not, which entry of which flow table stops it.

`openflow` reads what Open vSwitch prints; `switch` puts one host's virtual switch together from it;
`translate` carries one packet through it, `walk` joins the walks of two hosts into a verdict,
`batch` walks packets by the thousand, and `lint` says what is wrong whatever packet comes.
All of that is pure. `sources` is the rim that asks a live Open vSwitch, or what was kept of one.
"""
