# SPDX-License-Identifier: Apache-2.0
"""The vote on a window's slowness, settled by where routers begin to answer late."""

from dataclasses import replace

from analyzer.localize.case import Case, Explained
from analyzer.localize.contract import Context
from analyzer.localize.voting import hops
from analyzer.localize.voting.ballots import Counted, by_latency, poll_latency, poll_latency_again
from analyzer.questions import Asking


class Latency:
    """Votes on flows that became slow."""

    settles = False

    def __init__(self, context: Context) -> None:
        self._topology = context.topology
        self._doubts = context.doubts

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return the verdict on the slow among the flows, if a component stands out."""
        flows = self._doubts.leave(case, case.votable())
        polled = poll_latency(case, flows, self._topology)
        tie = next((e for e in polled.elections if hops.worth_counting(e)), None)
        if tie is None:
            return by_latency(case, polled)
        slow = [replace(view, lost=1) for view in flows if view.flow in case.slow]
        chosen = hops.choose(tie, slow, self._topology)
        answers = yield from hops.count(chosen, case.endpoints, large=False)
        ballots = hops.late_ballots(answers, case.endpoints, self._topology, case.slow)
        polled = poll_latency_again(polled, ballots)
        lines = hops.timed(answers, self._topology, case.slow)
        return by_latency(case, polled, Counted(tuple(lines)))
