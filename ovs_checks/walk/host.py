# SPDX-License-Identifier: Apache-2.0
"""Carries a packet through a host's bridges: how every copy ended."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ovs_checks.openflow.classifier import covers
from ovs_checks.openflow.packet import CS_EST, CS_NEW, CS_RPL, CS_TRK, TUN_OAM, Header
from ovs_checks.switch.snapshot import Snapshot
from ovs_checks.translate.context import Frozen, Node, Numbers, Recirculation
from ovs_checks.translate.ends import End, Quote
from ovs_checks.translate.text import resumed
from ovs_checks.translate.translation import Translation, translate

from .values import LocalWalk, Step

MAX_RECIRCULATIONS = 64
"""Translations of one walk: recirculations and cases. Chosen: real tables need a few, and a walk
that was cut short says so."""


def walk(snapshot: Snapshot, bridge: str, header: Header, connection: str = "") -> LocalWalk:
    """Carry a packet that enters `bridge` by its `in_port` through the host.

    It is of a `connection` in one of the states of `CONNECTIONS`; "" looks at every one.

    Raises
    ------
    KeyError
        If the host has no such bridge.
    """
    port = snapshot.by_name[bridge].by_number.get(header.in_port)
    cases = _Cases(snapshot)
    cases.start(bridge, header, connection)
    steps = [*cases.steps, *(Step(0, "", _said(end)) for end in cases.ends)]
    name = port.name if port else ""
    ends = tuple(_with_shadowed(snapshot, end) for end in cases.ends)
    return LocalWalk(snapshot.host, bridge, name, ends, tuple(steps))


def _with_shadowed(snapshot: Snapshot, end: End) -> End:
    """Add the flow that would have matched but for the one that ended the packet's way.

    This matches the packet as it left: its last flow seldom wrote what that table matches.
    """
    if end.flow is None or end.table < 0:
        return end
    matching = snapshot.by_name[end.bridge].tables[end.table].matching(end.header)
    hit = next((flow for flow in matching if flow.text == end.flow.text), None)
    below = (flow for flow in matching if hit is not None and covers(hit, flow))
    shadowed = next(below, None)
    return replace(end, shadowed=Quote.of(end.bridge, shadowed)) if shadowed else end


CONNECTIONS: Mapping[str, int] = {
    "new connection": CS_TRK | CS_NEW,
    "established connection": CS_TRK | CS_EST,
    "reply": CS_TRK | CS_EST | CS_RPL,
}
"""What connection tracking may say of a packet that no fault has made invalid."""


class _Cases:
    """Carries a packet through what only the datapath knows: every answer is a case of its own.

    One connection has one state, so that all zones answer alike within a case.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self.numbers = snapshot, Numbers()
        self.ends: list[End] = []
        self.steps: list[Step] = []
        self._translations = 0

    def start(self, bridge: str, header: Header, connection: str) -> None:
        """Carry a packet into a bridge."""
        self._each(bridge, header, "", connection, None)

    def follow(self, done: Translation, bridge: str, case: str, connection: str = "") -> None:
        """Note how a packet ended, and go on with what the datapath gives back."""
        for end in done.ends:
            flags = end.header.tun_flags & TUN_OAM  # the notation of packets has no others
            header = end.header._replace(tun_flags=flags)
            self.ends.append(replace(end, case=_both(case, end.case), header=header))
        self.steps += _steps(done.tree[0].inner, bridge, 0)
        # Of a packet that an error drops, no copy reaches the datapath.
        for again in () if done.error else done.recirculations:
            within = _both(case, again.case)
            if again.kind == "conntrack":
                for name in [connection] if connection else CONNECTIONS:
                    flow = resumed(again, CONNECTIONS[name])
                    self._go_on(again, flow, within if connection else _both(within, name), name)
            else:
                hashed = {"dp_hash": 1} if again.kind == "hash" else {}
                flow = again.flow._replace(recirc_id=again.id, **hashed)
                self._go_on(again, flow, within, connection)

    def _go_on(self, again: Recirculation, flow: Header, case: str, connection: str) -> None:
        self._each(again.state.bridge, flow, case, connection, again.state)

    def _each(
        self, bridge: str, flow: Header, case: str, connection: str, state: Frozen | None
    ) -> None:
        """Carry a packet on, once for all that hashes may select together."""
        waiting: list[tuple[int, ...]] = [()]
        while waiting:
            picks = waiting.pop(0)
            if self._translations == MAX_RECIRCULATIONS:
                self._leave(bridge, flow, case, state.table if state else 0)
                return
            self._translations += 1
            done = translate(
                self.snapshot, bridge, flow, numbers=self.numbers, state=state, picks=picks
            )
            taken = tuple(pick for _, pick in done.choices)
            for n, (names, _) in enumerate(done.choices):
                if n >= len(picks):
                    waiting += [(*taken[:n], other) for other in range(1, len(names))]
            name = case
            for names, pick in done.choices:
                name = _both(name, names[pick])
            self.follow(done, bridge, name, connection)

    def _leave(self, bridge: str, flow: Header, case: str, table: int) -> None:
        """Note what is not followed: as a case, so that no other's delivery stands for it."""
        reason = f"over {MAX_RECIRCULATIONS} recirculations and cases"
        left = _both(case, "what was not followed")
        self.ends.append(End("cannot_tell", bridge, table, reason, flow, case=left))


def _both(one: str, other: str) -> str:
    return ", ".join(filter(None, (one, other)))


def _said(end: End) -> str:
    return f"{f'{end.case}: ' if end.case else ''}{end.kind}: {end.reason}"


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
