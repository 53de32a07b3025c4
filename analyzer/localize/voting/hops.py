# SPDX-License-Identifier: Apache-2.0
"""Where on a path packets are lost: what to count when end-to-end probes leave a tie.

In a fabric of two segments, every probe that crosses one link of a spine crosses the other. So no
number of probes decides between them. Packets that end at a router on the way do.

Where no trace shows the ways of flows, as where RNICs encapsulate, all parallel links are such a
tie. Then hosts look for the ways themselves, with packets of their own, and count on each.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations, groupby, pairwise, zip_longest
from statistics import median_low
from types import MappingProxyType
from typing import cast

from analyzer.detect.flows import FlowView
from analyzer.localize.case import Endpoints, Shift
from analyzer.localize.routes import Route
from analyzer.localize.topology import LearnedTopology, Leg, Part
from analyzer.localize.voting.election import (
    DEAD_RATE,
    Ballot,
    BorneOut,
    Election,
    log_likelihood,
)
from analyzer.questions import Ask, Asking
from netagent.model.endpoint import Endpoint
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import MAX_HOPS, Component, Kind, link, link_ends, rnic, switch
from netagent.model.verdict import Suspect
from netagent.wire.messages import PathAnswer, PathReply, PathRequest

FLOWS_PER_LEAF = 2
"""Most flows counted from one leaf. Chosen: one may take a healthy link, a third adds little."""
MAX_FLOWS = 6
"""Most flows counted for one election. Chosen: bounds what hosts send and routers answer."""
HOSTS_PER_SUSPECT = 2
"""Hosts that count on ways across each suspect. Chosen: one of them may see what nobody else
does."""
MAX_SURVEYS = 8
"""Most hosts that count on all ways for one election. Chosen: as `MAX_FLOWS`."""
MOST_ASKED = 16
"""Most hosts asked to count in a window, for all ties. Chosen: as `MAX_FLOWS`."""
COUNTS_QUOTED = 8
"""Most ways quoted with their counts. Chosen: what an operator reads."""
OVER_MS = 2_500
"""Milliseconds over which packets are counted on ways where flows lost a part of their probes.
Chosen: ports flap every few seconds, and the answer is there within a window."""
WAY_PACKETS = 50
"""Packets sent to each router of each way that a host finds by itself. Chosen: two hosts' together
show a loss of a few per cent, within a window."""
PACKETS = 100
"""Packets sent to each router of a counted flow (DESIGN 2). Chosen: shows a loss of a few per cent;
routers limit the rate of their answers."""
SMALL_BYTES = 64
"""Bytes of a counted packet where small probes are lost too. Chosen: the smallest common size."""
VXLAN_OVERHEAD_BYTES = 50
"""Bytes around an overlay IP packet: outer IPv4 (20), UDP (8), VXLAN (8) and inner Ethernet (14);
RFC 7348, section 5."""
REACHED = 0.5
"""Probability that a packet which ends at a router crosses what is broken in it. Chosen: nothing is
known of the router's inside."""
REACHED_IF_LOST, REACHED_IF_NOT = 0.95, 0.05
"""The same where all that ends at a router is lost, or none of it. Chosen: it is one fact of the
router, the same for all flows; where they agree, they show it."""
MOST_COUNTED = 8
"""Most lost packets of a flow and router that count. Chosen: enough to tell who loses; packets are
counted after the window, when another share may be lost, and that shows nobody guilty."""
DEAD_SHARE = 0.3
"""Share of the packets lost from which they count as one. Chosen: they died of one cause."""
SEVERAL = 3
"""Lost packets of a flow and router that are no stray losses. Chosen: of fifty, where one in ten
thousand is lost for no reason."""
MORE_NATS = 2.0
"""Nats from which a router has lost more than the one before it. Chosen: 3 of 50 beside none."""
LIMITED = 0.05
"""Share of the packets below which a router that answers at all is held to limit its answers.
Chosen: a dead link lets none pass, and what loses less is counted.
"""
MANY_LOST = 64
"""Lost probes from which a vote that is decided needs no counts. Chosen: a stray loss elsewhere
then weighs little."""
CLEARED = 0.01
"""Probability below which a suspect's counted losses are too few for its guilt, which clears it.
Chosen: one suspect in a hundred is cleared wrongly."""
LINKS_OF_ONE = 3
"""Links of a switch named at once from which it is the switch that no way crosses. Chosen: two may
fail by themselves."""
LEAST_WAYS = 3
"""Ways among which one can be late. Chosen: of two, nobody knows which one is as usual."""
MAD_SCALE = 1.4826
"""Standard deviations in a median absolute deviation, where the distribution is normal."""
NOISES = 3.5
"""Standard deviations of ways' round trips that half a flow's shift must exceed. Chosen: what is
later then hardly is so by chance, though many ways are looked at."""
FABRIC = {Kind.SWITCH, Kind.LINK}
UNDERLAY = {Kind.SWITCH, Kind.LINK, Kind.RNIC}
SURE_HOPS = 2
"""Routers at the begin of a path whose silence proves a loss. Chosen: a leaf and the spine above it
answer over the link that the packet took; farther answers may take another."""
SLOW_WEIGHT = 20
"""Probes that one router's median answer time counts as. Chosen: it sums up many answers, which are
not independent."""
MOST_SHIFTS = 4
"""Largest step between routers, in multiples of the flow's shift, that may be the shift itself.
Chosen: the shift is known roughly; a larger step has another cause."""
LEAST_SHIFT_NS = 500_000.0
"""Least shift, in nanoseconds, assumed of a slow flow. Chosen: routers' answer times differ by less
without any fault, and the same floor is in `detect.latency.floors`."""


