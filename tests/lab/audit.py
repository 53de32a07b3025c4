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
    dead: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Host -> from when to when its agent was dead, or had no memory, Unix ns."""

    def note(self, host: str, start_ns: int, *, now_ns: int) -> None:
        """Take what an agent says; it may still say what was before the clock was set."""
        if self.began_ns - WINDOW_NS <= start_ns <= now_ns:
            self.acknowledged.setdefault(host, set()).add(start_ns)

    def wanted(self, host: str) -> list[int]:
        """Return the starts of a host's windows that must be in the database, the oldest first.

        What its agent said of itself, and, since agents ship the oldest first, all from the first
        of these to the last, but for those in which it was dead: it takes the window that it is
        counting with it.
        """
        known, dead = self.acknowledged.get(host, set()), self.dead.get(host, [])
        if not known:
            return []
        between = range(min(known), max(known) + 1, WINDOW_NS)
        lived = {
            start
            for start in between
            if not any(
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


def missing(
    stretches: Sequence[Stretch], kept: Iterable[tuple[str, int]], *, may_free: bool
) -> Missing:
    """Compare what must be there with what is: (host, start of the window), one for each summary.

    Where a clock went back, windows of one start are there twice. Room is made by deleting what is
    oldest, so with `may_free` a host's oldest windows may be gone, and none after one that is not.
    """
    left, lost = Counter(kept), list[tuple[str, int]]()
    total = freed = 0
    for host in sorted({host for each in stretches for host in each.acknowledged}):
        wanted = [start for each in stretches for start in each.wanted(host)]
        found = deque[bool]()
        for start in reversed(wanted):
            found.appendleft(left[host, start] > 0)
            left[host, start] -= 1
        gone = found.index(True) if may_free and True in found else 0
        freed += gone
        pairs = zip(wanted[gone:], list(found)[gone:], strict=True)
        lost += [(host, start) for start, is_there in pairs if not is_there]
        total += len(wanted)
    return Missing(total, freed, lost)


def is_innocent(component: str, containers: Mapping[str, str], victims: set[str]) -> bool:
    """Return whether none of the hosts of a component, `<kind> <name>`, is among the victims.

    `containers` are the hosts of containers, by their ids.
    """
    _, _, name = component.partition(" ")
    names = _NAME.findall(name)
    return not victims & {containers.get(each, each) for each in names}
