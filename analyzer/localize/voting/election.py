# SPDX-License-Identifier: Apache-2.0
"""Votes across components: which of them, together, explain the failing probes, and how surely.

Algorithm 1 of SkeletonHunter counts a vote per link for each failing path and takes the maximum;
alone, that blames what most paths cross. Here the likelihood of all probes decides, lost and
answered ones, over any number of faults at once (`analyzer.localize.tomography`). Healthy crossings
speak against a component, so a link beats its switch when only that link loses, and the switch
beats its links when all of them do. A link loses in one direction or in both; what only one pair
loses is that pair's until a second one shares it; and what one flow loses may have a reason of the
flow's own. A component may lose three times what all others do and still be healthy, so a loss that
is the same everywhere accuses nobody.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from analyzer.localize.incidence import Direction, Part
from analyzer.localize.tomography.observations import Arrived, Builder
from analyzer.localize.tomography.search import Blamed, Found, Settings, search
from analyzer.localize.topology import Leg
from analyzer.localize.voting.fine import Fine
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, link, link_ends
from netagent.model.verdict import Suspect

BACKGROUND = 1e-5
"""Share of the probes that each component loses for no reason worth an incident, at least. Chosen:
ten of them make one in ten thousand; higher hides faults that lose little, lower makes an incident
of stray losses."""
MIN_EVIDENCE = 8.0
"""Nats by which a fault must explain more than all others do without it. Chosen: odds of 3,000 to
1, since hundreds of components are candidates in each window."""
SPREAD = 3.0
"""Times what all others lose that a component may lose and be healthy. Chosen: healthy links differ
by less, and a fault worth an incident by more."""
OWN_REASON = 1e-3
"""Probability that a flow lost its probes for a reason of its own, such as a wrong flow entry.
Chosen: no single flow is then worth MIN_EVIDENCE."""
MIN_LOST = 4
"""Least lost probes (or slow flows) that a suspect must account for. Chosen: fewer are stray
losses; more delay the verdict in a small fabric."""
MIN_PAIRS = 2
"""Least failing pairs that share a suspect: SkeletonHunter, Algorithm 1, asks for two failing paths
that share the link."""
MIN_RATE = 0.001
"""Least share of the probes across a suspect that are lost. Chosen: RDMA is slow from one packet in
a thousand on; less is not worth an incident."""
MIN_CONFIDENCE = 0.8
"""Least posterior of a suspect that is named. Chosen: below it the verdict is "insufficient
evidence", which costs an operator less than a wrong name."""
TOGETHER = 4
"""Probes that are lost together where something dies just before a window ends, and others lose
some, too. Chosen: the pings of a visit."""
ALONE_RATE = 0.03
"""Share lost across a suspect from which it stands out where others of its kind lose nothing at
all, however few probes cross those. Chosen: stray losses are fewer; where few probes are lost, that
others lost none may be chance."""
LN_PAIR = 0.7
"""Nats for what a single pair loses. Chosen: small, so that it only decides between a pair and what
nobody else crosses."""
LN_PRIOR = {
    # Where two kinds are crossed by exactly the same probes, the narrower one is named. An
    # endpoint stands for its container only when the container's other endpoints are fine.
    Kind.LINK: 0.0,
    Kind.RNIC: 0.0,
    Kind.SWITCH: -0.7,
    Kind.CONTAINER: -0.7,
    Kind.ENDPOINT: -1.4,
    Kind.HOST: -2.0,
}
"""Kind -> nats added to a component's gain. Chosen: small against MIN_EVIDENCE, so that they only
decide between components that the same probes cross."""
TIE = 0.05
"""Share of the best suspect's posterior from which another suspect is not ruled out. Chosen: odds
of 20 to 1."""
COUNTABLE = 1e-4
"""Share of the best suspect's posterior from which counts per router may still raise a suspect.
Chosen: counts are strong evidence, but must not raise what the probes exclude."""
MOST_SETS = 64
"""Most sets of components that counted packets choose from. Chosen: they are met with in the order
of their probability."""
LN_STANDING = 5.0
"""Nats added to the gain of a component with an open incident. Chosen: odds of 150 to 1 keep one
fault from changing its name between windows, and strong evidence still overrules them."""
LN_GONE = 100.0
"""Nats added to the gain of a switch that was named, and that no way which hosts find crosses any
more. Chosen: where nobody saw the ways, all switches of a tier are alike to the probes, and it must
not change its name with another one for what a second fault loses."""
PAIR_SCORE = 0.5
"""Posterior that suspects share where only a pair is sure to be at fault. Chosen: below that of any
name."""
LEAST_RATE = 1e-4
"""Least share of lost probes where rates are compared. Chosen: strays occur everywhere."""
MOST_FAULTS = 12
"""Most faults of one vote. Chosen: more at once are a disaster that needs no list, and the time
that a vote takes grows with the square of their number."""
OWN = frozenset({Kind.RNIC, Kind.ENDPOINT, Kind.CONTAINER, Kind.HOST})
"""Kinds of what packets cross on an endpoint's own host."""
SIBLINGS = 6.0
"""Nats by which a switch is preferred to several of its links. Chosen: they fail together because
the switch does, which does not lose evenly where it dies within a window."""
SUSPECTS = 8
"""Most suspects of an election. Chosen: what an operator reads."""
SETTINGS = Settings(
    cost=MIN_EVIDENCE, spread=SPREAD, background=BACKGROUND, most=MOST_FAULTS, siblings=SIBLINGS
)

