# SPDX-License-Identifier: Apache-2.0
"""Whom counted packets clear, and which switch several of its links stand for."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from analyzer.localize.case import Endpoints
from analyzer.localize.voting.counting.counts import Count
from analyzer.localize.voting.counting.losses import SEVERAL
from analyzer.localize.voting.election import Election
from netagent.model.path import Component, Kind, link, link_ends, switch
from netagent.model.verdict import Suspect

CLEARED = 0.01
"""Probability below which a suspect's counted losses are too few for its guilt, which clears it.
Chosen: one suspect in a hundred is cleared wrongly."""
LINKS_OF_ONE = 3
"""Links of a switch named at once from which it is the switch that no way crosses. Chosen: two may
fail by themselves."""
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
