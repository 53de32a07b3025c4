# SPDX-License-Identifier: Apache-2.0
"""Copies for mirrors (`mirror_packet`)."""

from dataclasses import replace

from ovs_checks.openflow.packet import SLOTS, TAG_PRESENT
from ovs_checks.switch.snapshot import Lane, Mirror
from ovs_checks.translate.context import Context

from .normal import Tags, admits, extract, includes, input_lane, inside, mirrors_to, to_one

_TCI = SLOTS["vlan_tci"]
_DST = SLOTS["eth_dst"]
_RESERVED_GROUP = 0x0180C2000000
"""First of the 16 link-local group addresses (IEEE 802.1D, `eth_addr_is_reserved()`)."""


def mirror_input(x: Context) -> None:
    """Copy the packet to the mirrors that watch where it came in."""
    if not x.bridge.mirrors:
        return
    lane = input_lane(x)
    if lane is not None:
        mirror_packet(x, lane, arriving=True)


def mirror_packet(x: Context, lane: Lane, *, arriving: bool) -> None:
    """Copy the packet to the mirrors that watch `lane`, those that have a copy already left out."""
    watching = [
        mirror
        for mirror in x.bridge.mirrors
        if lane.name in (mirror.sources if arriving else mirror.destinations)
    ]
    if not watching:
        return
    tags = extract(x)
    if not admits(x, lane, tags[0].vid):
        return
    tags = inside(lane, tags)
    for mirror in watching:
        if mirror.name in x.mirrors:
            continue
        if mirror.vlans is not None:
            x.looked[_TCI] |= 0xFFF | TAG_PRESENT
            if tags[0].vid not in mirror.vlans:
                continue
        x.mirrors |= _same_output(x.bridge.mirrors, mirror)
        outer, x.copying, x.snaplen = x.copying, True, mirror.snaplen
        _copy(x, mirror, tags)
        x.copying, x.snaplen = outer, 0


def _same_output(mirrors: tuple[Mirror, ...], mirror: Mirror) -> frozenset[str]:
    """Return the mirrors that send to the same place."""
    place = (mirror.output, mirror.output_vlan)
    return frozenset(one.name for one in mirrors if (one.output, one.output_vlan) == place)


def _copy(x: Context, mirror: Mirror, tags: Tags) -> None:
    lanes = x.bridge.every_lane
    if mirror.output:
        lane = next((lane for lane in lanes if lane.name == mirror.output), None)
        if lane is not None:
            to_one(x, lane, tags)
        return
    if tags[0].vid == mirror.output_vlan or x.flow[_DST] & ~0xF == _RESERVED_GROUP:
        return
    moved = (replace(tags[0], vid=mirror.output_vlan), tags[1])
    for lane in lanes:
        if includes(lane, moved) and not mirrors_to(x.bridge, lane):
            to_one(x, lane, moved)