DEAD_RATE = 0.9
"""Share lost across a component from which it counts as dead. Chosen: the vote on a dead component
needs no counts to be sure."""
FIT_ROUNDS = 40
"""Rounds in which a suspect's rate and the probes that crossed it are fitted to each other, where
ways are open. Chosen: where each flow has one probe, it takes that many."""
MOST_RATE = 0.999
"""Largest share lost that is assumed meanwhile. Chosen: nothing is divided by zero."""

PAIR = "pair"
_Pair = tuple[Any, Any]
_Key = Component | Direction | tuple[str, _Pair]
"""What is voted on: a component, a link in one direction, or what only a pair crosses."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """One flow's probes, and every component that they and their replies crossed."""

    pair: _Pair
    """Unordered pair of endpoints, as a sorted tuple."""
    sent: int
    lost: int
    components: frozenset[Component]
    key: object = None
    """Distinguishes ballots with the same content."""
    maybe: Mapping[Component, float] = field(default_factory=dict, compare=False)
    """Components that the probes may have crossed -> probability that they did."""
    unseen: float = 0.0
    """Probability that the probes crossed components of which no trace is known."""
    legs: tuple[Leg, ...] = field(default=(), compare=False)
    """The ways there and back, with their alternatives; a component on neither is crossed once."""
    ordered: _Pair | None = None
    """The pair as it was probed; None where that is `pair`."""
    way: object = field(default=None, compare=False, kw_only=True)
    """Which of its pair's ways packets were counted on; None of probes."""
    last: int = field(default=0, compare=False, kw_only=True)
    """Losses in a row at the end that count as one event."""
    run: int = field(default=0, compare=False, kw_only=True)
    """Losses in a row at the end where they mean that the flow died (`FlowView.unconnected`: three
    within four seconds), else 0."""
    times: int = field(default=1, kw_only=True)
    """How many flows it stands for."""

    def __hash__(self) -> int:
        # What mostly differs: that of all fields takes ten times as long, for each of a vote.
        return hash((self.pair if self.key is None else self.key, self.sent, self.lost))

    @property
    def whole(self) -> bool:
        """Whether everything that the probes and their replies crossed is known."""
        return not self.maybe and not self.unseen


