# SPDX-License-Identifier: Apache-2.0
"""The vote on a window's slowness, settled by where routers begin to answer late."""

from dataclasses import replace

from analyzer.localize.case import Case, Explained
from analyzer.localize.contract import Context
from analyzer.localize.voting.ballots import (
    Counted,
    Poll,
    by_latency,
    poll_latency,
    poll_latency_again,
    sprayed,
)
from analyzer.localize.voting.counting import acquittal, asking, choosing, lateness, proof, quoting
from analyzer.localize.voting.counting.counts import FABRIC
from analyzer.questions import Asking
from netagent.model.path import Kind


class Latency:
    """Votes on flows that became slow."""

    settles = False

    def __init__(self, context: Context) -> None:
        self._topology = context.topology
        self._doubts = context.doubts

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return the verdict on the slow among the flows, if a component stands out."""
        flows = self._doubts.leave(case, case.votable())
        polled = sprayed(poll_latency(case, flows, self._topology), self._topology)
        if self._topology.sprays:
            return by_latency(case, polled, Counted())
        ties = [e for e in polled.elections if choosing.worth_counting(e)]
        slow = [replace(view, lost=1) for view in flows.where(flows.among(case.slow))]
        wanted = choosing.choose(ties, slow, case.endpoints, self._topology)
        if not wanted:
            return by_latency(case, polled)
        counts = yield from asking.count(wanted, case.endpoints, self._topology, large=False)
        ballots = lateness.late_ballots(counts, case.endpoints, case.slow)
        timed = Counted(tuple(quoting.timed(counts, case.slow)))
        borne_out = proof.judge(counts, ballots, case.endpoints, self._topology)
        if borne_out is None and not any(ballot.lost for ballot in ballots):
            # It has passed by now, or comes and goes, or is less than routers show: that would
            # acquit all that they were timed through, and leave whatever nobody timed.
            return by_latency(case, _without_ties(polled), timed)
        suspects = [suspect for each in polled.elections for suspect in each.suspects]
        switches = {each for each in case.standing if each.kind is Kind.SWITCH}
        cleared = acquittal.beyond(suspects, counts, switches - acquittal.switches(counts))
        again = poll_latency_again(polled, ballots, cleared, borne_out=borne_out)
        if borne_out is None:
            late = proof.shown_at_fault(ballots)
            kept = proof.ruled_out(again.elections, polled.elections, late)
            kept = proof.links_first(kept, polled.elections, late)
            again = replace(again, elections=kept)
        return by_latency(case, again, timed)


def _without_ties(polled: Poll) -> Poll:
    """Return a poll that names no link that probes alone hardly tell from another one.

    Of a host, routers do not tell anything.
    """
    return replace(
        polled,
        elections=tuple(
            replace(each, doubtful=True)
            if len(each.tied) > 1 and FABRIC.issuperset(part.kind for part in each.tied)
            else each
            for each in polled.elections
        ),
    )
