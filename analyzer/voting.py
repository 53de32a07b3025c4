# SPDX-License-Identifier: Apache-2.0
"""The vote on a window's losses and slowness, with packets counted per router where it is a tie."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from analyzer.detect.loss import FlowView, together
from analyzer.localize import hops
from analyzer.localize.evidence import Evidence
from analyzer.localize.facts import Explained
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.verdict import Counted, Poll, by_latency, by_votes, poll, poll_latency
from analyzer.walker import AgentsRpc, count_hops
from netagent.model.path import Component


class Voting:
    """Votes on window after window."""

    def __init__(self, topology: LearnedTopology) -> None:
        self._topology = topology
        self._poor: tuple[int, tuple[FlowView, ...]] = (0, ())
        """End (ns) and flows of the last window with too few losses to tell anything."""

    async def on_loss(
        self,
        evidence: Evidence,
        flows: Sequence[FlowView],
        standing: Collection[Component],
        missing: Sequence[str],
        agents: AgentsRpc,
    ) -> list[Explained]:
        """Return verdicts on the losses of `flows`, the undecided last."""
        polled, windows = poll(evidence, flows, self._topology, standing), 1
        if polled.poor:
            # A link that loses little needs more probes than a small fabric sends in one window.
            (end_ns, before), window = self._poor, evidence.window
            self._poor = (window.end_ns, tuple(flows))
            if end_ns == window.start_ns:
                both = together(flows, before)
                pooled = poll(evidence, both, self._topology, standing)
                if _agrees(pooled, polled):
                    flows, polled, windows = both, pooled, 2
        counted = Counted(missing=tuple(missing))
        tie = next((e for e in polled.elections if hops.worth_counting(e, standing)), None)
        if tie is not None:
            chosen = hops.choose(tie, flows, self._topology)
            answers = await count_hops(agents, chosen, evidence.endpoints, large=polled.large_only)
            ballots = hops.ballots(answers, evidence.endpoints, self._topology)
            polled = poll(evidence, flows, self._topology, standing, ballots)
            lines = hops.told(answers, self._topology)
            counted = Counted(tuple(ballots), tuple(lines), tuple(missing))
        return by_votes(replace(polled, windows=windows), self._topology, counted)

    async def on_latency(
        self, evidence: Evidence, flows: Sequence[FlowView], agents: AgentsRpc
    ) -> list[Explained]:
        """Return the verdict on the slow among `flows`, if a component stands out."""
        polled = poll_latency(evidence, flows, self._topology)
        tie = next((e for e in polled.elections if hops.worth_counting(e)), None)
        if tie is None:
            return by_latency(evidence, polled, self._topology)
        slow = [replace(v, lost=1) for v in flows if v.flow in evidence.slow]
        chosen = hops.choose(tie, slow, self._topology)
        answers = await count_hops(agents, chosen, evidence.endpoints, large=False)
        ballots = hops.late_ballots(answers, evidence.endpoints, self._topology, evidence.slow)
        polled = poll_latency(evidence, flows, self._topology, ballots)
        lines = hops.told_late(answers, self._topology, evidence.slow)
        return by_latency(evidence, polled, self._topology, Counted(lines=tuple(lines)))


def _agrees(pooled: Poll, polled: Poll) -> bool:
    """Whether this window suspects too what two windows together accuse."""
    suspected = polled.elections[0].tied
    return any(election.suspects[0].component in suspected for election in pooled.elections[:1])
