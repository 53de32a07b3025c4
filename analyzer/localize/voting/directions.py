# SPDX-License-Identifier: Apache-2.0
"""In which direction a link loses: each direction has its own transmitter, fibre and receiver.

Probes of one flow cross a link from A to B, their replies from B to A, or both, or only one of them
crosses it at all: there and back are hashed apart. So of the probes that cross it, some cross it
from A to B only and some from B to A only, and a rate over all of them mixes both. Here

    from A to B only      are lost with probability p
    from B to A only      are lost with probability q, that of probes that do not cross the link

is compared with "both are lost with the same probability". Probes that cross the link both ways
show nothing about the direction.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from analyzer.localize.incidence import Direction, Route
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.traced import Memo
from analyzer.localize.voting.election import (
    MIN_EVIDENCE,
    MIN_LOST,
    Ballot,
    log_likelihood,
    log_likelihood_at,
    loss_rate,
)
from analyzer.localize.voting.fine import Fine
from netagent.model.ids import FlowId
from netagent.model.path import Component, link


@dataclass(frozen=True, slots=True)
class OneWay:
    """A link that loses in one direction, with the probes that say so."""

    source: str
    target: str
    """The link loses from router `source` to router `target`."""

    lost: int
    crossed: int
    """Probes that cross the link in that direction, themselves or by their replies."""

    back_lost: int
    back_crossed: int
    """Probes that cross the link in the other direction only."""

    @property
    def rate(self) -> float:
        """Return the share lost of the probes that cross the link in the lossy direction."""
        return self.lost / max(1, self.crossed)

    @property
    def back_rate(self) -> float:
        """Return the share lost of the probes that cross the link in the other direction only."""
        return self.back_lost / max(1, self.back_crossed)


@dataclass(frozen=True, slots=True)
class _Count:
    lost: int = 0
    sent: int = 0

    def __add__(self, other: Self) -> "_Count":
        return _Count(self.lost + other.lost, self.sent + other.sent)


def one_way(
    component: Component,
    votes: Iterable[tuple[Ballot, FlowId]],
    topology: LearnedTopology,
    fine: Sequence[Fine] = (),
) -> OneWay | None:
    """Return the direction in which the link `component` loses, if only one does.

    `votes` are the flows of a poll with their ballots, `fine` all others. Return None where the
    link loses both ways, or where too few probes cross it in one direction only: MIN_EVIDENCE must
    be reached.
    """
    counts: dict[frozenset[Direction], _Count] = {}
    across = Memo[Route, frozenset[Direction]](lambda route: _directions(component, route))
    for ballot, flow in votes:
        if not ballot.whole:
            continue
        go, come = (topology.hops(flow, reply=reply) or () for reply in (False, True))
        ways = across[go] | across[come]
        if bool(ways) == (component in ballot.components):
            counts[ways] = counts.get(ways, _Count()) + _Count(ballot.lost, ballot.sent)
    for each in fine:
        for ways, sent in each.directions(component).items():
            counts[ways] = counts.get(ways, _Count()) + _Count(0, sent)
    elsewhere = counts.pop(frozenset(), _Count())
    both = sum((n for ways, n in counts.items() if len(ways) > 1), start=_Count())
    single = {way: n for ways, n in counts.items() if len(ways) == 1 for way in ways}
    for (source, target), lossy in single.items():
        back = single.get((target, source))
        if back is not None and _is_apart(lossy, back, elsewhere):
            crossed = lossy + both
            return OneWay(source, target, crossed.lost, crossed.sent, back.lost, back.sent)
    return None


def _directions(component: Component, route: Route) -> frozenset[Direction]:
    """Return in which directions a route crosses a link."""
    return frozenset((a, b) for a, b in pairwise(route) if a and b and link(a, b) == component)


def _is_apart(lossy: _Count, back: _Count, elsewhere: _Count) -> bool:
    if lossy.lost < MIN_LOST or lossy.lost * back.sent <= back.lost * lossy.sent:
        return False
    spared = log_likelihood_at(back.lost, back.sent, loss_rate(elsewhere.lost, elsewhere.sent))
    apart = log_likelihood(lossy.lost, lossy.sent) + spared
    alike = log_likelihood(lossy.lost + back.lost, lossy.sent + back.sent)
    return apart - alike >= MIN_EVIDENCE
