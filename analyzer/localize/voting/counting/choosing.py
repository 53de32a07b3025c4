# SPDX-License-Identifier: Apache-2.0
"""Which ties are worth counting packets for, and on which flows."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from analyzer.detect.flows import FlowView, lossy
from analyzer.localize.case import Endpoints
from analyzer.localize.incidence import Route
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.traced import Memo
from analyzer.localize.voting.counting.counts import FABRIC, Wanted, crossed_to, meet, middle
from analyzer.localize.voting.election import DEAD_RATE, Election, is_dead
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, Kind, link_ends, switch

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
OVER_MS = 2_500
"""Milliseconds over which packets are counted on ways where flows lost a part of their probes.
Chosen: ports flap every few seconds, and the answer is there within a window."""
MANY_LOST = 64
"""Lost probes from which a vote that is decided needs no counts. Chosen: a stray loss elsewhere
then weighs little."""
UNDERLAY = {Kind.SWITCH, Kind.LINK, Kind.RNIC}
Leaves = tuple[str | None, str | None]


class _Routed(NamedTuple):
    """A flow whose way there is known."""

    flow: FlowId
    hops: Route
    """Names of its routers."""
    way: Route
    """The first two of them."""
    host: Route
    """Its leaf and its host, which is no way."""


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
    # What a known fault loses may take other ways by now: another link of its switch looks guilty.
    is_beside = not _unseen(election) and any(meet(best.component, each) for each in standing)
    few = is_beside or (not dead and (best.lost < MANY_LOST or is_whole or len(election.tied) > 1))
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


def choose(
    elections: Iterable[Election],
    flows: Sequence[FlowView],
    endpoints: Endpoints,
    topology: LearnedTopology,
    *,
    over_ms: int = 0,
) -> list[Wanted]:
    """Return losing flows to count on, for all ties together.

    On ways that hosts find, packets are spread over `over_ms` where flows lost a part of theirs.
    """
    chosen: dict[Wanted, None] = {}
    elections = tuple(elections)
    if not elections:
        return []
    losing = sorted(lossy(flows), key=lambda v: (-v.lost, v.flow.order))
    routes = ((view.flow, topology.hops(view.flow, reply=False)) for view in losing)
    routed = [
        _Routed(flow, hops, hops[:2], (hops[0], "", endpoints[flow.source].host))
        for flow, hops in routes
        if hops
    ]
    routed.sort(key=lambda each: len(each.hops) == 1)
    crossed = Memo[Route, frozenset[Component]](topology.on_route)
    between = Memo[Leaves, Sequence[Route]](lambda leaves: topology.untraced_routes(*leaves))
    for election in elections:
        mine = _on_flows(election, routed, crossed)
        if not mine:
            spread_ms = 0 if is_dead(election) else over_ms
            ways = _on_ways(election, (losing, flows), endpoints, topology, between, crossed)
            mine = [replace(each, over_ms=spread_ms) for each in ways]
        chosen |= dict.fromkeys(mine)
    return list(chosen)[:MOST_ASKED]


def _on_flows(
    election: Election,
    routed: Sequence[_Routed],
    crossed: Mapping[Route, frozenset[Component]],
) -> list[Wanted]:
    """Return flows whose ways are known, from each side of the suspects, on different ways.

    As far as there are, they are of different hosts, as what one host counts acquits nobody, and go
    beyond their first router: else nothing is counted that it forwards.
    """
    tied = set(election.tied)
    near = Memo[Route, bool](lambda hops: not tied.isdisjoint(crossed[hops]))
    chosen: dict[str, list[FlowId]] = {}
    sources: set[EndpointId] = set()
    seen: set[tuple[str, ...]] = set()
    """Ways, and hosts at their leaf, that count already."""
    for repeats in (0, 1, 2):
        for flow, hops, way, host in routed:
            if (host in seen and repeats < 2) or (way in seen and not repeats):
                continue
            if flow.source in sources:
                continue
            mine = chosen.setdefault(hops[0], [])
            if len(mine) < FLOWS_PER_LEAF and near[hops]:
                mine.append(flow)
                sources.add(flow.source)
                seen |= {way, host}
        # Of the others it only counts which leaf stands first.
        routed = [each for each in routed if near[each.hops]]
    return [Wanted(flow) for mine in chosen.values() for flow in mine][:MAX_FLOWS]


def _on_ways(
    election: Election,
    flows: tuple[Sequence[FlowView], Iterable[FlowView]],
    endpoints: Endpoints,
    topology: LearnedTopology,
    untraced: Mapping[Leaves, Sequence[Route]],
    crossed: Mapping[Route, frozenset[Component]],
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
    told = Memo[Route, AbstractSet[Component]](lambda route: _told(route, tied, crossed))
    between: dict[Leaves, tuple[set[Component], int]] = {}

    def survey(views: Iterable[FlowView], wanted: Collection[Component], hosts_each: int) -> None:
        def is_enough() -> bool:
            return all(covered[c] >= hosts_each for c in wanted) or len(chosen) == MAX_SURVEYS

        for view in () if is_enough() else views:
            source, target = (endpoints[each] for each in (view.flow.source, view.flow.target))
            if not (source.bridge and target.bridge):
                continue  # what has no outer header is sent by nobody but the container
            leaves = topology.leaf_of(source), topology.leaf_of(target)
            if leaves not in between:
                routes = untraced[leaves]
                between[leaves] = {c for route in routes for c in told[route]}, len(routes)
            near, ways = between[leaves]
            if not near or source.host in hosts:
                continue
            if any(covered[c] < hosts_each for c in near.intersection(wanted)):
                covered.update(near)
                hosts.add(source.host)
                chosen.append(Wanted(view.flow, ways))
                if is_enough():
                    return

    survey(losing, tied, HOSTS_PER_SUSPECT)
    survey(every, ends, 1)
    return chosen


def _told(
    route: Route, tied: AbstractSet[Component], crossed: Mapping[Route, frozenset[Component]]
) -> AbstractSet[Component]:
    """Return the suspects of which packets that come up a route tell.

    Of a switch they tell nothing where a suspected link is on the way as well: both may be why no
    way leads there.
    """
    whole = crossed[route] & tied
    if not whole:
        return whole
    up = crossed_to(route, middle(route)) & tied
    is_linked = any(each.kind is Kind.LINK for each in whole)
    return {each for each in up if each.kind is not Kind.SWITCH or not is_linked}