def worth_counting(election: Election, standing: Collection[Component] = ()) -> bool:
    """Whether packets to routers on the way could break a tie, or confirm who loses a part.

    While losses are few, one stray loss elsewhere makes a switch a better suspect than its link,
    and what another fault lost one of two links that the same probes cross. And a switch that loses
    a part, however many, may be two of its ports that broke at once.
    """
    kinds = {component.kind for component in election.tied}
    best = next(iter(election.suspects), None)
    if best is None:
        return False
    if not election.decided:
        # Where nobody saw the ways, one that is suspected may stand for others that are alike.
        is_alone = len(election.tied) == 1 and not (election.shared and _unseen(election))
        return not is_alone and kinds <= UNDERLAY
    dead = best.lost >= DEAD_RATE * best.crossed
    is_whole = best.component.kind is Kind.SWITCH
    few = not dead and (best.lost < MANY_LOST or is_whole or len(election.tied) > 1)
    return few and best.component.kind in FABRIC and best.component not in standing


def worth_recounting(election: Election) -> bool:
    """Whether packets to routers on the way could show another part that loses beside a known one.

    Where nobody saw the ways, what two links of a leaf lose looks like what one of them does.
    """
    best = next(iter(election.suspects), None)
    return (
        best is not None
        and election.decided
        and best.component.kind is Kind.LINK
        and best.lost < DEAD_RATE * best.crossed
        and _unseen(election)
    )


def _unseen(election: Election) -> bool:
    return any(not ballot.whole for ballot in election.explains)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A flow to count on; or between whose two VTEPs to count, on up to so many `ways`."""

    flow: FlowId
    ways: int = 0
    over_ms: int = 0
    """Milliseconds over which to count on these."""


@dataclass(frozen=True, slots=True)
class Count:
    """What the host of a flow's source counted along one way."""

    flow: FlowId
    answer: PathAnswer
    routers: Route
    """Names, nearest first; "" where one was silent. What the answer counted goes with them."""
    sure: int
    """Routers at the begin whose silence proves a loss: their answers come back as the packet
    went."""
    own: bool = False
    """Whether the host found the way by itself: no probe of the flow need have taken it."""
    window_ns: int = 0
    """Start of the window for whose sake packets were counted."""


def choose(
    elections: Iterable[Election],
    flows: Iterable[FlowView],
    endpoints: Endpoints,
    topology: LearnedTopology,
    *,
    over_ms: int = 0,
) -> list[Wanted]:
    """Return losing flows to count on, for all ties together.

    On ways that hosts find, packets are spread over `over_ms` where flows lost a part of theirs.
    """
    chosen: dict[Wanted, None] = {}
    losing = sorted((view for view in flows if view.lost), key=lambda v: (-v.lost, v.flow))
    for election in elections:
        mine = _on_flows(election, losing, topology)
        if not mine:
            spread_ms = 0 if is_dead(election) else over_ms
            ways = _on_ways(election, (losing, flows), endpoints, topology)
            mine = [replace(each, over_ms=spread_ms) for each in ways]
        chosen |= dict.fromkeys(mine)
    return list(chosen)[:MOST_ASKED]


