# SPDX-License-Identifier: Apache-2.0
"""Whether the analyzer's own disk takes what it is given, since when not, and how long it takes.

Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

MINUTE_NS = 60 * 10**9
"""Nanoseconds for which the longest write counts, to twice that. Chosen: a dozen windows."""
SLOW_NS = 2_000_000_000
"""Nanoseconds from which a write is told as slow. Chosen: a disk takes milliseconds, and the burst
of a large cluster a second; a window waits for what is being stored."""


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
    _errors: dict[str, str] = field(default_factory=dict)
    """Kind of what is refused -> why."""
    _longest: dict[int, int] = field(default_factory=dict)
    """Minute, this one and the one before -> nanoseconds that the longest write in it took."""

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
        """Note how long it was until something was stored."""
        minute = now_ns // MINUTE_NS
        longest = max(took_ns, self._longest.get(minute, 0))
        before = self._longest.get(minute - 1, 0)
        self._longest = {minute - 1: before, minute: longest}

    def longest_ns(self, now_ns: int) -> int:
        """Return how long the longest write of the newest minute or two took."""
        minute = now_ns // MINUTE_NS
        return max(self._longest.get(each, 0) for each in (minute - 1, minute))
