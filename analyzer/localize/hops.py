# SPDX-License-Identifier: Apache-2.0
"""Where on a path packets are lost: what to count, when end-to-end probes leave a tie.

In a fabric of two segments every probe that crosses one link of a spine crosses the other, so no
number of probes tells them apart. Packets that end at a router on the way do.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise, zip_longest

from analyzer.detect.loss import FlowView
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.votes import Ballot, Election
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, Kind, link, rnic, switch
from netagent.wire.messages import PathAnswer, PathRequest

FLOWS_PER_LEAF = 2
MAX_FLOWS = 6
PACKETS = 100
SMALL_BYTES = 64
COUNTED = "packets that reached each router"
"""How a line of evidence from a count begins."""
TIMED = "how late each router answered"
"""How a line begins that compares their round trips."""
VXLAN_OVERHEAD_BYTES = 50
"""Outer IP, UDP, VXLAN and inner Ethernet headers around an overlay IP packet."""
DEAD_RATE = 0.9
FABRIC = {Kind.SWITCH, Kind.LINK}
UNDERLAY = {Kind.SWITCH, Kind.LINK, Kind.RNIC}
SURE_HOPS = 2
"""A leaf and a spine above it answer over the link that the packet took."""
SLOW_WEIGHT = 20
"""A router's answers are many, but told as one median: it counts as so many probes."""
MOST_SHIFTS = 4
"""A step of more of the flow's shifts is not what slows it: the shift is known roughly."""
LEAST_SHIFT_NS = 500_000.0
"""Routers differ by less for reasons of their own."""
Shift = tuple[float, float]
"""A slow flow's round trip (ns) before, and now."""


def worth_counting(election: Election, standing: Collection[Component] = ()) -> bool:
    """Whether packets to routers on the way could break a tie, or better a partial loss.

    One stray loss elsewhere makes a switch look better than its link while losses are few.
    """
    kinds = {component.kind for component in election.tied}
    best = election.suspects[0]
    if not election.decided:
        return len(election.tied) > 1 and kinds <= UNDERLAY
    partial = best.lost < DEAD_RATE * best.crossed
    return partial and best.component.kind in FABRIC and best.component not in standing


def choose(
    election: Election, flows: Iterable[FlowView], topology: LearnedTopology
) -> list[FlowId]:
    """Return losing flows to count on, from each side of the tied suspects."""
    tied = set(election.tied)
    chosen: dict[str, list[FlowId]] = {}
    sources: set[EndpointId] = set()
    for view in sorted(flows, key=lambda v: (-v.lost, v.flow)):
        hops = topology.hops(view.flow, reply=False)
        if not view.lost or not hops or view.flow.source in sources:
            continue
        mine = chosen.setdefault(hops[0], [])
        if len(mine) < FLOWS_PER_LEAF and tied & _crossed_to(hops, len(hops)):
            mine.append(view.flow)
            sources.add(view.flow.source)
    return [flow for mine in chosen.values() for flow in mine][:MAX_FLOWS]


def question(flow: FlowId, source: Endpoint, *, large: bool) -> PathRequest:
    """Return what to ask the host of the flow's source: packets as large as its probes' outer."""
    return PathRequest(
        source=flow.source,
        target=flow.target,
        source_port=flow.source_port,
        count=PACKETS,
        size=source.mtu + VXLAN_OVERHEAD_BYTES if large else SMALL_BYTES,
    )


def ballots(
    answers: Mapping[FlowId, PathAnswer],
    endpoints: Mapping[EndpointId, Endpoint],
    topology: LearnedTopology,
) -> list[Ballot]:
    """Return a ballot per flow and router: packets lost on the way there.

    An answer proves the way there; silence of a router beyond the second proves nothing, since its
    answer may come back over other links than those the packet took.
    """
    made: list[Ballot] = []
    for flow, answer in answers.items():
        source = endpoints[flow.source]
        hops = _routers(flow, answer, topology)
        for n, reached in enumerate(answer.answered[: len(hops)], start=1):
            sent, lost = answer.sent, answer.sent - reached
            if n > SURE_HOPS:
                sent, lost = reached, 0
            if sent:
                crossed = _crossed_to(hops, n) | {rnic(source.host, source.rnic)}
                made.append(_ballot(flow, n, sent, lost, crossed))
    return made


