# SPDX-License-Identifier: Apache-2.0
"""Whether counts bear a suspicion out, or only leave it over."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import groupby
from typing import cast

from analyzer.localize.case import Endpoints
from analyzer.localize.incidence import Route
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.voting.counting.choosing import HOSTS_PER_SUSPECT
from analyzer.localize.voting.counting.counts import FABRIC, Count, crossed_to, meet, middle
from analyzer.localize.voting.counting.losses import LIMITED, SEVERAL
from analyzer.localize.voting.election import Ballot, BorneOut, Election, is_dead, log_likelihood
from netagent.model.ids import FlowId
from netagent.model.path import Component, Kind, link, link_ends, switch

MORE_NATS = 2.0
"""Nats from which a router has lost more than the one before it. Chosen: 3 of 50 beside none."""


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


def turned(
    counts: Iterable[Count], topology: LearnedTopology, standing: Collection[Component]
) -> frozenset[Component]:
    """Return switches that send flows another way than their latest traces, and their links.

    They have moved other flows, too, and what these lost is charged to ways that they left. A link
    that flows left for what they lost on it is none of them, unless a link beside it is at fault.
    """
    names, left = set[str](), set[Component]()
    for count in counts:
        known = topology.hops(count.flow, reply=False) or ()
        now = tuple(map(topology.name, count.answer.hops))
        if count.own:
            continue
        for a, b, c, d in zip(known, now, known[1:], now[1:], strict=False):
            if a == b and c and d and c != d:
                names.add(a)
                left.add(link(a, c))
    links = {link(*ends) for ends in topology.links() if not names.isdisjoint(ends)}
    alone = {each for each in left if not any(meet(each, other) for other in standing)}
    return frozenset({*map(switch, names), *links} - alone)


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


def contradicted(
    elections: Sequence[Election],
    counts: Iterable[Count],
    ballots: Sequence[Ballot],
    standing: Collection[Component],
) -> tuple[Election, ...]:
    """Return elections, of which those are doubtful that what was counted elsewhere speaks against.

    Where most packets of a host were lost between two routers, and neither those nor their link are
    named or known, those are on parts that no count accuses: it is not told yet what the probes
    met. Where several were, and not most, another link of one of these routers is doubtful: it may
    be that router.
    """
    named = {each.suspects[0].component for each in elections if each.decided}
    left_open = _left_open(counts, {*named, *standing})
    if not left_open:
        return tuple(elections)
    shown = shown_at_fault(ballots)
    shown |= {switch(end) for each in shown if each.kind is Kind.LINK for end in link_ends(each)}
    kept = {*shown, *standing}

    def is_doubtful(best: Component) -> bool:
        some = {each for each, is_most in left_open.items() if not is_most}
        if best not in standing and any(meet(best, each) for each in some):
            return True
        return len(some) < len(left_open) and best.kind in FABRIC and best not in kept

    return tuple(
        replace(each, doubtful=True)
        if each.decided and is_doubtful(each.suspects[0].component)
        else each
        for each in elections
    )


def ruled_out(
    elections: Sequence[Election], before: Sequence[Election], shown: AbstractSet[Component]
) -> tuple[Election, ...]:
    """Return elections, of which those on what probes ruled out and no count shows are doubtful.

    Where a link drops some flows and not others, those of others acquit it, and leave who is
    farther from the hosts that counted.
    """
    left_open = {component for each in before for component in each.tied}
    named = {each.suspects[0].component for each in before if each.decided}
    return tuple(
        replace(each, doubtful=True)
        if each.decided and each.suspects[0].component not in left_open | named | shown
        else each
        for each in elections
    )


def links_first(
    elections: Sequence[Election], before: Sequence[Election], lossy: AbstractSet[Component]
) -> tuple[Election, ...]:
    """Return elections, of which those on a switch that probes ruled out are doubtful.

    That is where they left one of its links open, and packets were not lost on two of them. Of the
    first and the last router of a way counts tell least: what acquits a link while it is well does
    not acquit them.
    """
    left_open = {component for each in before for component in each.tied}
    ends = [set(link_ends(each)) for each in left_open if each.kind is Kind.LINK]
    shown = Counter(end for each in lossy if each.kind is Kind.LINK for end in link_ends(each))
    return tuple(
        replace(each, doubtful=True)
        if each.decided
        and (best := each.suspects[0].component).kind is Kind.SWITCH
        and best not in left_open
        and any(best.name in each_ends for each_ends in ends)
        and shown[best.name] < 2
        else each
        for each in elections
    )


def _left_open(counts: Iterable[Count], known: Collection[Component]) -> dict[Component, bool]:
    """Return links where several packets were lost, though nothing there is known to be at fault.

    For each, whether these were most. Where a router answers next to nothing, it may limit its
    answers.
    """
    found: dict[Component, bool] = {}
    for each in counts:
        sent, reached = each.answer.sent, each.answer.answered
        for n in range(1, min(len(reached), len(each.routers), each.sure)):
            here, there = each.routers[n - 1 : n + 1]
            limits = 0 < reached[n] < LIMITED * sent
            lost = reached[n - 1] - reached[n]
            if not (here and there) or limits or lost < SEVERAL:
                continue
            between = link(here, there)
            if {between, switch(here), switch(there)}.isdisjoint(known):
                is_most = 2 * reached[n] < reached[n - 1] and reached[n - 1] >= LIMITED * sent
                found[between] = is_most or found.get(between, False)
    return found


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
    crossed = {c for route in found for c in crossed_to(route, len(route))}
    return [
        (crossed_to(route, middle(route)) - crossed, crossed_to(route, len(route)))
        for route in routes
        if route not in found
    ]
