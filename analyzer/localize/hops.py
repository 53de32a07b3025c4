# SPDX-License-Identifier: Apache-2.0
"""Where on a path packets are lost: what to count, when end-to-end probes leave a tie.

In a fabric of two segments every probe that crosses one link of a spine crosses the other, so no
number of probes tells them apart. Packets that end at a router on the way do.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise, zip_longest

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
VXLAN_OVERHEAD_BYTES = 50
"""Outer IP, UDP, VXLAN and inner Ethernet headers around an overlay IP packet."""
DEAD_RATE = 0.9
FABRIC = {Kind.SWITCH, Kind.LINK}
UNDERLAY = {Kind.SWITCH, Kind.LINK, Kind.RNIC}
SURE_HOPS = 2
"""A leaf and a spine above it answer over the link that the packet took."""
SLOW_WEIGHT = 20
"""A slow router's answers are many, but told as one median: it counts as so many probes."""


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
    *,
    slow: Mapping[FlowId, tuple[float, float]] | None = None,
) -> list[Ballot]:
    """Return a ballot per flow and router: packets lost on the way there.

    An answer proves the way there; silence of a router beyond the second proves nothing, since its
    answer may come back over other links than those the packet took. With `slow`, which gives each
    flow's round trip before and now, the ballots tell instead whether the router answered late.
    """
    made: list[Ballot] = []
    for flow, answer in answers.items():
        source = endpoints[flow.source]
        hops = _routers(flow, answer, topology)
        if len(answer.rtt_ns) < len(answer.answered):
            continue  # an agent of another make
        for n, reached in enumerate(answer.answered[: len(hops)], start=1):
            sent, lost = answer.sent, answer.sent - reached
            if n > SURE_HOPS:
                sent, lost = reached, 0
            if slow is not None:
                late = _late(answer.rtt_ns[:n], *slow[flow])
                sent, lost = (SLOW_WEIGHT, SLOW_WEIGHT * late) if answer.rtt_ns[n - 1] else (0, 0)
            if sent:
                crossed = _crossed_to(hops, n) | {rnic(source.host, source.rnic)}
                pair = (flow.source, flow.target)
                made.append(Ballot(pair, sent, lost, frozenset(crossed), (flow, n)))
    return made


def _late(rtts_ns: Sequence[int], before_ns: float, now_ns: float) -> bool:
    # The way to a router may be much shorter than the flow's round trip, which hides the shift in
    # it; against the routers before, the shift shows. Half of it is more than luck.
    nearer = min((rtt_ns for rtt_ns in rtts_ns if rtt_ns), default=0)
    shift_ns = now_ns - before_ns
    return rtts_ns[-1] > (before_ns + now_ns) / 2 or rtts_ns[-1] - nearer > shift_ns / 2


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


def _crossed_to(hops: Sequence[str], count: int) -> set[Component]:
    way = hops[:count]
    return {switch(name) for name in way if name} | {
        link(a, b) for a, b in pairwise(way) if a and b
    }
