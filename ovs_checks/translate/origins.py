# SPDX-License-Identifier: Apache-2.0
"""Where a packet's present values came from: the flow that wrote them."""

from collections.abc import Mapping

from ovs_checks.openflow.actions import Action, Move, Pop, SetTunnel, Write
from ovs_checks.openflow.fields import FIELDS
from ovs_checks.openflow.flow import Flow
from ovs_checks.openflow.packet import SLOTS

TUN_ID, TUN_DST, TUN_DST6 = (SLOTS[name] for name in ("tun_id", "tun_dst", "tun_ipv6_dst"))


def trace_origins(origins: Mapping[int, Flow], flow: Flow, action: Action) -> dict[int, Flow]:
    """Return `origins` after `flow` did `action`; a moved value keeps the origin that it had."""
    match action:
        case Write(field=name):
            return {**origins, **dict.fromkeys(_slots(name), flow)}
        case SetTunnel():
            return {**origins, TUN_ID: flow}
        case Pop(target=target):
            return {**origins, **dict.fromkeys(_slots(target.field), flow)}
        case Move(source=source, target=target):
            origin = next((origins[slot] for slot in _slots(source.field) if slot in origins), flow)
            return {**origins, **dict.fromkeys(_slots(target.field), origin)}
        case _:
            return dict(origins)


def _slots(name: str) -> list[int]:
    return [part.slot for part in FIELDS[name].parts]