def _on_flows(
    election: Election, losing: Sequence[FlowView], topology: LearnedTopology
) -> list[Wanted]:
    """Return flows whose ways are known, from each side of the suspects, on different ways."""
    tied = set(election.tied)
    chosen: dict[str, list[FlowId]] = {}
    sources: set[EndpointId] = set()
    ways: set[tuple[str, ...]] = set()
    for again in (False, True):  # a way that is counted already shows little more
        for view in losing:
            hops = topology.hops(view.flow, reply=False)
            if not hops or view.flow.source in sources or (hops[:2] in ways and not again):
                continue
            mine = chosen.setdefault(hops[0], [])
            if len(mine) < FLOWS_PER_LEAF and tied & _crossed_to(hops, len(hops)):
                mine.append(view.flow)
                sources.add(view.flow.source)
                ways.add(hops[:2])
    return [Wanted(flow) for mine in chosen.values() for flow in mine][:MAX_FLOWS]


def _on_ways(
    election: Election,
    flows: tuple[Sequence[FlowView], Iterable[FlowView]],
    endpoints: Endpoints,
    topology: LearnedTopology,
) -> list[Wanted]:
    """Return flows between whose ends to count, until each suspect is counted on by some hosts.

    `flows` are those that lose, and all. One that loses nothing shows whether the switches at a
    suspected link's ends are alive: then they are not why no way crosses the link.
    """
    losing, every = flows
    links = [each for each in election.tied if each.kind is Kind.LINK]
    ends = {switch(end) for each in links for end in link_ends(each)}
    tied = {*election.tied, *ends}
    covered = Counter[Component]()
    hosts: set[str] = set()
    chosen: list[Wanted] = []
    between: dict[tuple[str | None, ...], tuple[set[Component], int]] = {}

    def survey(views: Iterable[FlowView], wanted: Collection[Component], hosts_each: int) -> None:
        for view in views:
            if all(covered[c] >= hosts_each for c in wanted) or len(chosen) == MAX_SURVEYS:
                return
            source, target = (endpoints[each] for each in (view.flow.source, view.flow.target))
            leaves = topology.leaf_of(source), topology.leaf_of(target)
            if leaves not in between:
                routes = topology.untraced_routes(*leaves)
                between[leaves] = {c for route in routes for c in _told(route, tied)}, len(routes)
            near, ways = between[leaves]
            short = any(covered[c] < hosts_each for c in near.intersection(wanted))
            if short and source.host not in hosts:
                covered.update(near)
                hosts.add(source.host)
                chosen.append(Wanted(view.flow, ways))

    survey(losing, tied, HOSTS_PER_SUSPECT)
    survey(every, ends, 1)
    return chosen


def _told(route: Sequence[str], tied: Collection[Component]) -> set[Component]:
    """Return the suspects of which packets that come up a route tell.

    Of a switch they tell nothing where a suspected link is on the way as well: both may be why no
    way leads there.
    """
    up = _crossed_to(route, middle(route)) & set(tied)
    whole = _crossed_to(route, len(route)) & set(tied)
    is_linked = any(each.kind is Kind.LINK for each in whole)
    return {each for each in up if each.kind is not Kind.SWITCH or not is_linked}


def middle(route: Sequence[str]) -> int:
    """Return how many routers of a whole route lead up, the topmost one included.

    From those an answer has one way back, the one that the packet came by.
    """
    return (len(route) + 1) // 2


def question(wanted: Wanted, source: Endpoint, *, large: bool) -> PathRequest:
    """Return what to ask the host of the flow's source: packets as large as its probes' outer."""
    flow = wanted.flow
    return PathRequest(
        source=flow.source,
        target=flow.target,
        source_port=0 if wanted.ways else flow.source_port,
        count=WAY_PACKETS if wanted.ways else PACKETS,
        size=source.mtu + VXLAN_OVERHEAD_BYTES if large else SMALL_BYTES,
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
        if _believable(answer)
    ]
    return [each for each in counts if not each.own or _possible(each, endpoints, topology)]


