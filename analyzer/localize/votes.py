# SPDX-License-Identifier: Apache-2.0
"""The vote on a window's losses, with packets counted per router where it is a tie."""

from dataclasses import replace

from analyzer.detect.flows import FlowView, together
from analyzer.localize.case import Case, Explained
from analyzer.localize.contract import Context
from analyzer.localize.voting import hops
from analyzer.localize.voting.ballots import Counted, Poll, by_votes, poll, poll_again
from analyzer.questions import Asking


class Votes:
    """Votes on losses, window after window."""

    settles = False

    def __init__(self, context: Context) -> None:
        self._topology = context.topology
        self._doubts = context.doubts
        self._poor: tuple[int, tuple[FlowView, ...]] = (0, ())
        """End (ns) and flows of the newest window with too few losses for a verdict."""

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return verdicts on the losses that may be voted on, the undecided last."""
        flows = self._doubts.leave(case, case.votable())
        polled, flows = self._poll(case, flows)
        counted = Counted(missing=tuple(case.missing))
        tie = next((e for e in polled.elections if hops.worth_counting(e, case.standing)), None)
        if tie is not None:
            chosen = hops.choose(tie, flows, self._topology)
            answers = yield from hops.count(chosen, case.endpoints, large=polled.large_only)
            ballots = hops.ballots(answers, case.endpoints, self._topology)
            cleared = hops.cleared(tie.suspects, answers, case.endpoints, self._topology)
            polled = poll_again(polled, ballots, cleared)
            lines = hops.counted(answers, self._topology)
            counted = Counted(tuple(lines), tuple(case.missing))
        return self._doubts.better(case, by_votes(polled, self._topology, counted))

    def _poll(self, case: Case, flows: tuple[FlowView, ...]) -> tuple[Poll, tuple[FlowView, ...]]:
        polled = poll(case, flows, self._topology)
        if not polled.poor:
            return polled, flows
        # A link that loses little needs more probes than a small fabric sends in one window.
        (end_ns, before), self._poor = self._poor, (case.window.end_ns, flows)
        if end_ns == case.window.start_ns:
            both = together(flows, before)
            pooled = poll(case, both, self._topology)
            if _agrees(pooled, polled):
                return replace(pooled, windows=2), both
        return polled, flows


def _agrees(pooled: Poll, polled: Poll) -> bool:
    """Return whether this window alone suspects what two windows together accuse."""
    suspected = {component for election in polled.elections for component in election.tied}
    named = [election.suspects[0].component for election in pooled.elections if election.decided]
    return not suspected or suspected.issuperset(named)
