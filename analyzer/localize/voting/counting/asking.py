# SPDX-License-Identifier: Apache-2.0
"""Questions to hosts for packets that they are to count, and which answers can be true."""

from collections.abc import Iterable
from itertools import groupby

from analyzer.localize.case import Endpoints
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.voting.counting.counts import Count, Wanted, counted_on
from analyzer.questions import Ask, Asking
from netagent.model.encapsulation import overhead_bytes
from netagent.model.endpoint import Endpoint
from netagent.model.path import MAX_HOPS
from netagent.wire.messages import PathAnswer, PathReply, PathRequest

WAY_PACKETS = 50
"""Packets sent to each router of each way that a host finds by itself. Chosen: two hosts' together
show a loss of a few per cent, within a window."""
PACKETS = 100
"""Packets sent to each router of a counted flow (decision 2). Chosen: shows a loss of some percent;
routers limit the rate of their answers."""
SMALL_BYTES = 64
"""Bytes of a counted packet where small probes are lost too. Chosen: the smallest common size."""


def question(wanted: Wanted, source: Endpoint, *, large: bool) -> PathRequest:
    """Return what to ask the host of the flow's source: packets as large as its probes' outer."""
    flow = wanted.flow
    return PathRequest(
        source=flow.source,
        target=flow.target,
        source_port=0 if wanted.ways else flow.source_port,
        count=WAY_PACKETS if wanted.ways else PACKETS,
        size=source.mtu + overhead_bytes(source.underlay) if large else SMALL_BYTES,
        ways=wanted.ways,
        over_ms=wanted.over_ms,
    )


def count(
    wanted: Iterable[Wanted], endpoints: Endpoints, topology: LearnedTopology, *, large: bool
) -> Asking[list[Count]]:
    """Ask the flows' hosts to count packets per router; flows without an answer are left out."""
    wanted = list(wanted)
    if not wanted:
        return []
    replies = yield [
        Ask(endpoints[w.flow.source].host, question(w, endpoints[w.flow.source], large=large))
        for w in wanted
    ]
    counts = [
        counted_on(each, answer, topology)
        for each, reply in zip(wanted, replies, strict=True)
        if isinstance(reply, PathReply)
        for answer in reply.paths[: each.ways or 1]
        if _believable(answer) and (answer.outer_port is not None or not each.ways)
    ]
    return [each for each in counts if not each.own or _possible(each, endpoints, topology)]


def _possible(count: Count, endpoints: Endpoints, topology: LearnedTopology) -> bool:
    """Whether packets between a flow's leaves may take the way that its host says it found."""
    flow = count.flow
    leaves = [topology.leaf_of(endpoints[each]) for each in (flow.source, flow.target)]
    return count.routers in topology.untraced_routes(leaves[0], leaves[1])


def _believable(answer: PathAnswer) -> bool:
    """Whether a host may have counted so: it does the counting, and may have been taken over."""
    # One that answers twice in a row speaks for the next one; no packet comes back to a router.
    routers = [hop for hop, _ in groupby(filter(None, answer.hops))]
    return (
        0 < answer.sent <= PACKETS
        and len(answer.hops) <= MAX_HOPS
        and len(answer.answered) <= MAX_HOPS
        and all(0 <= reached <= answer.sent for reached in answer.answered)
        and all(rtt_ns >= 0 for rtt_ns in answer.rtt_ns)
        and len(set(routers)) == len(routers)
    )
