# SPDX-License-Identifier: Apache-2.0
"""Actions that change a packet, and where its present values came from."""

from collections.abc import Mapping

from .flow import Action, Flow, Move, Plain, Subfield, Write
from .packet import BRIDGE_LOCAL, FIELDS, SLOTS, TAG_PRESENT, Header, applies, is_ip, read, write

Origins = Mapping[int, Flow]
"""For each slot of the header that a flow wrote: the flow its value comes from."""


def rewrite(header: Header, action: Action) -> Header:
    """Return the packet after `action`; actions that rewrite nothing leave it as it is.

    As in Open vSwitch, a field that the packet does not have is not written.
    """
    match action:
        case Write(name, value, mask) if applies(FIELDS[name], header):
            header = write(FIELDS[name], header, value, mask)
        case Move(source, target):
            header = _move(header, source, target)
        case Plain("push_vlan"):
            header = header._replace(vlan_tci=TAG_PRESENT, inner_tci=header.vlan_tci)
        case Plain("pop_vlan"):
            header = header._replace(vlan_tci=header.inner_tci, inner_tci=0)
        case Plain("ct_clear"):
            header = header._replace(ct_state=0, ct_zone=0, ct_mark=0, ct_label=0)
        case Plain("dec_ttl") if is_ip(header):
            header = header._replace(nw_ttl=max(header.nw_ttl - 1, 0))
    return header


def _move(header: Header, source: Subfield, target: Subfield) -> Header:
    origin, destination = FIELDS[source.field], FIELDS[target.field]
    if not (applies(origin, header) and applies(destination, header)):
        return header
    mask = (1 << target.width) - 1
    bits = read(origin, header) >> source.start & mask
    return write(destination, header, bits << target.start, mask << target.start)


def ttl_exhausted(header: Header) -> bool:
    """Tell whether `dec_ttl` would hand the packet to the controller instead of forwarding it."""
    return is_ip(header) and header.nw_ttl <= 1


def trace_origins(origins: Origins, flow: Flow, action: Action) -> Origins:
    """Return `origins` after `flow` did `action`; a moved value keeps the origin that it had."""
    match action:
        case Write(name):
            return {**origins, **dict.fromkeys(_slots(name), flow)}
        case Move(source, target):
            origin = next((origins[slot] for slot in _slots(source.field) if slot in origins), flow)
            return {**origins, **dict.fromkeys(_slots(target.field), origin)}
        case _:
            return origins


def _slots(name: str) -> list[int]:
    return [part.slot for part in FIELDS[name].parts]


def through_patch(header: Header, peer_port: int) -> Header:
    """Return the packet as the bridge behind a patch port first sees it."""
    return header._replace(in_port=peer_port, **BRIDGE_LOCAL)


TUN_ID, TUN_DST = SLOTS["tun_id"], SLOTS["tun_dst"]
