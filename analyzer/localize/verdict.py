# SPDX-License-Identifier: Apache-2.0
"""Votes into verdicts: loss and latency over the components that flows cross."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analyzer.detect.loss import FlowView
from analyzer.localize.evidence import (
    Evidence,
    components_of,
    pair_of,
    pairs_quoted,
    unordered,
)
from analyzer.localize.facts import Explained
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.votes import MIN_LOST, Ballot, Election, elect
from netagent.model.path import Component
from netagent.model.verdict import Pair, Suspect, Symptom, Verdict

HEALTHY_QUOTED = 6
PATHS_QUOTED = 4
VOTE_CONFIDENCE = 0.94
"""At most: a vote infers what a walk or a host's own finding states."""
MAX_UNTRACED = 0.2
ENDPOINT_RATE = 0.9
"""While paths are unknown, only what loses nearly every probe is blamed: the endpoint rule."""
MIN_SLOW_SHARE = 0.6
"""A slow component slows most of what crosses it."""


@dataclass(frozen=True, slots=True)
class Poll:
    """Flows as ballots, and what they elect."""

    ballots: dict[Ballot, FlowView]
    elections: tuple[Election, ...]
    large_only: bool = False
    """All that was lost was of the largest size."""
    windows: int = 1

    @property
    def poor(self) -> bool:
        """Whether several pairs lose probes, but too few to tell that anything is at fault."""
        first = next(iter(self.elections), None)
        return first is not None and first.suspicious and not first.shared


@dataclass(frozen=True, slots=True)
class Counted:
    """Packets counted per router to break a tie, and what is missing elsewhere."""

    ballots: tuple[Ballot, ...] = ()
    lines: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def poll(
    evidence: Evidence,
    flows: Sequence[FlowView],
    topology: LearnedTopology,
    standing: Iterable[Component] = (),
    counted: Sequence[Ballot] = (),
) -> Poll:
    """Put the losses of `flows` to the vote."""
    lost = sum(view.lost for view in flows)
    if lost < MIN_LOST:
        return Poll({}, ())
    large_only = lost == sum(view.lost_large for view in flows)
    crossed = {v.flow: components_of(v.flow, evidence.endpoints, topology) for v in flows}
    ballots = {_ballot(v, crossed[v.flow], large_only=large_only): v for v in flows}
    elections = elect(list(ballots), standing=standing, counted=counted)
    return Poll(ballots, tuple(elections), large_only)


def by_votes(
    polled: Poll, topology: LearnedTopology, counted: Counted | None = None
) -> list[Explained]:
    """Return verdicts for the losses that were put to the vote, the undecided last."""
    return [
        _by_election(election, polled, topology, counted or Counted())
        for election in polled.elections
        if election.suspects[0].lost >= MIN_LOST
    ]


def _ballot(view: FlowView, crossed: frozenset[Component], *, large_only: bool) -> Ballot:
    # Where only the largest probes are lost, the small ones say nothing.
    sent, lost = (view.sent_large, view.lost_large) if large_only else (view.sent, view.lost)
    return Ballot(unordered(pair_of(view.flow)), sent, lost, crossed, view.flow)


def _by_election(
    election: Election, polled: Poll, topology: LearnedTopology, counted: Counted
) -> Explained:
    best = election.suspects[0]
    flows = tuple(polled.ballots[b] for b in election.explains)
    rate = best.lost / max(1, best.crossed)
    dead = any(v.unconnected for v in flows)
    symptom = Symptom.UNCONNECTIVITY if dead and rate > 0.5 else Symptom.LOSS
    size = " of the largest size" if polled.large_only else ""
    facts = [f"{best.lost} of {best.crossed} probes{size} that cross {best.component} are lost"]
    facts += [*counted.lines, *_paths(flows, topology)]
    if polled.windows > 1:
        facts.append(f"counted over {polled.windows} windows: each alone has too few losses")
    if polled.large_only:
        facts.append("smaller probes on the same paths are all answered: an MTU or a size filter")
    untraced = sum(topology.crossed(v.flow) is None for v in flows)
    blind = untraced > MAX_UNTRACED * len(flows) and rate < ENDPOINT_RATE
    if blind or not election.decided:
        undecided = _undecided(election, flows, facts, topology, counted.missing, symptom)
        return Explained(undecided, flows)
    verdict = Verdict(
        best.component, best.component.layer, symptom, _confidence(best),
        f"{100 * rate:.0f} % of the probes{size} that cross {best.component} are lost",
        failing=pairs_quoted(flows), healthy=_neighbours(best.component, polled.ballots),
        alternatives=election.suspects[1:], evidence=tuple(facts), missing=counted.missing,
    )  # fmt: skip
    return Explained(verdict, flows)