def _possible(count: Count, endpoints: Endpoints, topology: LearnedTopology) -> bool:
    """Whether packets between a flow's leaves may take the way that its host says it found."""
    flow = count.flow
    leaves = [topology.leaf_of(endpoints[each]) for each in (flow.source, flow.target)]
    return count.routers in topology.untraced_routes(leaves[0], leaves[1])


def counted_on(wanted: Wanted, answer: PathAnswer, topology: LearnedTopology) -> Count:
    """Return what was counted, with the names of the routers."""
    if wanted.ways:
        routers = tuple(map(topology.name, answer.hops))
        return Count(wanted.flow, answer, routers, middle(routers), own=True)
    return Count(wanted.flow, answer, _routers(wanted.flow, answer, topology), SURE_HOPS)


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


def ballots(
    counts: Iterable[Count], endpoints: Endpoints, *, ties: Iterable[Election] = ()
) -> list[Ballot]:
    """Return a ballot per way and router: packets lost on the way there, to break these ties.

    The answers of routers that are not sure may come back over other links than those the packets
    took. What is lost there may be lost on the way back, which is not known.
    """
    counts = list(counts)
    made: list[Ballot] = []
    broken, limited = _broken(counts), _limited(counts)
    hard = any(_loses_much(each) for each in ties)
    for each in counts:
        answer, hops = each.answer, each.routers
        source = endpoints[each.flow.source]
        for n, reached in enumerate(answer.answered[: len(hops)], start=1):
            # A packet that ends at a router is not forwarded by it.
            last = {switch(hops[n - 1])} if hops[n - 1] else set()
            crossed = _crossed_to(hops, n) - last | {rnic(source.host, source.rnic)}
            maybe = dict.fromkeys(last, broken.get(hops[n - 1], REACHED))
            unseen = 0.0 if n <= each.sure else 1.0
            if n > 1 and hops[n - 2 : n] in limited and reached < LIMITED * answer.sent:
                continue
            sent, lost = _tempered(answer.sent, answer.sent - reached, hard=hard)
            made.append(_ballot(each, n, sent, lost, crossed, maybe, unseen))
    return made


def _loses_much(tie: Election) -> bool:
    best = tie.suspects[0]
    return best.lost >= DEAD_SHARE * best.crossed


def _tempered(sent: int, lost: int, *, hard: bool) -> tuple[int, int]:
    """Return what counts of packets sent and lost; `hard` where the probes lost a large share.

    What comes and goes was away for some of the packets: they do not speak for it.
    """
    if hard and lost >= SEVERAL:
        return 1, 1
    most = 1 if lost >= DEAD_SHARE * sent else MOST_COUNTED
    return (round(most * sent / lost), most) if lost > most else (sent, lost)


def _limited(counts: Iterable[Count]) -> set[Route]:
    """Return (router before, router) where the second is reached, but answers next to nothing.

    One that has lost its route may say so once a second, whatever arrives (RFC 1812, 4.3.2.8).
    """
    return {
        each.routers[n - 2 : n]
        for each in counts
        for n, (reached, hop) in enumerate(
            zip(each.answer.answered, each.answer.hops, strict=False), start=1
        )
        if n > 1
        and hop
        and hop not in each.answer.hops[: n - 1]
        and 0 < reached < LIMITED * each.answer.sent
    }


def _broken(counts: Iterable[Count]) -> dict[str, float]:
    """Return routers with the probability that packets which end there cross what is broken."""
    shares: dict[str, list[bool]] = defaultdict(list)
    for each in counts:
        for hop, reached in zip(each.routers, each.answer.answered, strict=False):
            shares[hop].append(reached < each.answer.sent)
    return {
        hop: REACHED_IF_LOST if all(lossy) else REACHED if any(lossy) else REACHED_IF_NOT
        for hop, lossy in shares.items()
    }


def is_dead(election: Election) -> bool:
    """Return whether most of the flows that it explains were dead until the window's end."""
    return sum(ballot.run > 0 for ballot in election.explains) > len(election.explains) / 2


