# SPDX-License-Identifier: Apache-2.0
"""Votes across components: which one explains the failing probes, and how surely.

Algorithm 1 of SkeletonHunter counts a vote per link for each failing path and takes the maximum;
alone, that blames what most paths cross. Here each component is scored by likelihood instead. If
component c alone is at fault, probes that cross it are lost with probability p and all others with
probability q, so that what was seen has the log-likelihood

    LL(c) = L(lost across c, crossed; p) + L(lost elsewhere, sent elsewhere; q)
    L(k, n; p) = k ln p + (n - k) ln (1 - p)

at the best p and q (q at least BACKGROUND). Healthy crossings speak against a component and losses
elsewhere speak against it, so a link beats its switch when only that link loses, and the switch
beats its links when all of them do. The posterior over the candidates is the confidence; how much
better the best candidate is than "all probes are alike" is the evidence, and must be more than
chance yields among so many candidates. The best candidate's losses are then taken as explained and
the rest is voted on again (007, NSDI '18, does so greedily).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from netagent.model.path import Component, Kind
from netagent.model.verdict import Suspect

BACKGROUND = 1e-4
"""Share of probes lost for no reason worth an incident. Chosen: higher hides faults that lose
little, lower makes an incident of stray losses."""
MIN_EVIDENCE = 8.0
"""Nats by which a fault must beat the hypothesis that all probes are alike. Chosen: odds of 3,000
to 1, since hundreds of components are candidates in each window."""
MIN_LOST = 4
"""Least lost probes (or slow flows) that a suspect must account for. Chosen: fewer are stray
losses; more delay the verdict in a small fabric."""
MIN_PAIRS = 2
"""Least failing pairs that share a suspect: SkeletonHunter, Algorithm 1, asks for two failing paths
that share the link."""
MIN_RATE = 0.01
"""Least share of the probes across a suspect that are lost. Chosen: less is not worth an incident,
and a part that most probes cross gathers losses of others."""
MIN_CONFIDENCE = 0.8
"""Least posterior of a suspect that is named. Chosen: below it the verdict is "insufficient
evidence", which costs an operator less than a wrong name."""

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
"""Kind -> nats added to a component's score. Chosen: small against MIN_EVIDENCE, so that they only
decide between components that the same probes cross."""
TIE = 0.05
"""Share of the best suspect's posterior from which another suspect is not ruled out. Chosen: odds
of 20 to 1."""
COUNTABLE = 1e-4
"""Share of the best suspect's posterior from which counts per router may still raise a suspect.
Chosen: counts are strong evidence, but must not raise what the probes exclude."""
LN_STANDING = 5.0
"""Nats added to the score of a component with an open incident. Chosen: odds of 150 to 1 keep one
fault from changing its name between windows, and strong evidence still overrules them."""
ALONE_RATE = 0.03
"""Share lost across a suspect from which it stands out where others of its kind lose nothing at
all, however few probes cross those. Chosen: stray losses are fewer; where few probes are lost, that
others lost none may be chance."""
PARTS = {
    Kind.SWITCH: {Kind.LINK, Kind.RNIC},
    Kind.HOST: {Kind.RNIC, Kind.CONTAINER},
    Kind.CONTAINER: {Kind.ENDPOINT},
}
"""Kind of a component -> kinds of its parts: faults of two parts look like a fault of the whole.
RNICs count as parts of their leaf."""
CLEAN = 0.25
"""Largest loss rate of what crosses neither of two faulty parts, as a share of the rate of either.
Chosen: a whole that is at fault loses elsewhere, too."""
MAX_PARTS = 32
"""Most parts of a component of which pairs are tried. Chosen: a switch with more lossy links than
this is broken itself; two of 32 are 496 pairs."""
MAX_OPEN_CANDIDATES = 256
"""Most suspects where ways are not wholly known: those that may account for the most losses.
Chosen: each is fitted to each such way, up to FIT_STEPS times."""
LN_SECOND = 6.0
"""Nats by which two faults must explain more than one. Chosen: odds of 400 to 1."""
FIT_STEPS, FIT_GAIN = 20, 0.01
"""Most rounds of fitting rates where ways are not wholly known, and least gain in nats that is
worth another round. Chosen: bounds the time; a gain this small changes no verdict."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """One flow's probes, and every component that they and their replies crossed."""

    pair: tuple[object, object]
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

    @property
    def whole(self) -> bool:
        """Whether everything that the probes and their replies crossed is known."""
        return not self.maybe and not self.unseen


