# SPDX-License-Identifier: Apache-2.0
"""Translations of packets through small bridges, whole or in the middle."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ovs_checks.openflow.actions import Action
from ovs_checks.openflow.packet import SLOTS, Header
from ovs_checks.openflow.parse import parse_flow, parse_header
from ovs_checks.switch.shows import parse_groups
from ovs_checks.switch.snapshot import Bridge, Features, Port, Snapshot
from ovs_checks.translate.context import ACTSET_OUTPUT, UNSET, Context, Numbers
from ovs_checks.translate.datapath import text_of
from ovs_checks.translate.translation import GO, Translation, translate
from tests.ovs_checks.hosts import bridge, plain_ports

ORDINARY = "in_port=1,udp,nw_ttl=64"


def actions(text: str) -> tuple[Action, ...]:
    """Return the actions of a flow."""
    return parse_flow(f"actions={text}").actions


def bridge0(
    flows: str = "actions=drop", *, ports: Iterable[Port] = (), groups: str = "", **more: Any
) -> Bridge:
    """Return bridge `br0` with ports p1, p2 and p3, and `ports`."""
    made = bridge("br0", flows, ports=(*plain_ports("br0", 1, 2, 3), *ports))
    found, problems = parse_groups(groups, {}) if groups else ((), ())
    assert not problems
    return replace(made, groups=tuple(found), **more)


def context(
    packet: str = ORDINARY,
    at: Bridge | None = None,
    *,
    others: Iterable[Bridge] = (),
    features: Features | None = None,
    **more: Any,
) -> Context:
    """Return a translation that has just begun: nothing looked at, nothing done."""
    at = at or bridge0()
    known: Mapping[str, Features] = {"": features} if features else {}
    flow = list(parse_header(packet))
    flow[ACTSET_OUTPUT] = UNSET
    host = Snapshot("h0", (at, *others), features=known)
    x = Context(host, at, flow, list(flow), [0] * len(flow), Numbers(), GO)
    for name, value in more.items():
        setattr(x, name, value)
    return x


def run(
    at: Bridge | str,
    packet: str | Header = ORDINARY,
    *,
    others: Iterable[Bridge] = (),
    host: Mapping[str, Any] | None = None,
    features: Features | None = None,
    **more: Any,
) -> Translation:
    """Translate a packet that enters `at`: a bridge, or the flows of `br0`."""
    at = bridge0(at) if isinstance(at, str) else at
    known: Mapping[str, Features] = {"": features} if features else {}
    snapshot = Snapshot("h0", (at, *others), features=known, **(host or {}))
    header = parse_header(packet) if isinstance(packet, str) else packet
    return translate(snapshot, at.name, header, **more)


def does(done: Translation | Context) -> str:
    """Return the datapath actions."""
    return text_of(done.steps)


def told(done: Translation | Context) -> list[str]:
    """Return every line of the tree, in order."""
    lines, left = [], list(done.tree if isinstance(done, Translation) else done.trace)
    while left:
        node = left.pop(0)
        lines.append(node.text)
        left[:0] = node.inner
    return lines


def kinds(done: Translation | Context) -> list[tuple[str, str]]:
    """Return what became of every copy: how it ended, and by which port or why."""
    return [(end.kind, end.port or end.reason) for end in done.ends]


def looked(x: Context | Translation, name: str) -> int:
    """Return which bits of a member were looked at."""
    return x.looked[SLOTS[name]]