@dataclass(frozen=True)
class Election:
    """A fault among some losses; `explains` are the ballots it accounts for."""

    suspects: tuple[Suspect, ...]
    """Best first; `score` is the posterior. Empty where only a pair is suspected."""
    explains: tuple[Ballot, ...]
    pairs: int
    """Failing pairs that cross the best suspect."""
    evidence: float
    """Nats by which the best suspect explains more than all others without it."""
    beside: tuple[int, int] = (0, 0)
    """Probes lost and sent that cross other components of the best suspect's kind, and neither it
    nor any other that is at fault."""
    doubtful: bool = False
    """Whether counted packets leave only this suspect, and show nothing of it: it may have been
    well when they were sent, as the others were."""

    @property
    def tied(self) -> tuple[Component, ...]:
        """Return the suspects that these ballots cannot rule out, the best one included."""
        best = max((suspect.score for suspect in self.suspects), default=0.0)
        return tuple(s.component for s in self.suspects if s.score > TIE * best)

    @cached_property
    def shared(self) -> bool:
        """Whether it is certain that several failing pairs share a fault, wherever it is."""
        best = next(iter(self.suspects), None)
        return (
            best is not None
            and best.lost >= MIN_LOST
            and best.lost >= MIN_RATE * best.crossed
            and self.pairs >= MIN_PAIRS
            and self.evidence >= MIN_EVIDENCE
            and all(
                best.component in b.components or best.component in b.maybe for b in self.explains
            )
        )

    @property
    def stands_out(self) -> bool:
        """Whether the best suspect loses more than others of its kind, and not by chance.

        Few losses may be the same on all of them, and seem to be on the one that most probes cross.
        """
        best, (lost, sent) = self.suspects[0], self.beside
        if not sent or (not lost and best.lost >= ALONE_RATE * best.crossed):
            return True
        if best.lost * sent <= lost * best.crossed:
            return False
        apart = log_likelihood(best.lost, best.crossed) + log_likelihood(lost, sent)
        apart -= log_likelihood(best.lost + lost, best.crossed + sent)
        return apart >= MIN_EVIDENCE * (TOGETHER if lost else 1)

    @property
    def dead(self) -> bool:
        """Whether the best suspect is named, and loses nearly all that crosses it."""
        return self.decided and self.suspects[0].lost >= DEAD_RATE * self.suspects[0].crossed

    @property
    def alike(self) -> tuple[Suspect, ...]:
        """Return the best suspect and those around it that all the same probes cross.

        So it is with an RNIC and the only endpoint on it, or a host and the only container on it:
        no probe tells them apart, and who mends one looks at the other.
        """
        best, same = self.suspects[0], dict[Kind, Suspect]()
        for each in self.suspects:
            kind = each.component.kind
            if kind in OWN and (each.lost, each.crossed) == (best.lost, best.crossed):
                same.setdefault(kind, each)  # another of the kind is at the other end, or at fault
        return tuple(same.values()) if best.component.kind in same else (best,)

    @property
    def confidence(self) -> float:
        """Return the probability that it is the best suspect, or one alike."""
        return min(1.0, sum(s.score for s in self.alike)) if self.suspects else 0.0

    @property
    def decided(self) -> bool:
        """Whether the best suspect may be named."""
        sure = self.confidence >= MIN_CONFIDENCE and not self.doubtful
        return self.shared and sure and self.stands_out


def is_dead(election: Election) -> bool:
    """Return whether most of the flows that it explains were dead until the window's end."""
    return sum(ballot.run > 0 for ballot in election.explains) > len(election.explains) / 2


BorneOut = Callable[[Election, Collection[Component]], bool]
"""Says whether counted packets bear out an election beside others on some components."""


def elect(
    ballots: Sequence[Ballot],
    *,
    standing: Collection[Component] = (),
    counted: Sequence[Ballot] = (),
    cleared: AbstractSet[Component] = frozenset(),
) -> list[Election]:
    """Return what is at fault by the losses in `ballots`, best first: `Vote`, and asked again."""
    vote = Vote(ballots, standing)
    return list(vote.again(counted, cleared) if counted or cleared else vote.elections)