def judge(
    counts: Iterable[Count],
    ballots: Sequence[Ballot],
    endpoints: Endpoints,
    topology: LearnedTopology,
) -> BorneOut | None:
    """Return what says of an election whether counts on ways that hosts found bear it out.

    They were sent after the window. Where what lost its probes was well by then, the counts acquit
    all that they passed, and what is left is whatever they did not. So they have to show something
    of it: lost or late packets, or that no way of two hosts crosses it any more; of one host, where
    its flows were dead until the end. None where no host found ways.
    """
    own = sorted((count for count in counts if count.own), key=lambda count: count.flow)
    if not own:
        return None
    shown = shown_at_fault(ballots)
    missing: dict[str, list[tuple[set[Component], set[Component]]]] = {}
    for flow, each_way in groupby(own, key=lambda count: count.flow):
        leaves = (topology.leaf_of(endpoints[each]) for each in (flow.source, flow.target))
        routes = topology.untraced_routes(*leaves)
        missing[endpoints[flow.source].host] = _missing(routes, [way.routers for way in each_way])

    def borne_out(election: Election, others: Collection[Component]) -> bool:
        best = next(iter(election.suspects), None)
        if best is None or best.component.kind not in FABRIC or best.component in shown:
            return True
        died = is_dead(election)
        # A way that crosses another one at fault as well may be missing for that one's sake.
        besides = {each for each in others if not _is_part(each, best.component)}
        hosts = [
            any(best.component in up and whole.isdisjoint(besides) for up, whole in ways)
            for ways in missing.values()
        ]
        return sum(hosts) >= (1 if died else HOSTS_PER_SUSPECT)

    return borne_out


def shown_at_fault(ballots: Sequence[Ballot]) -> set[Component]:
    """Return what packets were lost or late on that came through, or in time, one router before.

    All that is beyond shares these losses, and has shown nothing of itself.
    """
    shown = set[Component]()
    for _, way in groupby(sorted(ballots, key=_place), key=lambda each: _place(each)[:2]):
        before: Ballot | None = None
        for each in way:
            if each.lost and (before is None or not before.lost or _more(each, before)):
                shown |= each.components - (before.components if before else frozenset())
            before = each
    return shown


def _more(counted: Ballot, before: Ballot) -> bool:
    """Return whether more packets are lost than one router before, and not by chance."""
    (lost, sent), (lost_before, sent_before) = (
        (each.lost, each.sent) for each in (counted, before)
    )
    apart = log_likelihood(lost, sent) + log_likelihood(lost_before, sent_before)
    apart -= log_likelihood(lost + lost_before, sent + sent_before)
    return lost * sent_before > lost_before * sent and apart >= MORE_NATS


def _place(counted: Ballot) -> tuple[FlowId, tuple[int, int], int]:
    """Return the flow, the window and outer port, and how many routers on."""
    return cast("tuple[FlowId, tuple[int, int], int]", counted.key)


def _is_part(component: Component, whole: Component) -> bool:
    """Return whether a component is a link of a switch."""
    is_link = component.kind is Kind.LINK and whole.kind is Kind.SWITCH
    return is_link and whole.name in link_ends(component)


def _missing(
    routes: Sequence[Route], found: Sequence[Route]
) -> list[tuple[set[Component], set[Component]]]:
    """Return what is crossed on the way up, and in all, of each route that a host did not find.

    What it crossed on the way up of another route is not why.
    """
    crossed = {c for route in found for c in _crossed_to(route, len(route))}
    return [
        (_crossed_to(route, middle(route)) - crossed, _crossed_to(route, len(route)))
        for route in routes
        if route not in found
    ]


_Passed = dict[tuple[tuple[str, ...], str], tuple[int, int]]
"""Direction through a component, and who counted -> packets that came so far, packets lost."""


def cleared(
    suspects: Iterable[Suspect], counts: Iterable[Count], endpoints: Endpoints
) -> frozenset[Component]:
    """Return the suspects that lost too few of the counted packets to be at fault.

    One that lost several is not: it may come and go, and was away for the others.
    A link or switch counts as passed only where packets of two hosts passed it in two directions:
    a healthy direction does not clear the other, and one host alone clears nothing. The first and
    the last router of a path are passed by nothing that was counted.
    """
    passed: dict[Component, _Passed] = defaultdict(dict)
    for each in counts:
        answer, hops = each.answer, each.routers
        host = endpoints[each.flow.source].host
        reached = [answer.sent, *answer.answered[: len(hops)]]
        for n in range(2, len(reached)):
            before, here, there = hops[n - 3] if n > 2 else "", hops[n - 2], hops[n - 1]
            if not (here and there) or reached[n - 1] < answer.sent:
                continue  # what was lost before makes what comes after a matter of chance
            lost = reached[n - 1] - reached[n]
            _add(passed[link(here, there)], ((here, there), host), reached[n - 1], lost)
            if before:
                # A switch may lose what comes in as well as what goes out.
                lost = reached[n - 2] - reached[n]
                _add(passed[switch(here)], ((before, here, there), host), reached[n - 2], lost)
    return frozenset(
        suspect.component
        for suspect in suspects
        if _both_ways(ways := passed.get(suspect.component, {}))
        and (tally := [sum(each) for each in zip(*ways.values(), strict=True)])[1] < SEVERAL
        and _too_few(suspect, tally)
    )


