# SPDX-License-Identifier: Apache-2.0
"""Which windows a chaos run's database must hold, and who may be accused on the way. Pure."""

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

WINDOW_NS = 5_000_000_000
STARTING_NS = 2_000_000_000
"""An agent counts its first window once it has found its endpoints."""
_NAME = re.compile(r"[\w-]+")


@dataclass(slots=True)
class Stretch:
    """Between two moments at which the clock was set."""

    began_ns: int
    """Unix time, as it was set then."""
    acknowledged: dict[str, set[int]] = field(default_factory=dict)
    """Host -> window starts that its agent said were acknowledged."""
    counted: dict[str, set[int]] = field(default_factory=dict)
    """Host -> window starts that its agent said it had closed."""
    dead: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Host -> from when to when its agent was dead, or had no memory, Unix ns."""
    full_until_ns: int | None = None
    """Until when the analyzer's disk was full last, Unix ns; None where it never was."""

    def note(self, host: str, acknowledged_ns: int, counted_ns: int, *, now_ns: int) -> None:
        """Take what an agent says; it may still say what was before the clock was set.

        It says 0 until there is any.
        """
        said = (self.acknowledged, acknowledged_ns), (self.counted, counted_ns)
        for book, start_ns in said:
            if start_ns and self.began_ns - WINDOW_NS <= start_ns <= now_ns:
                book.setdefault(host, set()).add(start_ns)

    def wanted(self, host: str) -> list[int]:
        """Return the starts of a host's windows that must be in the database, the oldest first.

        What its agent said was acknowledged, and, since agents ship the oldest first, what it had
        closed before the last of these, but for windows in which it was dead: it takes the one that
        it is counting with it. An agent that stands still for longer than a window closes fewer.
        """
        known, dead = self.acknowledged.get(host, set()), self.dead.get(host, [])
        if not known:
            return []
        lived = {
            start
            for start in self.counted.get(host, set())
            if min(known) <= start <= max(known)
            and not any(
                start < until + STARTING_NS and since < start + WINDOW_NS for since, until in dead
            )
        }
        return sorted(known | lived)


class Missing(NamedTuple):
    """Of what must be there, what is not."""

    wanted: int
    freed: int
    """The oldest of their host, where some may have been deleted to make room."""
    lost: list[tuple[str, int]]
    """Host, and start of the window."""


def missing(stretches: Sequence[Stretch], kept: Iterable[tuple[str, int]]) -> Missing:
    """Compare what must be there with what is: (host, start of the window), one for each summary.

    Where a clock went back, windows of one start are there twice. Room is made by deleting what is
    oldest while the disk is full: a host's oldest windows may be gone, but none that began when it
    was full for the last time, or later, and none after one that is not gone.
    """
    left, lost = Counter(kept), list[tuple[str, int]]()
    total = freed = 0
    for host in sorted({host for each in stretches for host in each.acknowledged}):
        wanted = [start for each in stretches for start in each.wanted(host)]
        found = deque[bool]()
        for start in reversed(wanted):
            found.appendleft(left[host, start] > 0)
            left[host, start] -= 1
        gone = min(found.index(True), _freeable(stretches, host)) if True in found else 0
        freed += gone
        pairs = zip(wanted[gone:], list(found)[gone:], strict=True)
        lost += [(host, start) for start, is_there in pairs if not is_there]
        total += len(wanted)
    return Missing(total, freed, lost)


def _freeable(stretches: Sequence[Stretch], host: str) -> int:
    """Return how many of a host's oldest windows may have been deleted to make room."""
    before = most = 0
    for each in stretches:
        wanted, until_ns = each.wanted(host), each.full_until_ns
        if until_ns is not None:
            most = before + sum(start < until_ns for start in wanted)
        before += len(wanted)
    return most


def is_innocent(component: str, containers: Mapping[str, str], victims: set[str]) -> bool:
    """Return whether none of the hosts of a component, `<kind> <name>`, is among the victims.

    `containers` are the hosts of containers, by their ids.
    """
    _, _, name = component.partition(" ")
    names = _NAME.findall(name)
    return not victims & {containers.get(each, each) for each in names}