class Vote:
    """What is at fault by the losses in ballots; it can be asked again with counted packets."""

    def __init__(
        self,
        ballots: Sequence[Ballot],
        standing: Collection[Component] = (),
        fine: Sequence[Fine] = (),
    ) -> None:
        self._ballots, self._standing = list(ballots), standing
        self._gone = frozenset[Component]()
        self._fine = fine
        """Flows that lost nothing and have no ballot, of each window."""
        self._fine_counted = False
        self._counted: Sequence[Ballot] = ()
        """Packets that were counted on each way."""
        self._builder = Builder[_Key]()
        self._ways: dict[Leg, int] = {}
        """Alternatives -> row of their leg."""
        self._routed: dict[tuple[Leg, ...], frozenset[Part]] = {}
        """Ways there and back -> all that may be crossed on them."""
        self._own: dict[tuple[object, frozenset[Component]], int] = {}
        """Ordered pair, and what else its probes cross -> row of their leg."""
        self._lengths: dict[tuple[tuple[Leg, ...], Kind], int] = {}
        """Ways there and back -> components of a kind on the longer one."""
        self.elections: tuple[Election, ...] = ()
        """Faults, decided or not, best first."""
        self._sets: list[frozenset[_Key]] = []
        """What may be at fault together: what counted packets choose from."""
        if any(ballot.lost for ballot in self._ballots):
            found = self._search(self._ballots)
            self.elections = self._elections(found)
            self._sets = _near(found)

    def again(
        self,
        counted: Sequence[Ballot],
        cleared: AbstractSet[Component],
        *,
        freely: bool = False,
        gone: Collection[Component] = (),
    ) -> tuple[Election, ...]:
        """Return the faults by the ballots and `counted` packets, too. It is asked once.

        Those were sent part of the way only, so that they cross one suspect and not another. They
        show which suspects are at fault, not whether any are: so they choose from what the probes
        left open. Components that they `cleared` are no suspects.

        Where the probes' ways are not known, they leave too much open to be listed: then, `freely`,
        probes and counts together decide. Switches that are `gone` are at fault already.
        """
        if not self.elections:
            return ()
        self._gone = frozenset(gone)
        self._counted = counted
        if freely:
            return self._elections(self._search(counted, cleared))
        kept = [
            each
            for each in dict.fromkeys((*self._sets, *self._instead()))
            if cleared.isdisjoint(map(_component, each))
        ]
        return self._elections(self._search(counted, cleared, kept))

    def _instead(self) -> Iterator[frozenset[_Key]]:
        """Yield what may be at fault where none of the switches is that the probes suspect most.

        A switch may stand for several parts, and each of these for others that the same probes
        cross: as the link of a spine for the one that follows.
        """
        best = [each.suspects[0].component for each in self.elections if each.suspects]
        switches = [c for c in best if c.kind is Kind.SWITCH and c not in self._standing]
        for component in switches[:MOST_INSTEAD]:
            yield from _near(self._search((), {component}))

    def _search(
        self,
        more: Sequence[Ballot],
        without: Collection[Component] = (),
        among: Sequence[frozenset[_Key]] = (),
    ) -> Found[_Key]:
        """Return what explains the losses, those of `more` ballots added."""
        for ballot in more:
            free = max(OWN_REASON, min(ballot.unseen, MOST_UNSEEN)) if ballot.lost else 0.0
            legs = list(self._legs(ballot))
            # A flow dies once: what it then loses in a row is one event, and not so many chances.
            times = max(1, min(max(ballot.last, ballot.run), ballot.lost))
            lost = ballot.lost // times
            sent = max(lost, ballot.sent // times)
            self._builder.flow(legs, sent, lost, free=free, times=ballot.times)
        if not self._fine_counted:
            self._count_fine()
            self._fine_counted = True
        seen = self._builder.build(_name)
        components = [_component(key) for key in seen.components]
        row = {key: n for n, key in enumerate(seen.components)} if among else {}
        things: dict[object, int] = {}
        return search(
            seen,
            SETTINGS,
            prior=[
                _prior(each, self._standing) + LN_GONE * (each in self._gone) for each in components
            ],
            things=[
                things.setdefault(each or key, len(things))
                for each, key in zip(components, seen.components, strict=True)
            ],
            wholes=_wholes(components),
            without=[
                n for n, each in enumerate(components) if each is not None and each in without
            ],
            among=[frozenset(map(row.__getitem__, each)) for each in among],
        )

    def _count_fine(self) -> None:
        """Add the probes of the flows that are fine, by what they crossed of what any loss did."""
        crossed = list(self._builder.components())
        row = {each: n for n, each in enumerate(crossed)}
        pairs = [ballot.ordered or ballot.pair for ballot in self._ballots]
        mixed: dict[Leg, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for fine in self._fine:
            shared = {row[PAIR, pair]: sent for pair, sent in fine.of_pairs(pairs).items()}
            self._builder.arrive(fine.arrived(crossed) + Arrived.once(shared, len(crossed)))
            for ways, sent, flows in fine.mixtures():
                if any(not parts.isdisjoint(row) for parts, _ in ways):
                    before = mixed[ways]
                    mixed[ways] = before[0] + sent, before[1] + flows
        for ways, (sent, flows) in mixed.items():
            self._builder.flow([self._open_leg(ways)], round(sent / flows), 0, times=flows)

    def _legs(self, ballot: Ballot) -> Iterator[int]:
        """Yield the legs of a ballot: what is its own, then the ways there and back."""
        routed = self._routed.get(ballot.legs)
        if routed is None:
            routed = frozenset(part for leg in ballot.legs for parts, _ in leg for part in parts)
            self._routed[ballot.legs] = routed
        pair, own = ballot.ordered or ballot.pair, ballot.components - routed
        row = self._own.get((pair, own))
        if row is None:
            row = self._own[pair, own] = self._builder.leg([own | {(PAIR, pair)}])
        yield row
        yield from map(self._open_leg, ballot.legs)

    def _open_leg(self, leg: Leg) -> int:
        """Return the row of a leg that may take several ways."""
        row = self._ways.get(leg)
        if row is None:
            ways: list[frozenset[_Key]] = [parts for parts, _ in leg]
            shares = [share for _, share in leg]
            if (rest := 1.0 - sum(shares)) > 1e-9:
                ways, shares = [*ways, frozenset()], [*shares, rest]
            row = self._ways[leg] = self._builder.leg(ways, shares)
        return row

    def _elections(self, found: Found[_Key]) -> tuple[Election, ...]:
        named = {component for each in found.blamed if (component := _component(each.component))}
        explained = [frozenset(each.flows.tolist()) for each in found.blamed]
        return tuple(
            self._election(each, named, frozenset().union(*explained) - mine)
            for each, mine in zip(found.blamed, explained, strict=True)
        )

    def _election(
        self, blamed: Blamed[_Key], named: Collection[Component], others: Collection[int]
    ) -> Election:
        """Return an election; `others` are the rows of the flows that other faults explain."""
        probes = len(self._ballots)
        explains = tuple(self._ballots[row] for row in blamed.flows.tolist() if row < probes)
        scores = self._scores(blamed)
        if not scores:
            # Nobody but the pair: what is wrong is on its way all the same.
            near = {c for ballot in explains for c in ballot.components}
            scores = dict.fromkeys(near, PAIR_SCORE / max(1, len(near)))
        ranked = sorted(scores, key=lambda c: (-scores[c], c))[:SUSPECTS]
        lossy = set(blamed.flows.tolist())
        suspects = tuple(self._suspect(c, scores[c], lossy, others) for c in ranked)
        pairs = {ballot.pair for ballot in explains}
        if ranked and not explains:
            # Another fault on the same open ways explains these flows as well: packets that were
            # counted on each way tell what either loses.
            pairs = self._shown(ranked[0])
            suspects = tuple(map(self._by_counts, suspects))
            explains = tuple(
                ballot for ballot in self._ballots if ballot.lost and ranked[0] in ballot.maybe
            )
        return Election(
            suspects,
            explains,
            len(pairs),
            blamed.gain - LN_GONE * (_component(blamed.component) in self._gone),
            # Where all others are at fault as well, it is asked who among them stands out.
            (self._beside(ranked[0], named) or self._beside(ranked[0], ()) or (0, 0))
            if ranked
            else (0, 0),
        )

    def _beside(self, best: Component, named: Collection[Component]) -> tuple[int, int] | None:
        """Return probes lost and sent across others of a component's kind, on ways as long.

        None where there are none.

        Probes that cross one switch only, as between neighbours at a leaf, show nothing of spines.
        """
        mine: list[int] = []
        others: list[tuple[int, Ballot]] = []
        for ballot in self._ballots:
            if ballot.whole:
                length = self._length(ballot, best.kind)
                if best in ballot.components:
                    mine.append(length)
                elif ballot.components.isdisjoint(named):
                    others.append((length, ballot))
        least = max(1, min(mine, default=1))
        alike = [ballot for length, ballot in others if length >= least]
        fine = sum(each.beside(best.kind, {best, *named}, least) for each in self._fine)
        sent = sum(ballot.sent * ballot.times for ballot in alike) + fine
        return (sum(ballot.lost * ballot.times for ballot in alike), sent) if sent else None

    def _length(self, ballot: Ballot, kind: Kind) -> int:
        """Return how many components of a kind a ballot's probes crossed on their longer way."""
        if kind not in {Kind.SWITCH, Kind.LINK} or not any(ballot.legs):
            return sum(each.kind is kind for each in ballot.components)
        length = self._lengths.get((ballot.legs, kind))
        if length is None:
            length = self._lengths[ballot.legs, kind] = max(
                sum(isinstance(p, Component) and p.kind is kind for p in parts)
                for leg in ballot.legs
                for parts, _ in leg
            )
        return length

    def _scores(self, blamed: Blamed[_Key]) -> dict[Component, float]:
        scores: dict[Component, float] = {}
        for key, posterior in [(blamed.component, blamed.confidence), *blamed.rivals]:
            component = _component(key)
            if component is not None:
                scores[component] = scores.get(component, 0.0) + posterior
        return scores

    def _suspect(
        self, component: Component, score: float, lossy: Collection[int], others: Collection[int]
    ) -> Suspect:
        """Return a suspect with its probes; those of flows whose ways are open as expected.

        What only other faults lost is none of its own.
        """
        mine = [
            ballot
            for row, ballot in enumerate(self._ballots)
            if row not in others
            if component in ballot.components or (component in ballot.maybe and row in lossy)
        ]
        maybe = [
            (ballot.sent, ballot.times, ballot.maybe[component])
            for row, ballot in enumerate(self._ballots)
            if component in ballot.maybe and row not in lossy and not ballot.lost
        ]
        lost = sum(ballot.lost * ballot.times for ballot in mine)
        sent = sum(ballot.sent * ballot.times for ballot in mine)
        rate = 0.0
        of_fine = [each.crossing(component) for each in self._fine]
        for _ in range(FIT_ROUNDS):
            # What lost nothing hardly crossed what loses much.
            survived = [(n * t, share, share * (1.0 - rate) ** n) for n, t, share in maybe]
            crossed = sum(n * each / (each + 1.0 - share) for n, share, each in survived)
            crossed += sent + sum(each(rate) for each in of_fine)
            rate = min(lost / max(1.0, crossed), MOST_RATE)
        return Suspect(component, min(1.0, score), lost, round(crossed))

    def _shown(self, component: Component) -> set[_Pair]:
        """Return the pairs on whose ways packets were lost to the first router beyond, and farther.

        A router that answers some packets only loses none of those that go on.
        """
        ways: dict[tuple[_Pair, object], list[int]] = defaultdict(list)
        for ballot in self._counted:
            if component in ballot.components:
                ways[ballot.pair, ballot.way].append(ballot.lost)
        return {pair for (pair, _), lost in ways.items() if len(lost) > 1 and all(lost)}

    def _by_counts(self, suspect: Suspect) -> Suspect:
        """Return a suspect with what was counted across it, where probes show nothing of it."""
        mine = [ballot for ballot in self._counted if suspect.component in ballot.components]
        return replace(suspect, lost=sum(b.lost for b in mine), crossed=sum(b.sent for b in mine))


MOST_INSTEAD = 2
"""Most suspected switches without which is searched once packets were counted. Chosen: each is a
search of its own, and more switches rarely fail in one window."""
MOST_UNSEEN = 0.99
"""Largest probability of other reasons for a flow's losses. Chosen: what is known of its way counts
for something."""


def _component(key: _Key) -> Component | None:
    """Return the component that a key is of; None for a pair."""
    if isinstance(key, Component):
        return key
    first, second = key
    return link(first, second) if isinstance(second, str) else None


def _name(key: _Key) -> str:
    """Return what `str` does, which takes five times as long for a thousand pairs of endpoints."""
    if isinstance(key, Component):
        return f"{key.kind.value} {key.name}"
    first, second = key
    if isinstance(second, str):
        return f"({first!r}, {second!r})"
    return f"({first!r}, ({', '.join(map(_shown, second))}))"


def _shown(end: object) -> str:
    if isinstance(end, EndpointId):
        return f"EndpointId(container={end.container!r}, rail={end.rail!r})"
    return repr(end)


def _near(found: Found[_Key]) -> list[frozenset[_Key]]:
    """Return what may be at fault together: the sets that were met, and with rivals instead."""
    base = frozenset(each.component for each in found.blamed)
    near = dict.fromkeys((base, *found.sets))
    swaps = [
        [
            (posterior / each.confidence, each.component, key)
            for key, posterior in each.rivals
            if posterior > COUNTABLE * each.confidence
        ]
        for each in found.blamed
    ]
    made = [(share, base - {old} | {new}) for mine in swaps for share, old, new in mine]
    made += [
        (share * another, base - {old, other} | {new, instead})
        for mine, theirs in combinations(swaps, 2)
        for share, old, new in mine
        for another, other, instead in theirs
    ]
    if len(base) == 1:
        made += [(0.0, frozenset({key})) for key, gain in found.alone if gain > MIN_EVIDENCE]
    near |= dict.fromkeys(each for _, each in sorted(made, key=lambda swap: -swap[0]))
    return list(near)[:MOST_SETS]


def _wholes(components: Sequence[Component | None]) -> list[list[int]]:
    """Return the rows of the switches that each component is a link of."""
    row = {each.name: n for n, each in enumerate(components) if each and each.kind is Kind.SWITCH}
    return [
        [row[end] for end in link_ends(each) if end in row]
        if each is not None and each.kind is Kind.LINK
        else []
        for each in components
    ]


def _prior(component: Component | None, standing: Collection[Component]) -> float:
    if component is None:
        return LN_PAIR
    extra = LN_STANDING if component in standing else 0.0
    return LN_PRIOR.get(component.kind, 0.0) + extra


def loss_rate(lost: float, sent: float) -> float:
    """Return the share lost, at least LEAST_RATE and at most 1 - LEAST_RATE."""
    rate = lost / sent if sent else 0.0
    return min(max(rate, LEAST_RATE), 1 - LEAST_RATE)


def log_likelihood_at(lost: float, sent: float, rate: float) -> float:
    """Return the log-likelihood (nats) of `lost` of `sent` probes where `rate` of them are lost.

    `rate` is above 0 and below 1.
    """
    return lost * math.log(rate) + (sent - lost) * math.log1p(-rate)


def log_likelihood(lost: float, sent: float) -> float:
    """Return the log-likelihood (nats) of `lost` of `sent` probes at the rate they show."""
    return log_likelihood_at(lost, sent, loss_rate(lost, sent)) if sent else 0.0