def switches(counts: Iterable[Count]) -> frozenset[Component]:
    """Return the switches on ways that hosts found by themselves."""
    return frozenset(switch(hop) for each in counts if each.own for hop in each.routers)


def beyond(
    suspects: Iterable[Suspect], counts: Iterable[Count], gone: Collection[Component]
) -> frozenset[Component]:
    """Return suspected links of switches that are `gone`, where hosts looked for ways.

    No way crosses them, because none crosses the switch: packets go elsewhere. So nothing can
    acquit them, and what is lost now is not lost there.
    """
    if not any(each.own for each in counts):
        return frozenset()
    names = {each.name for each in gone}
    return frozenset(
        each.component
        for each in suspects
        if each.component.kind is Kind.LINK and not names.isdisjoint(link_ends(each.component))
    )


def whole(elections: Sequence[Election], counts: Iterable[Count]) -> tuple[Election, ...]:
    """Return the elections with those on several links of a switch made one on the switch.

    That is so where no way that hosts found crosses it: then it is what these links have in common.
    Fewer of its links are doubtful then: no packet told them from the switch.
    """
    counts = list(counts)
    seen = switches(counts)
    mine: dict[Component, list[Election]] = defaultdict(list)
    for each in elections:
        best = each.suspects[0].component if each.decided else None
        if best is not None and best.kind is Kind.LINK and any(count.own for count in counts):
            for end in link_ends(best):
                mine[switch(end)].append(each)
    left = list(elections)
    for component, parts in sorted(mine.items(), key=lambda item: (-len(item[1]), item[0])):
        if component in seen or len(parts) < LINKS_OF_ONE or any(p not in left for p in parts):
            continue
        left = [each for each in left if each not in parts]
        left.append(_together(component, parts))
    doubted = [part for end, parts in mine.items() if end not in seen for part in parts]
    return tuple(replace(each, doubtful=True) if each in doubted else each for each in left)


def _together(component: Component, parts: Sequence[Election]) -> Election:
    best = [each.suspects[0] for each in parts]
    suspect = Suspect(
        component, min(each.score for each in best), sum(each.lost for each in best),
        sum(each.crossed for each in best),
    )  # fmt: skip
    explains = tuple(dict.fromkeys(ballot for each in parts for ballot in each.explains))
    return replace(
        parts[0], suspects=(suspect,), explains=explains, pairs=sum(p.pairs for p in parts)
    )


def _both_ways(ways: _Passed) -> bool:
    return any(
        way != other and host != another for (way, host), (other, another) in combinations(ways, 2)
    )


def forwards(suspect: Suspect, counts: Iterable[Count], endpoints: Endpoints) -> bool:
    """Whether a switch forwarded packets of two hosts, losing too few for the loss it is named for.

    That clears nobody: the switch may lose what comes from elsewhere. But it is no reason to name
    it.
    """
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for each in counts:
        reached = each.answer.answered
        for n, name in enumerate(each.routers[:-1]):
            if switch(name) == suspect.component and n + 1 < min(len(reached), each.sure):
                mine = sums[endpoints[each.flow.source].host]
                mine[0] += reached[n]
                mine[1] += max(0, reached[n] - reached[n + 1])
    return len(sums) > 1 and all(_too_few(suspect, tally) for tally in sums.values())


def _add(ways: _Passed, way: tuple[tuple[str, ...], str], sent: int, lost: int) -> None:
    before = ways.get(way, (0, 0))
    ways[way] = (before[0] + sent, before[1] + lost)