def _undecided(
    election: Election,
    flows: Sequence[FlowView],
    facts: Sequence[str],
    topology: LearnedTopology,
    missing: Sequence[str],
    symptom: Symptom,
) -> Verdict:
    wanted = list(missing)
    if election.pairs < 2:
        wanted.append("a second failing pair that shares a component")
    wanted += _untraced(flows, topology)
    wanted.append("a comparison of the datapath's and the RNIC's flow tables with OpenFlow's")
    return Verdict(
        None, None, symptom, round(election.suspects[0].score, 3),
        "insufficient evidence: no component explains the losses better than the others",
        failing=pairs_quoted(flows), alternatives=election.suspects,
        evidence=tuple(facts), missing=tuple(wanted),
    )  # fmt: skip


def _untraced(flows: Sequence[FlowView], topology: LearnedTopology) -> list[str]:
    untraced = sum(topology.crossed(v.flow) is None for v in flows)
    return [f"the underlay paths of {untraced} failing flows"] if untraced else []


def _confidence(best: Suspect) -> float:
    return round(min(best.score, VOTE_CONFIDENCE), 3)


def _neighbours(component: Component, ballots: dict[Ballot, FlowView]) -> tuple[Pair, ...]:
    # Healthy pairs that cross most of what the failing ones cross, but not the suspect.
    near: set[Component] = set()
    for ballot in ballots:
        if ballot.lost and component in ballot.components:
            near |= ballot.components
    fine = [
        view
        for ballot, view in ballots.items()
        if component not in ballot.components and not view.lost and near & ballot.components
    ]
    return pairs_quoted(fine)[:HEALTHY_QUOTED]


def _paths(flows: Sequence[FlowView], topology: LearnedTopology) -> list[str]:
    lines: list[str] = []
    for view in sorted(flows, key=lambda v: -v.lost)[:PATHS_QUOTED]:
        for reply in (False, True):
            hops = topology.hops(view.flow, reply=reply)
            if hops is None:
                continue
            a, b = view.flow.source, view.flow.target
            ends = (b, a) if reply else (a, b)
            way = " > ".join([str(ends[0]), *(hop or "?" for hop in hops), str(ends[1])])
            lines.append(f"{'reply' if reply else 'probe'} {way}: {view.lost}/{view.sent} lost")
            after = topology.ends_after(view.flow, reply=reply)
            if after is not None:
                lines.append(f"  its latest trace ends after {after or 'a silent router'}")
    return lines


def poll_latency(
    evidence: Evidence,
    flows: Sequence[FlowView],
    topology: LearnedTopology,
    counted: Sequence[Ballot] = (),
) -> Poll:
    """Put to the vote which component the slow flows share; a flow counts as one probe."""
    slow = sum(v.flow in evidence.slow for v in flows)
    if slow < MIN_LOST:
        return Poll({}, ())
    ballots = {
        Ballot(
            unordered(pair_of(v.flow)),
            1,
            int(v.flow in evidence.slow),
            components_of(v.flow, evidence.endpoints, topology),
            v.flow,
        ): v
        for v in flows
    }
    elections = tuple(elect(list(ballots), counted=counted, rounds=1))
    best = elections[0].suspects[0] if elections else None
    if best is None or best.lost < MIN_SLOW_SHARE * max(best.crossed, slow):
        return Poll({}, ())
    return Poll(ballots, elections)


def by_latency(
    evidence: Evidence, polled: Poll, topology: LearnedTopology, counted: Counted | None = None
) -> list[Explained]:
    """Return the verdict on the component that most slow flows share, if one stands out.

    Where several do alike, and routers that were asked do not tell them apart, the verdict names
    none and lists them.
    """
    if not polled.elections or not polled.elections[0].shared:
        return []
    election = polled.elections[0]
    best = election.suspects[0]
    mine = tuple(polled.ballots[b] for b in election.explains)
    lines = [
        f"{v.flow.source} -> {v.flow.target} port {v.flow.source_port}: "
        f"{evidence.slow[v.flow][0] / 1e3:.0f} us -> {evidence.slow[v.flow][1] / 1e3:.0f} us"
        for v in mine[:8]
    ]
    facts = (*(counted.lines if counted else ()), *lines)
    if not election.decided and counted is None:
        return []
    if not election.decided:
        wanted = [*_untraced(mine, topology), "routers whose answers become late where flows do"]
        undecided = Verdict(
            None, None, Symptom.LATENCY, round(best.score, 3),
            f"insufficient evidence: {len(mine)} flows became slow, and several parts explain it",
            failing=pairs_quoted(mine), alternatives=election.suspects,
            evidence=facts, missing=tuple(wanted),
        )  # fmt: skip
        return [Explained(undecided, mine)]
    verdict = Verdict(
        best.component, best.component.layer, Symptom.LATENCY, _confidence(best),
        f"{best.lost} of {best.crossed} flows that cross {best.component} became slow",
        failing=pairs_quoted(mine), healthy=_neighbours(best.component, polled.ballots),
        alternatives=election.suspects[1:], evidence=facts,
    )  # fmt: skip
    return [Explained(verdict, mine)]
