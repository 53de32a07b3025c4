# SPDX-License-Identifier: Apache-2.0
"""One packet through one host's bridges: how every copy ended."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from .classifier import covers
from .packet import CS_EST, CS_NEW, CS_RPL, CS_TRK, Header
from .switch import Snapshot
from .trace import resumed
from .translate.context import Node, Numbers, Recirculation
from .translate.translation import Translation, translate
from .walk import End, LocalWalk, Quote, Step

MAX_RECIRCULATIONS = 64


def walk(snapshot: Snapshot, bridge: str, header: Header) -> LocalWalk:
    """Carry a packet that enters `bridge` by its `in_port` through the host.

    Raises
    ------
    KeyError
        If the host has no such bridge.
    """
    port = snapshot.by_name[bridge].by_number.get(header.in_port)
    cases = _Cases(snapshot)
    cases.follow(translate(snapshot, bridge, header, numbers=cases.numbers), bridge, "")
    steps = [*cases.steps, *(Step(0, "", _said(end)) for end in cases.ends)]
    name = port.name if port else ""
    ends = tuple(_with_shadowed(snapshot, end) for end in cases.ends)
    return LocalWalk(snapshot.host, bridge, name, ends, tuple(steps))


def _with_shadowed(snapshot: Snapshot, end: End) -> End:
    """Add the flow that would have matched but for the one that ended the packet's way.

    The packet is taken as it left: what its last flow wrote is seldom what that table matches.
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

    def follow(self, done: Translation, bridge: str, case: str, connection: str = "") -> None:
        """Note how a packet ended, and go on with what the datapath gives back."""
        self.ends += [replace(end, case=case) for end in done.ends] if case else done.ends
        self.steps += _steps(done.tree[0].inner, bridge, 0)
        for again in done.recirculations:
            if again.kind == "conntrack":
                for name in [connection] if connection else CONNECTIONS:
                    flow = resumed(again, CONNECTIONS[name])
                    self._go_on(again, flow, case if connection else _both(case, name), name)
            elif again.kind == "mpls":
                self._go_on(again, again.flow._replace(recirc_id=again.id), case, connection)
            else:
                self._choose(again, case, connection)

    def _choose(self, again: Recirculation, case: str, connection: str) -> None:
        """Go on with each bucket that the datapath's hash may select."""
        flow = again.flow._replace(recirc_id=again.id, dp_hash=1)
        done = self._again(again, flow, case, 0)
        if done is None:
            return
        choices = done.choices or (-1,)
        for n, bucket in enumerate(choices):
            one = done if not n else self._again(again, flow, case, n)
            if one is None:
                return
            name = f"bucket {bucket} of group {again.group}"
            self.follow(
                one, again.state.bridge, _both(case, name) if choices[1:] else case, connection
            )

    def _go_on(self, again: Recirculation, flow: Header, case: str, connection: str) -> None:
        done = self._again(again, flow, case)
        if done is not None:
            self.follow(done, again.state.bridge, case, connection)

    def _again(
        self, again: Recirculation, flow: Header, case: str, choice: int | None = None
    ) -> Translation | None:
        """Translate what comes back from the datapath; None where that was too often."""
        state = again.state
        if self._translations == MAX_RECIRCULATIONS:
            reason = f"over {MAX_RECIRCULATIONS} recirculations and cases"
            # A case of its own, so that no other case's delivery stands for it.
            left = _both(case, "what was not followed")
            end = End("cannot_tell", state.bridge, state.table, reason, flow, case=left)
            self.ends.append(end)
            return None
        self._translations += 1
        numbers = self.numbers
        return translate(
            self.snapshot, state.bridge, flow, numbers=numbers, state=state, choice=choice
        )


def _both(one: str, other: str) -> str:
    return f"{one}, {other}" if one else other


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
