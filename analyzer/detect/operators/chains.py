# SPDX-License-Identifier: Apache-2.0
"""Where chains of waiting end: whom others wait for, and that wait for nobody."""

from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.detect.operators.sinks import sinks
from analyzer.detect.operators.waits import Meeting, Node, Waits


@dataclass(frozen=True, slots=True)
class Ends:
    """Where the chains of waiting end."""

    late: tuple[int, ...]
    """Ranks with a log that wait for nobody, and for which somebody waits."""
    unseen: tuple[int, ...]
    stuck: tuple[Meeting, ...]
    circles: tuple[tuple[Node, ...], ...]
    unknown: tuple[Meeting, ...] = ()
    """Where a rank waits, and nobody says for whom."""


def ends_of(waits: Waits, *, first: bool) -> Ends:
    """Return the ends of all chains; `first`: only where a rank waits first counts."""
    late: list[int] = []
    unseen: list[int] = []
    stuck: list[Meeting] = []
    circles: list[tuple[Node, ...]] = []
    unknown: list[Meeting] = []
    starts: Sequence[Node] = waits.waiting
    for end in sinks(starts, lambda node: waits.onwards(node, first=first)):
        match end:
            case (int() as rank,):
                own = waits.first(rank)
                if own is not None and not waits.awaited(rank):
                    stuck += [own] if own not in stuck else []
                else:
                    (late if rank in waits.seen else unseen).append(rank)
            case (Meeting() as meeting,):
                (unknown if waits.is_alone(meeting) else stuck).append(meeting)
            case _:
                circles.append(end)
    return Ends(
        tuple(sorted(late)), tuple(sorted(unseen)), tuple(stuck), tuple(circles), tuple(unknown)
    )
