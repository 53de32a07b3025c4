# SPDX-License-Identifier: Apache-2.0
"""The vote on a window's losses, with packets counted per router where it is a tie."""

from analyzer.detect.flows import FlowView
from analyzer.localize.case import Case, Explained
from analyzer.localize.contract import Context
from analyzer.localize.voting import hops
from analyzer.localize.voting.ballots import Counted, Poll, by_votes, left, poll, poll_again, pool
from analyzer.questions import Asking

POOLED = 6
"""Most windows in a row whose probes are voted on together. Chosen: half a minute shows a loss of
three in a thousand on a link that some hundred flows cross."""


class Votes:
    """Votes on losses, window after window."""

    settles = False
    _before: tuple[tuple[int, Poll], ...] = ()
    """End (ns) of the newest windows in a row, newest first, and what nobody was named for."""

    def __init__(self, context: Context) -> None:
        self._topology = context.topology
        self._doubts = context.doubts

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
        before = self._in_a_row(case)
        now = (case.window.end_ns, left(polled))
        self._before = (now, *self._before[: len(before)])[: POOLED - 1]
        if not polled.poor or not before:
            return polled, flows
        # A component that loses little needs more probes than are sent in one window.
        for count in sorted({1, len(before)}):
            pooled = pool(polled, before[:count], case)
            if _agrees(pooled, polled):
                return pooled, tuple(pooled.ballots.values())
        if _shared(pooled) and not _shared(polled):
            return pooled, tuple(pooled.ballots.values())  # packets that are counted may decide
        return polled, flows

    def _in_a_row(self, case: Case) -> list[Poll]:
        """Return what the windows before left, newest first, as far as they follow each other."""
        found: list[Poll] = []
        for n, (end_ns, polled) in enumerate(self._before):
            if end_ns != case.window.start_ns - n * case.window.width_ns:
                break
            found.append(polled)
        return found


def _shared(polled: Poll) -> bool:
    return any(election.shared for election in polled.elections)


def _agrees(pooled: Poll, polled: Poll) -> bool:
    """Return whether this window alone suspects what several windows together accuse."""
    suspected = {component for election in polled.elections for component in election.tied}
    named = [election.suspects[0].component for election in pooled.elections if election.decided]
    return bool(named) and (not suspected or suspected.issuperset(named))