def _too_few(suspect: Suspect, counted: Sequence[int]) -> bool:
    # Probes cross a part there and back, so a packet is lost at half the probes' rate or more.
    sent, lost = counted
    rate = suspect.lost / max(1, suspect.crossed) / 2
    chance = sum(math.comb(sent, n) * rate**n * (1 - rate) ** (sent - n) for n in range(lost + 1))
    return chance < CLEARED


def late_ballots(
    counts: Iterable[Count], endpoints: Endpoints, slow: Mapping[FlowId, Shift]
) -> list[Ballot]:
    """Return a ballot per slow flow and router: whether the slowness begins on the way there.

    A router's own time to answer is unknown. But a packet that a farther router answered early was
    not late at a nearer one. So routers of one flow are compared only with each other, and only a
    step of about the flow's shift counts.

    Where a host found its ways by itself, no flow took them for certain. There a router is compared
    with those as far away on the other ways.
    """
    counts = list(counts)
    made = _late_ways([each for each in counts if each.own], endpoints, slow)
    for each in counts:
        if each.own:
            continue
        hops, source = each.routers, endpoints[each.flow.source]
        late = _late(each.answer.rtt_ns[: len(hops)], slow[each.flow])
        near = _crossed_to(hops, 1) | {rnic(source.host, source.rnic)}
        told = {n: is_late for n, is_late in enumerate(late, start=1) if is_late is not None}
        if told and True not in told.values():
            # The slowness may lie before the first router or beyond the last. One ballot spares
            # everything between them.
            last = max(told)
            if crossed := _crossed_to(hops, last) - near:
                made.append(_ballot(each, last, SLOW_WEIGHT, 0, crossed))
            continue
        for n, is_late in told.items():
            crossed = near | _crossed_to(hops, n)
            made.append(_ballot(each, n, SLOW_WEIGHT, SLOW_WEIGHT * is_late, crossed))
    return made


def _late_ways(
    counts: Sequence[Count], endpoints: Endpoints, slow: Mapping[FlowId, Shift]
) -> list[Ballot]:
    """Return a ballot per way and router, for hosts to which some of their ways are late."""
    made: list[Ballot] = []
    by_flow = groupby(sorted(counts, key=lambda c: c.flow), key=lambda c: c.flow)
    shown_of = {flow: _shown(list(ways)) for flow, ways in by_flow}
    noise_ns = _noise([_rtts(ways, n) for each in shown_of.values() for n, ways in each.items()])
    for flow, shown in shown_of.items():
        source = endpoints[flow.source]
        ballots: list[Ballot] = []
        for n, ways in shown.items():
            beyond = _beyond(_rtts(ways, n), slow[flow], noise_ns)
            for way, is_late in zip(ways, beyond, strict=False):
                if is_late is None:
                    continue
                crossed = _crossed_to(way.routers, n) | {rnic(source.host, source.rnic)}
                # Whatever the share of slow flows, all packets are late while a queue stands.
                sent = 1 if is_late else SLOW_WEIGHT
                ballots.append(_ballot(way, n, sent, int(is_late), crossed))
        if any(ballot.lost for ballot in ballots):  # else it may have passed by before they counted
            made += ballots
    return made


def _shown(ways: Sequence[Count]) -> dict[int, list[Count]]:
    """Return the ways whose n-th router answered, by n from 1 on."""
    length = max(len(way.answer.rtt_ns) for way in ways)
    return {
        n: [w for w in ways if len(w.answer.rtt_ns) >= n and w.answer.rtt_ns[n - 1]]
        for n in range(1, 1 + length)
    }


def _rtts(ways: Sequence[Count], n: int) -> list[int]:
    return [way.answer.rtt_ns[n - 1] for way in ways]


def _noise(alike: Sequence[Sequence[int]]) -> float:
    """Return the standard deviation of round trips that should be alike; few of each are known."""
    off: list[int] = []
    for rtts_ns in alike:
        if len(rtts_ns) >= LEAST_WAYS:
            usual_ns = median_low(rtts_ns)
            off += sorted(abs(each - usual_ns) for each in rtts_ns)[1:]  # the first is the median
    return MAD_SCALE * median_low(off) if off else 0.0