@dataclass(frozen=True, slots=True)
class Election:
    """The best candidate for some losses; `explains` are the ballots it accounts for."""

    suspects: tuple[Suspect, ...]
    """Best first; `score` is the posterior."""
    explains: tuple[Ballot, ...]
    pairs: int
    """Failing pairs that cross the best suspect."""
    evidence: float
    """Nats by which the best suspect beats the hypothesis that nothing is at fault."""
    doubtful: tuple[Ballot, ...] = ()
    """Ballots with losses that the best suspect, or a component on an unknown way, may have caused.
    """
    beside: tuple[int, int] = (0, 0)
    """Probes lost and sent that cross other components of the best suspect's kind, and not it."""
    parts: tuple[Component, ...] = ()
    """Two parts of the best suspect that explain its losses better than it does; else empty."""

    @property
    def tied(self) -> tuple[Component, ...]:
        """Return the suspects that these ballots cannot rule out, the best one included."""
        best = self.suspects[0].score
        return tuple(s.component for s in self.suspects if s.score > TIE * best)

    @property
    def suspicious(self) -> bool:
        """Whether enough probes of enough pairs are lost to suspect a shared fault."""
        best = self.suspects[0]
        return (
            best.lost >= MIN_LOST
            and best.lost >= MIN_RATE * best.crossed
            and self.pairs >= MIN_PAIRS
        )

    @property
    def shared(self) -> bool:
        """Whether it is certain that the failing pairs share a fault, wherever it is."""
        return self.suspicious and self.evidence >= MIN_EVIDENCE

    @property
    def stands_out(self) -> bool:
        """Whether the best suspect loses more than others of its kind, and not by chance.

        Where losses are the same everywhere, the part that most probes cross explains most losses.
        """
        best, (lost, sent) = self.suspects[0], self.beside
        if not sent or (not lost and best.lost >= ALONE_RATE * best.crossed):
            return True
        if best.lost * sent <= lost * best.crossed:
            return False
        apart = log_likelihood(best.lost, best.crossed) + log_likelihood(lost, sent)
        return apart - log_likelihood(best.lost + lost, best.crossed + sent) >= MIN_EVIDENCE

    @property
    def decided(self) -> bool:
        """Whether the best suspect may be named."""
        sure = self.shared and self.suspects[0].score >= MIN_CONFIDENCE
        return sure and self.stands_out and not self.parts


def elect(
    ballots: Sequence[Ballot],
    *,
    standing: Iterable[Component] = (),
    counted: Sequence[Ballot] = (),
    cleared: Collection[Component] = (),
    rounds: int = 4,
) -> list[Election]:
    """Return elections over the losses in `ballots`, each over what the earlier ones left.

    `counted` are packets sent part of the way only, so that they cross one suspect and not another.
    They show which suspect is at fault, not whether one is. Components that they `cleared` are no
    suspects. The list ends with the first election that decides nothing, since an operator would
    look at its candidates, or when no loss is left.
    """
    elections: list[Election] = []
    remaining = list(ballots)
    for _ in range(rounds):
        election = _elect_one(remaining, frozenset(standing), without=cleared)
        if election is None:
            break
        if counted:
            election = _better_informed(election, remaining, counted, frozenset(standing))
        elections.append(election)
        if not election.decided:
            break
        explained = {id(ballot) for ballot in election.explains}
        remaining = [ballot for ballot in remaining if id(ballot) not in explained]
        named = election.suspects[0].component
        # Packets that crossed what is named already were lost there, and accuse nothing else.
        counted = [b for b in counted if named not in b.components and named not in b.maybe]
    return elections


