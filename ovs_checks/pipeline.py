# SPDX-License-Identifier: Apache-2.0
"""One packet through one host's bridges: how every copy ended."""

from collections.abc import Iterator, Sequence

from .packet import Header
from .switch import Snapshot
from .translate.context import Node, Numbers, Recirculation
from .translate.translation import translate
from .walk import End, LocalWalk, Step

MAX_RECIRCULATIONS = 64


def walk(snapshot: Snapshot, bridge: str, header: Header) -> LocalWalk:
    """Carry a packet that enters `bridge` by its `in_port` through the host.

    Raises
    ------
    KeyError
        If the host has no such bridge.
    """
    port = snapshot.by_name[bridge].by_number.get(header.in_port)
    numbers = Numbers()
    waiting = [translate(snapshot, bridge, header, numbers=numbers)]
    ends: list[End] = []
    steps: list[Step] = []
    for done in waiting:
        ends += done.ends
        steps += _steps(done.tree[0].inner, bridge, 0)
        for again in done.recirculations:
            if again.kind == "mpls" and len(waiting) < MAX_RECIRCULATIONS:
                flow = again.flow._replace(recirc_id=again.id)
                state = again.state
                waiting.append(translate(snapshot, bridge, flow, numbers=numbers, state=state))
            else:
                ends.append(_undecided(again))
    steps += [Step(0, "", f"{e.kind}: {e.reason}") for e in ends]
    return LocalWalk(snapshot.host, bridge, port.name if port else "", tuple(ends), tuple(steps))


def _undecided(again: Recirculation) -> End:
    """Return the end of what the datapath decides, with something that no snapshot holds."""
    state = again.state
    match again.kind:
        case "conntrack":
            reason = f"connection tracking decides (zone {again.zone}), then table {state.table}"
        case "mpls":
            reason = f"over {MAX_RECIRCULATIONS} recirculations"
        case _:
            reason = f"a hash that the datapath computes decides (group {again.group})"
    return End("cannot_tell", state.bridge, state.table, reason, again.flow)


def _steps(nodes: Sequence[Node], bridge: str, level: int) -> Iterator[Step]:
    for node in nodes:
        if node.kind == "bridge":
            inner = node.text.partition('"')[2].rstrip('")')
            yield Step(level, "", f"into {inner}")
            yield from _steps(node.inner, inner, level + 1)
        elif node.kind == "table":
            number = node.text.partition(".")[0].strip()
            where = f"{bridge}/table={number}"
            yield Step(level, where, node.flow.text if node.flow else node.text)
            yield from _steps(node.inner, bridge, level + 1)
        elif node.kind in {"warn", "error"}:
            yield Step(level, "", node.text)
        else:
            yield from _steps(node.inner, bridge, level)
