# SPDX-License-Identifier: Apache-2.0
"""Who holds up a job that stands still.

Each rank waits where it has begun something that is not over; that needs ranks which have not come
to it, or, where all have come, is held up by those that have something before it. The ends of these
chains hold the job up: a rank that waits for nobody, a meeting to which all came and that does not
end, or a circle. So whoever is late because it waits itself is not named.

After Aegis (NSDI '25, section 4.2: who has begun fewer collectives than its group) and C4D (HPCA
'25: communication and non-communication hangs); what ranks do differently is told from that first,
as PyTorch's `torchfrtrace` does.
"""

from analyzer.detect.operators.chains import Ends, ends_of
from analyzer.detect.operators.late import late, unseen
from analyzer.detect.operators.mismatch import mismatches
from analyzer.detect.operators.odd import circle, mismatched
from analyzer.detect.operators.stuck import stuck
from analyzer.detect.operators.verdict import Holdup, Verdict
from analyzer.detect.operators.waits import Waits
from analyzer.detect.operators.wording import ranks_of, waiting_of
from analyzer.operators.log import Log

MOST_LOOKED = 1 << 24
"""Most members of all operations that are not over, summed up. Chosen: some ten seconds; a job of
10,000 ranks that stands still has some hundred such operations of all of them."""


def judge(log: Log) -> Verdict | None:
    """Return who holds up a job that stands still; None where none does, and others may judge."""
    if len(log) == 0:
        return _nothing_logged(log)
    waits = Waits(log)
    if not waits.waiting:
        return None
    if sum(len(waits.members(each)) for each in waits.meetings) > MOST_LOOKED:
        return _too_many(waits)
    found = list(mismatches(waits))
    return mismatched(waits, found) if found else _ended(waits)


def _too_many(waits: Waits) -> Verdict:
    return Verdict(
        Holdup.INSUFFICIENT,
        f"{len(list(waits.meetings))} operations are not over, too many to tell who waits for whom",
        missing=("a log of fewer operations",),
    )


def _ended(waits: Waits) -> Verdict | None:
    ends = ends_of(waits, first=True)
    if not ends.late and not ends.stuck:
        wider = ends_of(waits, first=False)
        ends = wider if wider.late else ends
    if ends.late:
        return late(waits, ends)
    if ends.unknown and not ends.unseen:
        return _unknown(waits, ends)
    if ends.circles:
        return circle(waits, ends)
    if ends.unseen:
        return unseen(waits, ends)
    return stuck(waits, ends)


def _nothing_logged(log: Log) -> Verdict | None:
    if not log.silent and not log.unseen:
        return None
    return Verdict(
        Holdup.INSUFFICIENT,
        f"none of {len(log.silent)} logs has an operator in it",
        missing=("a log with operators: was the recorder on?",),
    )


def _unknown(waits: Waits, ends: Ends) -> Verdict:
    ranks = sorted({rank for each in ends.unknown for rank in waits.waiters(each)})
    return Verdict(
        Holdup.INSUFFICIENT,
        f"{ranks_of(ranks)} wait where the logs do not say for whom",
        evidence=waiting_of(waits),
        missing=("who is in each group, as newer recorders say it",),
    )