def _better_informed(
    election: Election,
    ballots: Sequence[Ballot],
    counted: Sequence[Ballot],
    standing: frozenset[Component],
) -> Election:
    least = COUNTABLE * election.suspects[0].score
    among = {s.component: s for s in election.suspects if s.score > least}
    second = _elect_one([*ballots, *counted], standing, among)
    if second is None:
        return election
    # Tallies stay those of the probes, since the evidence quotes them.
    suspects = tuple(replace(among[s.component], score=s.score) for s in second.suspects)
    probes, tally = {id(ballot) for ballot in ballots}, _Tally(ballots)
    explains = tuple(b for b in second.explains if id(b) in probes)
    return replace(
        election,
        suspects=(*suspects, *(s for s in election.suspects if s.component not in among)),
        explains=explains,
        evidence=tally.fit(suspects[0].component).likelihood - tally.fit(None).likelihood,
        pairs=len({ballot.pair for ballot in explains}),
        doubtful=tuple(b for b in second.doubtful if id(b) in probes),
        beside=_beside(suspects[0].component, ballots),
        parts=_parts(suspects[0].component, ballots),
    )


def _elect_one(
    ballots: Sequence[Ballot],
    standing: frozenset[Component],
    among: Collection[Component] | None = None,
    without: Collection[Component] = (),
) -> Election | None:
    tally = _Tally(ballots)
    if among is None:
        candidates = tally.candidates().difference(without)
    else:
        candidates = tally.lost.keys() & set(among)
    fits = {component: tally.fit(component) for component in candidates}
    # A component that loses less than all others together explains nothing.
    fits = {component: fit for component, fit in fits.items() if fit.rate > fit.elsewhere}
    if not fits:
        return None
    scores = {
        component: fit.likelihood
        + LN_PRIOR.get(component.kind, 0.0)
        + (LN_STANDING if component in standing else 0.0)
        for component, fit in fits.items()
    }
    suspects = _posterior(scores, fits)
    named = suspects[0].component
    best = fits[named]
    mine = [b for b in ballots if b.lost and (named in b.components or named in b.maybe)]
    explains = tuple(b for b in mine if b.whole or id(b) in best.explains)
    explained = {id(ballot) for ballot in explains}
    doubtful = tuple(
        b for b in ballots if b.lost and id(b) not in explained and (b.unseen or named in b.maybe)
    )
    evidence = best.likelihood - tally.fit(None).likelihood
    pairs = len({ballot.pair for ballot in explains})
    beside = _beside(named, ballots)
    return Election(suspects, explains, pairs, evidence, doubtful, beside, _parts(named, ballots))


def _parts(whole: Component, ballots: Sequence[Ballot]) -> tuple[Component, ...]:
    """Return two parts of `whole` that explain its losses better than it does; empty if none do.

    While one fault is assumed, a component that all failing probes cross explains the faults of two
    of its parts. Two parts with a rate each must explain LN_SECOND more to count as two faults.
    """
    kinds = PARTS.get(whole.kind)
    mine = [b for b in ballots if b.whole and whole in b.components]
    if kinds is None or not any(b.lost for b in mine):
        return ()
    elsewhere = {c for b in ballots if whole not in b.components for c in b.components}
    lost_by = Counter[Component]()
    for ballot in mine:
        for component in ballot.components if ballot.lost else ():
            if component.kind in kinds and _is_part(component, whole, elsewhere):
                lost_by[component] += ballot.lost
    candidates = sorted(sorted(lost_by, key=lambda c: (-lost_by[c], c))[:MAX_PARTS])
    lost, sent = sum(b.lost for b in mine), sum(b.sent for b in mine)
    best, found = log_likelihood(lost, sent) + LN_SECOND, tuple[Component, ...]()
    for one in candidates:
        crossing = [b for b in mine if one in b.components]
        alone = _Tally(crossing).fit(None)
        rate = loss_rate(sum(b.lost for b in crossing), sum(b.sent for b in crossing))
        rest = _Tally([b for b in mine if one not in b.components])
        for other in candidates:
            if other <= one:
                continue
            fit = rest.fit(other)
            clean = fit.elsewhere < CLEAN * min(fit.rate, rate)
            likelihood = alone.likelihood + fit.likelihood
            if likelihood > best and fit.lost >= MIN_LOST and clean:
                best, found = likelihood, (one, other)
    return found


