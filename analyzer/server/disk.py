# SPDX-License-Identifier: Apache-2.0
"""Whether the analyzer's own disk takes what it is given, since when not, and how long it takes.

Pure.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

MINUTE_NS = 60 * 10**9
"""Nanoseconds for which the longest write counts, to twice that. Chosen: a dozen windows."""
SLOW_NS = 2_000_000_000
"""Nanoseconds from which a write is told as slow. Chosen: a disk takes milliseconds, and the burst
of a large cluster a second; a window waits for what is being stored."""
SYNCS = 4
"""Most syncs that a summary waits for, one after the other: of its bytes, of where they are, and
both of those that were being stored when it came."""


@dataclass(slots=True)
class Longest:
    """The longest of what took some time lately."""

    _of: dict[int, int] = field(default_factory=dict)
    """Minute, this one and the one before -> nanoseconds of the longest in it."""

    def took(self, took_ns: int, now_ns: int) -> None:
        """Note how long something took."""
        minute = now_ns // MINUTE_NS
        longest = max(took_ns, self._of.get(minute, 0))
        before = self._of.get(minute - 1, 0)
        self._of = {minute - 1: before, minute: longest}

    def ns(self, now_ns: int) -> int:
        """Return how long the longest of the newest minute or two took."""
        minute = now_ns // MINUTE_NS
        return max(self._of.get(each, 0) for each in (minute - 1, minute))


@dataclass(slots=True)
class Disk:
    """What became of the newest write of each kind: a small one may fit where a large one fails."""

    refused: Callable[[int], None]
    """Is told of each refusal, at Unix nanoseconds: what agents cannot deliver is not their fault.
    """
    since_ns: int | None = None
    """When it began to refuse; None while it takes all."""
    refusals: int = 0
    """How often it refused since the start."""
    storing: Longest = field(default_factory=Longest)
    """How long it was until something was stored."""
    syncing: Longest = field(default_factory=Longest)
    """How long the disk took to sync; kept as long as what waited for it."""
    synced: deque[int] = field(default_factory=lambda: deque(maxlen=1024))
    """Nanoseconds of syncs since something was stored last, by the thread that made them."""
    _errors: dict[str, str] = field(default_factory=dict)
    """Kind of what is refused -> why."""

    @property
    def takes(self) -> bool:
        """Whether the newest write of each kind was taken."""
        return not self._errors

    @property
    def error(self) -> str:
        """Why it refuses; empty while it takes all."""
        return next(iter(self._errors.values()), "")

    def failed(self, kind: str, error: str, now_ns: int) -> bool:
        """Note a refusal; return whether everything was taken before."""
        first = not self._errors
        self.refusals += 1
        if first:
            self.since_ns = now_ns
        self._errors[kind] = error
        self.refused(now_ns)
        return first

    def worked(self, kind: str) -> bool:
        """Note that something was written; return whether nothing is refused any more."""
        was_refused = self._errors.pop(kind, None) is not None
        if not self._errors:
            self.since_ns = None
        return was_refused and not self._errors

    def took(self, took_ns: int, now_ns: int) -> None:
        """Note how long it was until something was stored, and the syncs of it."""
        before_ns = self.syncing.ns(now_ns) if took_ns >= SLOW_NS else 0
        syncs = [self.synced.popleft() for _ in range(len(self.synced))]
        self.syncing.took(max(before_ns, *syncs, 0), now_ns)
        self.storing.took(took_ns, now_ns)

    def sync_ns(self, now_ns: int) -> int:
        """Return how long the longest sync of the newest minute or two took."""
        return max(self.syncing.ns(now_ns), max(self.synced, default=0))


def why_late(storing_ns: int, sync_ns: int) -> str:
    """Return why it took so long until something was stored, in words."""
    if SYNCS * sync_ns * 2 >= storing_ns:  # half of it, or more
        return "its disk is slow, or busy; so is what it tells"
    said = f"its disk takes {sync_ns / 1e9:.2f} s at most"
    return f"not by its disk ({said}), so by too little CPU, most likely; so is what it tells"