def late_ballots(
    answers: Mapping[FlowId, PathAnswer],
    endpoints: Mapping[EndpointId, Endpoint],
    topology: LearnedTopology,
    slow: Mapping[FlowId, Shift],
) -> list[Ballot]:
    """Return a ballot per slow flow and router: whether the slowness begins on the way there.

    How long a router takes to answer is its own affair, and what that adds to the way there is not
    known; but a packet that a farther router answered early has not been late before. So only
    routers of one flow are compared, and only a step of about the size of the flow's shift counts.
    """
    made: list[Ballot] = []
    for flow, answer in answers.items():
        source = endpoints[flow.source]
        hops = _routers(flow, answer, topology)
        late = _late(answer.rtt_ns[: len(hops)], slow[flow])
        near = _crossed_to(hops, 1) | {rnic(source.host, source.rnic)}
        told = {n: is_late for n, is_late in enumerate(late, start=1) if is_late is not None}
        if told and True not in told.values():
            # The slowness may lie before the first router, or beyond the last: only what is
            # between is spared, and all of that alike.
            last = max(told)
            if crossed := _crossed_to(hops, last) - near:
                made.append(_ballot(flow, last, SLOW_WEIGHT, 0, crossed))
            continue
        for n, is_late in told.items():
            crossed = near | _crossed_to(hops, n)
            made.append(_ballot(flow, n, SLOW_WEIGHT, SLOW_WEIGHT * is_late, crossed))
    return made


def _late(rtts_ns: Sequence[int], shift: Shift) -> list[bool | None]:
    """Return whether packets were late at each router; None where that cannot be told.

    Empty where nothing can. A round trip of 0 is that of a router that did not answer.
    """
    if len(rtts_ns) < 2 or not rtts_ns[0] or not any(rtts_ns[1:]):
        return []
    shift_ns = max(shift[1] - shift[0], LEAST_SHIFT_NS)
    half_ns, most_ns = shift_ns / 2, MOST_SHIFTS * shift_ns
    least_ns = accumulate((rtt_ns or math.inf for rtt_ns in reversed(rtts_ns)), min)
    way_ns = list(least_ns)[::-1]
    beyond_ns = [way - way_ns[0] if rtt else 0.0 for way, rtt in zip(way_ns, rtts_ns, strict=True)]
    if max(beyond_ns) > most_ns:
        return []
    return [
        # A router that is slow to answer bounds the way to it, and no more.
        None if not rtt or (beyond > half_ns and rtt - way > half_ns) else beyond > half_ns
        for rtt, way, beyond in zip(rtts_ns, way_ns, beyond_ns, strict=True)
    ]


def _ballot(flow: FlowId, n: int, sent: int, lost: int, crossed: Collection[Component]) -> Ballot:
    return Ballot((flow.source, flow.target), sent, lost, frozenset(crossed), (flow, n))


def _routers(flow: FlowId, answer: PathAnswer, topology: LearnedTopology) -> list[str]:
    # Who answered now goes before who was there when the path was last complete: after a failure
    # flows rehash.
    known = topology.hops(flow, reply=False) or ()
    now = tuple(map(topology.name, answer.hops))
    return [a or b for a, b in zip_longest(now[: len(known)], known, fillvalue="")]


def told(answers: Mapping[FlowId, PathAnswer], topology: LearnedTopology) -> list[str]:
    """Return the counts as lines of evidence."""
    lines: list[str] = []
    for flow, answer in answers.items():
        hops = _routers(flow, answer, topology)
        if answer.sent:
            counts = ", ".join(
                f"{hop or '?'} {reached}/{answer.sent}"
                for hop, reached in zip(hops, answer.answered, strict=False)
            )
            lines.append(f"{COUNTED}, {flow.source}: {counts}")
    return lines


def told_late(
    answers: Mapping[FlowId, PathAnswer], topology: LearnedTopology, slow: Mapping[FlowId, Shift]
) -> list[str]:
    """Return the routers' round trips as lines of evidence."""
    lines: list[str] = []
    for flow, answer in answers.items():
        if not any(answer.rtt_ns):
            continue
        times = ", ".join(
            f"{hop or '?'} {rtt_ns / 1e3:.0f} us" if rtt_ns else f"{hop or '?'} none"
            for hop, rtt_ns in zip(_routers(flow, answer, topology), answer.rtt_ns, strict=False)
        )
        before_ns, now_ns = slow[flow]
        end_to_end = f"{before_ns / 1e3:.0f} us -> {now_ns / 1e3:.0f} us"
        lines.append(f"{TIMED}, {flow.source}: {times}; end to end {end_to_end}")
    return lines


def _crossed_to(hops: Sequence[str], count: int) -> set[Component]:
    way = hops[:count]
    return {switch(name) for name in way if name} | {
        link(a, b) for a, b in pairwise(way) if a and b
    }