def _is_part(part: Component, whole: Component, elsewhere: Collection[Component]) -> bool:
    if part.kind is Kind.LINK:
        return whole.name in part.name.split(" -- ")
    if whole.kind is Kind.SWITCH:
        return part not in elsewhere  # all that an RNIC sends and gets crosses its leaf
    # Names tell an RNIC's host and an endpoint's container, but not a container's host.
    return part.kind is Kind.CONTAINER or part.name.rpartition("/")[0] == whole.name


def _beside(component: Component, ballots: Iterable[Ballot]) -> tuple[int, int]:
    """Return probes lost and sent that cross others of the component's kind, on ways as long.

    Probes that cross one switch only, as between neighbours at a leaf, show nothing about spines.
    """
    mine: list[int] = []
    others: list[tuple[int, Ballot]] = []
    for ballot in ballots:
        if ballot.whole:
            length = sum(each.kind is component.kind for each in ballot.components)
            if component in ballot.components:
                mine.append(length)
            else:
                others.append((length, ballot))
    least = max(1, min(mine, default=1))
    alike = [ballot for length, ballot in others if length >= least]
    return sum(ballot.lost for ballot in alike), sum(ballot.sent for ballot in alike)


@dataclass(frozen=True, slots=True)
class _Fit:
    """How well one component explains all ballots, at the best rates."""

    likelihood: float
    rate: float
    """Share lost of the probes that cross the component."""
    elsewhere: float
    """Share lost of all other probes."""
    lost: int
    """Lost probes that cross the component, or most likely do."""
    crossed: int
    """Probes that cross the component, or most likely do."""
    explains: frozenset[int] = frozenset()
    """`id` of the lossy ballots without a wholly known way that the component most likely lost."""


class _Tally:
    """Ballots, summed by component where their way is wholly known."""

    def __init__(self, ballots: Sequence[Ballot]) -> None:
        self._lost, self._sent = 0, 0
        self._crossed: dict[Component, int] = defaultdict(int)
        self.lost: dict[Component, int] = defaultdict(int)
        """Component that lost probes crossed, or may have -> lost probes that certainly did."""
        self._open = [ballot for ballot in ballots if not ballot.whole]
        for ballot in ballots:
            if not ballot.whole:
                continue
            self._lost += ballot.lost
            self._sent += ballot.sent
            for component in ballot.components:
                self._crossed[component] += ballot.sent
                if ballot.lost:
                    self.lost[component] += ballot.lost
        self._perhaps = Counter[Component]()
        """Component -> lost probes whose way is not wholly known, and that may have crossed it."""
        for ballot in self._open:
            if ballot.lost:
                for component in (*ballot.components, *ballot.maybe):
                    self.lost[component] += 0
                    self._perhaps[component] += ballot.lost

    def candidates(self) -> set[Component]:
        """Return the components that may be at fault."""
        if not self._open or len(self.lost) <= MAX_OPEN_CANDIDATES:
            return set(self.lost)
        ranked = sorted(self.lost, key=lambda c: (-self.lost[c] - self._perhaps[c], c))
        return set(ranked[:MAX_OPEN_CANDIDATES])

    def fit(self, component: Component | None) -> _Fit:
        """Return how well `component` explains the ballots; None: all probes are alike."""
        lost, crossed = (
            (self.lost.get(component, 0), self._crossed.get(component, 0)) if component else (0, 0)
        )
        inside, outside = (lost, crossed), (self._lost - lost, self._sent - crossed)
        if self._open:
            return _fit_open(component, inside, outside, self._open)
        likelihood = log_likelihood(*inside) + log_likelihood(*outside)
        return _Fit(likelihood, loss_rate(*inside), loss_rate(*outside), lost, crossed)