def _beyond(rtts_ns: Sequence[int], shift: Shift, noise_ns: float) -> list[bool | None]:
    """Return which of the round trips are later than the others by about a flow's shift.

    Where all that are alike differ by more than that, only what is later by far is late, and of the
    others nothing is known: a queue that comes and goes is longer than flows' shift. The list is
    empty where these are too few.
    """
    if len(rtts_ns) < LEAST_WAYS:
        return []
    usual_ns = median_low(rtts_ns)
    half_ns, far_ns = (shift[1] - shift[0]) / 2, NOISES * noise_ns
    late = [rtt_ns - usual_ns > max(half_ns, far_ns) for rtt_ns in rtts_ns]
    return [is_late if is_late or half_ns >= far_ns else None for is_late in late]


def _late(rtts_ns: Sequence[int], shift: Shift) -> list[bool | None]:
    """Return whether packets were late at each router; None where the router does not show it.

    The list is empty where no router shows it. A round trip of 0 means that a router did not
    answer.
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
        # A router that is slow to answer gives an upper bound of the way there, and no more. A
        # queue that comes and goes may be shorter now: what is late by less is not in time.
        None
        if not rtt
        or (beyond > half_ns and rtt - way > half_ns)
        or LEAST_SHIFT_NS < beyond <= half_ns
        else beyond > half_ns
        for rtt, way, beyond in zip(rtts_ns, way_ns, beyond_ns, strict=True)
    ]


def _ballot(
    count: Count,
    n: int,
    sent: int,
    lost: int,
    crossed: Collection[Component],
    maybe: Mapping[Component, float] = MappingProxyType({}),
    unseen: float = 0.0,
) -> Ballot:
    pair = (count.flow.source, count.flow.target)
    # A router's answer comes back the way that the packet went.
    routed = frozenset(each for each in crossed if each.kind in FABRIC)
    ends = [link_ends(each) for each in routed if each.kind is Kind.LINK]
    there = frozenset[Part]((*routed, *ends))
    back = frozenset[Part]((*routed, *((b, a) for a, b in ends)))
    legs: list[Leg] = [((there, 1.0),), ((back, 1.0),)]
    legs += [
        ((frozenset[Part]({component}), share), (frozenset[Part](), 1.0 - share))
        for component, share in maybe.items()
    ]
    way = (count.flow, (count.window_ns, count.answer.outer_port))
    return Ballot(
        pair, sent, lost, frozenset(crossed), (*way, n), maybe, unseen, tuple(legs), way=way
    )


def _routers(flow: FlowId, answer: PathAnswer, topology: LearnedTopology) -> Route:
    # Routers that answered now go before those of the last complete path: after a failure flows
    # take other paths.
    known = topology.hops(flow, reply=False) or ()
    now = tuple(map(topology.name, answer.hops))
    return tuple(a or b for a, b in zip_longest(now[: len(known)], known, fillvalue=""))


def counted(counts: Iterable[Count]) -> list[Evidence]:
    """Return the counts as evidence, those that lost most first."""
    shown = sorted((each for each in counts if each.answer.sent), key=_least_share)
    return [
        Evidence(
            EvidenceKind.COUNTED,
            {
                "source": str(each.flow.source),
                "sent": each.answer.sent,
                "routers": _beside(each.routers, each.answer.answered),
            },
        )
        for each in shown[:COUNTS_QUOTED]
    ]


def _least_share(count: Count) -> float:
    return min(count.answer.answered, default=0) / count.answer.sent


def timed(counts: Iterable[Count], slow: Mapping[FlowId, Shift]) -> list[Evidence]:
    """Return the routers' round trips as evidence, the latest first."""
    shown = sorted((c for c in counts if any(c.answer.rtt_ns)), key=lambda c: -max(c.answer.rtt_ns))
    return [
        Evidence(
            EvidenceKind.TIMED,
            {
                "source": str(each.flow.source),
                "routers": _beside(each.routers, each.answer.rtt_ns),
                "before_ns": slow[each.flow][0],
                "now_ns": slow[each.flow][1],
            },
        )
        for each in shown[:COUNTS_QUOTED]
    ]


def _beside(hops: Sequence[str], numbers: Sequence[int]) -> list[list[str | int]]:
    return [[hop, number] for hop, number in zip(hops, numbers, strict=False)]


def _crossed_to(hops: Sequence[str], count: int) -> set[Component]:
    way = hops[:count]
    return {switch(name) for name in way if name} | {
        link(a, b) for a, b in pairwise(way) if a and b
    }
