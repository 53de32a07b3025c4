# SPDX-License-Identifier: Apache-2.0
"""Ranks that do otherwise than most, or wait for each other in a circle."""

from collections.abc import Iterable, Iterator, Sequence

from analyzer.detect.operators.chains import Ends
from analyzer.detect.operators.mismatch import Done, Mismatch
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who
from analyzer.detect.operators.waits import Meeting, Node, Waits
from analyzer.detect.operators.wording import (
    DOUBTED,
    doing,
    missing_of,
    rank_of,
    ranks_of,
    waiting_of,
    where,
)

ODD_CONFIDENCE = 0.9
"""Of ranks that do other than most of their group. Chosen."""


def mismatched(waits: Waits, found: Sequence[Mismatch]) -> Verdict:
    """Name the ranks that do other than most of their group."""
    culprits: dict[tuple[int, ...], Culprit] = {}
    for each in found:
        for culprit in _odd(waits, each):
            culprits.setdefault(culprit.ranks, culprit)
    first = found[0]
    name = waits.log.groups[first.group].name
    return Verdict(
        Holdup.MISMATCH,
        f"ranks of {name} do not do the same at {first.sequence}",
        tuple(sorted(culprits.values(), key=lambda each: each.ranks)),
        evidence=(*(line for each in found for line in _differences(waits, each)),),
        missing=missing_of(waits),
    )


def _odd(waits: Waits, found: Mismatch) -> Iterator[Culprit]:
    name = waits.log.groups[found.group].name
    if not found.odd:
        why = f"they do different things at {found.sequence} of {name}, and no half of them agrees"
        yield Culprit(Who.GROUP, tuple(sorted(found.done)), ODD_CONFIDENCE * DOUBTED, why)
        return
    others = len(found.done) - len(found.odd)
    for rank in found.odd:
        why = (
            f"rank {rank} does {doing(found.done[rank])} at {found.sequence} of {name},"
            f" {others} others {doing(found.most)}"
        )
        yield rank_of(waits, (rank,), ODD_CONFIDENCE, why)


def _differences(waits: Waits, found: Mismatch) -> Iterator[str]:
    by_done: dict[Done, list[int]] = {}
    for rank, done in sorted(found.done.items()):
        by_done.setdefault(done, []).append(rank)
    name = waits.log.groups[found.group].name
    for done, ranks in by_done.items():
        yield f"{found.sequence} of {name}: {doing(done)} at {ranks_of(ranks)}"


def circle(waits: Waits, ends: Ends) -> Verdict:
    """Name who stands elsewhere than most, of ranks that wait for each other in a circle."""
    culprits = [culprit for circle in ends.circles for culprit in _in_circle(waits, circle)]
    ranks = {node for circle in ends.circles for node in circle if isinstance(node, int)}
    return Verdict(
        Holdup.MISMATCH,
        f"{ranks_of(sorted(ranks))} wait for each other in a circle",
        tuple(culprits),
        evidence=waiting_of(waits),
        missing=missing_of(waits),
    )


def _in_circle(waits: Waits, circle: Iterable[Node]) -> Iterator[Culprit]:
    nodes = list(circle)
    ranks = sorted(each for each in nodes if isinstance(each, int))
    meetings = [each for each in nodes if isinstance(each, Meeting)]
    odd = _fewest_late(waits, meetings) or _other_order(waits, ranks, meetings)
    if not odd:
        places = ", ".join(where(waits, each) for each in meetings[:2])
        why = f"each waits for another where that one is not: {places}"
        yield Culprit(Who.GROUP, tuple(ranks), ODD_CONFIDENCE * DOUBTED, why)
    for rank in odd:
        meeting = waits.first(rank)
        there = f"waits in {where(waits, meeting)}" if meeting else "waits nowhere"
        others = [each for each in ranks if each not in odd]
        elsewhere = {waits.first(each) for each in others} - {meeting, None}
        places = ", ".join(where(waits, each) for each in list(elsewhere)[:2] if each)
        yield rank_of(waits, (rank,), ODD_CONFIDENCE, f"rank {rank} {there}, others in {places}")


def _fewest_late(waits: Waits, meetings: Sequence[Meeting]) -> list[int]:
    """Return the ranks that are late where fewest are, and of such places where most wait.

    Whoever left one operation out is late to that one alone; else all others were odd together.
    """
    counts = {
        each: (len(late), -len(waits.first_here(each)))
        for each in meetings
        if (late := waits.late(each))
    }
    least = min(counts, key=lambda each: counts[each], default=None)
    if least is None or list(counts.values()).count(counts[least]) > 1:
        return []
    return waits.late(least)


def _other_order(waits: Waits, ranks: Sequence[int], meetings: Sequence[Meeting]) -> list[int]:
    """Return the ranks that are not where most are first, where all came to all places."""
    if any(waits.late(each) for each in meetings):
        return []
    counts = {each: len(waits.first_here(each)) for each in meetings}
    most = max(counts, key=lambda each: counts[each])
    if 2 * counts[most] <= sum(counts.values()):
        return []
    return [rank for rank in ranks if waits.first(rank) != most]