def _fit_open(
    component: Component | None,
    inside: tuple[float, float],
    outside: tuple[float, float],
    ballots: Sequence[Ballot],
) -> _Fit:
    """Fit a component's rate where some ballots' ways are not wholly known.

    Such a ballot is a mixture: it crossed the component or not, and an unknown part of its way may
    have lost more. Rates and shares are fitted in turn (expectation maximisation).
    """
    crosses = [
        1.0 if component in b.components else b.maybe.get(component, 0.0) if component else 0.0
        for b in ballots
    ]
    shares = [(share, 1.0 - share) for share in crosses]
    likelihood = -math.inf
    for _ in range(FIT_STEPS):
        p, q = (
            loss_rate(
                part[0] + sum(s[side] * b.lost for s, b in zip(shares, ballots, strict=True)),
                part[1] + sum(s[side] * b.sent for s, b in zip(shares, ballots, strict=True)),
            )
            for side, part in enumerate((inside, outside))
        )
        shares, before = [], likelihood
        likelihood = log_likelihood_at(*inside, p) + log_likelihood_at(*outside, q)
        for share, b in zip(crosses, ballots, strict=True):
            gained, parts = _mixture(share, b, p, q)
            likelihood += gained
            shares.append(parts)
        if likelihood - before < FIT_GAIN:
            break
    mine = [b for (at, _), b in zip(shares, ballots, strict=True) if at > 1 / 2]
    return _Fit(
        likelihood,
        p,
        q,
        round(inside[0]) + sum(b.lost for b in mine),
        round(inside[1]) + sum(b.sent for b in mine),
        frozenset(id(b) for b in mine if b.lost),
    )


def _mixture(share: float, b: Ballot, p: float, q: float) -> tuple[float, tuple[float, float]]:
    """Return a ballot's log-likelihood, and how likely its probes crossed the component, or not."""
    own = loss_rate(b.lost, b.sent)
    terms = [
        # weight, rate
        (share * (1 - b.unseen), p),
        ((1 - share) * (1 - b.unseen), q),
        (share * b.unseen, max(p, own)),
        ((1 - share) * b.unseen, max(q, own)),
    ]
    logs = [
        math.log(weight) + log_likelihood_at(b.lost, b.sent, rate) if weight else -math.inf
        for weight, rate in terms
    ]
    top = max(logs)
    masses = [math.exp(each - top) for each in logs]
    total = sum(masses)
    # Where an unknown part of the way lost more, the ballot is no evidence for either rate.
    inside, outside = masses[0], masses[1]
    if own <= p:
        inside += masses[2]
    if own <= q:
        outside += masses[3]
    return top + math.log(total), (inside / total, outside / total)


def loss_rate(lost: float, sent: float) -> float:
    """Return the share lost, at least BACKGROUND and at most 1 - BACKGROUND."""
    rate = lost / sent if sent else 0.0
    return min(max(rate, BACKGROUND), 1 - BACKGROUND)


def log_likelihood_at(lost: float, sent: float, rate: float) -> float:
    """Return the log-likelihood (nats) of `lost` of `sent` probes where `rate` of them are lost.

    `rate` is above 0 and below 1.
    """
    return lost * math.log(rate) + (sent - lost) * math.log1p(-rate)


def log_likelihood(lost: float, sent: float) -> float:
    """Return the log-likelihood (nats) of `lost` of `sent` probes at the rate they show."""
    return log_likelihood_at(lost, sent, loss_rate(lost, sent)) if sent else 0.0


def _posterior(
    scores: Mapping[Component, float], fits: Mapping[Component, _Fit]
) -> tuple[Suspect, ...]:
    top = max(scores.values())
    weights = {component: math.exp(score - top) for component, score in scores.items()}
    total = math.fsum(weights.values())  # the same in whatever order sets give it
    ranked = sorted(scores, key=lambda c: (-scores[c], c))[:8]
    return tuple(Suspect(c, weights[c] / total, fits[c].lost, fits[c].crossed) for c in ranked)
