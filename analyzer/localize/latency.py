# SPDX-License-Identifier: Apache-2.0
"""The vote on a window's slowness, settled by where routers begin to answer late."""

from collections.abc import Sequence
from dataclasses import replace

from analyzer.localize.case import Case, Explained
from analyzer.localize.contract import Context
from analyzer.localize.voting import hops
from analyzer.localize.voting.ballots import (
    Counted,
    Poll,
    by_latency,
    poll_latency,
    poll_latency_again,
)
from analyzer.localize.voting.election import Election
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
        ties = [e for e in polled.elections if hops.worth_counting(e)]
        slow = [replace(view, lost=1) for view in flows if view.flow in case.slow]
        wanted = hops.choose(ties, slow, case.endpoints, self._topology)
        if not wanted:
            return by_latency(case, polled)
        counts = yield from hops.count(wanted, case.endpoints, self._topology, large=False)
        ballots = hops.late_ballots(counts, case.endpoints, case.slow)
        timed = Counted(tuple(hops.timed(counts, case.slow)))
        if not any(ballot.lost for ballot in ballots):
            return by_latency(case, _left_open(polled, ties), timed)
        borne_out = hops.judge(counts, ballots, case.endpoints, self._topology)
        return by_latency(case, poll_latency_again(polled, ballots, borne_out=borne_out), timed)


def _left_open(polled: Poll, ties: Sequence[Election]) -> Poll:
    """Return a poll that no router's time decides: none was late any more.

    Routers are timed after the window. What has passed by then, or comes and goes, would acquit all
    that it was slow on, and leave whatever nobody timed.
    """
    doubted = [replace(each, doubtful=True) if each in ties else each for each in polled.elections]
    return replace(polled, elections=tuple(doubted))
