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
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from netagent.model.path import Component, Kind
from netagent.model.verdict import Suspect

BACKGROUND = 1e-4
"""One probe in ten thousand is lost for no reason worth an incident."""
MIN_EVIDENCE = 8.0
"""Nats over the hypothesis that all probes are alike: odds of 3,000 to 1."""
MIN_LOST = 4
MIN_PAIRS = 2
"""Algorithm 1 asks for two failing paths that share the link."""
MIN_RATE = 0.01
MIN_CONFIDENCE = 0.8

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
TIE = 0.05
"""A suspect with this share of the best one's posterior is not ruled out."""
COUNTABLE = 1e-4
"""Packets counted per router may still raise a suspect of this share."""
LN_STANDING = 5.0
"""Bonus of a component that has an open incident already."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """One flow's probes, and every component that they and their replies crossed."""

    pair: tuple[object, object]
    """Unordered pair of endpoints, as a sorted tuple."""
    sent: int
    lost: int
    components: frozenset[Component]
    key: object = None
    """Tells ballots of like content apart."""


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

    @property
    def tied(self) -> tuple[Component, ...]:
        """Return the suspects that these ballots cannot tell from the best."""
        best = self.suspects[0].score
        return tuple(s.component for s in self.suspects if s.score > TIE * best)

    @property
    def suspicious(self) -> bool:
        """Whether enough is lost, between enough pairs, for a fault that they share."""
        best = self.suspects[0]
        return (
            best.lost >= MIN_LOST
            and best.lost >= MIN_RATE * best.crossed
            and self.pairs >= MIN_PAIRS
        )

    @property
    def shared(self) -> bool:
        """Whether something is at fault that the failing pairs share, though not what."""
        return self.suspicious and self.evidence >= MIN_EVIDENCE

    @property
    def decided(self) -> bool:
        """Whether the best suspect may be named."""
        return self.shared and self.suspects[0].score >= MIN_CONFIDENCE


def elect(
    ballots: Sequence[Ballot],
    *,
    standing: Iterable[Component] = (),
    counted: Sequence[Ballot] = (),
    rounds: int = 4,
) -> list[Election]:
    """Return elections over the losses in `ballots`, each over what the earlier ones left.

    `counted` are packets sent only part of the way, so that they cross one suspect and not another;
    they tell which of the suspects it is, not whether something is at fault. Ends with the first
    election that decides nothing (it is returned as well: its candidates are what an operator would
    look at), or when no loss is left.
    """
    elections: list[Election] = []
    remaining = list(ballots)
    for _ in range(rounds):
        election = _elect_one(remaining, frozenset(standing))
        if election is None:
            break
        if counted:
            election = _better_informed(election, remaining, counted, frozenset(standing))
        elections.append(election)
        if not election.decided:
            break
        explained = {id(ballot) for ballot in election.explains}
        remaining = [ballot for ballot in remaining if id(ballot) not in explained]
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
    # Tallies stay those of the probes: that is what is quoted as evidence.
    suspects = tuple(replace(among[s.component], score=s.score) for s in second.suspects)
    best = suspects[0].component
    explains = tuple(b for b in ballots if best in b.components and b.lost)
    return replace(
        election,
        suspects=(*suspects, *(s for s in election.suspects if s.component not in among)),
        explains=explains,
        pairs=len({ballot.pair for ballot in explains}),
    )


def _elect_one(
    ballots: Sequence[Ballot],
    standing: frozenset[Component],
    among: Collection[Component] | None = None,
) -> Election | None:
    all_lost, all_sent = sum(b.lost for b in ballots), sum(b.sent for b in ballots)
    crossed: dict[Component, int] = defaultdict(int)
    lost: dict[Component, int] = defaultdict(int)
    for ballot in ballots:
        for component in ballot.components:
            crossed[component] += ballot.sent
            if ballot.lost:
                lost[component] += ballot.lost
    likelihoods = {
        component: _likelihood(lost[component], crossed[component])
        + _likelihood(all_lost - lost[component], all_sent - crossed[component])
        for component in lost
        if among is None or component in among
    }
    if not likelihoods:
        return None
    scores = {
        component: likelihood
        + LN_PRIOR.get(component.kind, 0.0)
        + (LN_STANDING if component in standing else 0.0)
        for component, likelihood in likelihoods.items()
    }
    suspects = _posterior(scores, lost, crossed)
    best = suspects[0].component
    explains = tuple(b for b in ballots if best in b.components and b.lost)
    evidence = likelihoods[best] - _likelihood(all_lost, all_sent)
    return Election(suspects, explains, len({ballot.pair for ballot in explains}), evidence)


def _likelihood(lost: int, sent: int) -> float:
    if not sent:
        return 0.0
    rate = min(max(lost / sent, BACKGROUND), 1 - BACKGROUND)
    return lost * math.log(rate) + (sent - lost) * math.log1p(-rate)


def _posterior(
    scores: Mapping[Component, float],
    lost: Mapping[Component, int],
    crossed: Mapping[Component, int],
) -> tuple[Suspect, ...]:
    top = max(scores.values())
    weights = {component: math.exp(score - top) for component, score in scores.items()}
    total = sum(weights.values())
    ranked = sorted(scores, key=lambda c: (-scores[c], c))
    return tuple(Suspect(c, weights[c] / total, lost[c], crossed[c]) for c in ranked[:8])
