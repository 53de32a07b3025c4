# SPDX-License-Identifier: Apache-2.0
"""The order and the frequency in which addresses are resolved. Does no I/O, reads no clock.

Theory of operation. An address is wanted, asked for, and then resolved or silent:

    wanted --asked--> asking --answered--> resolved   asked again after REFRESH_NS
                             --refused---> silent     asked again after 1, 2, 4 ... MAX_BACKOFF_NS
                             --timeout---> silent

A silent address costs a helper a second each time. So never-asked addresses come first, then
whichever has been due longest. An address that was resolved once stays usable while it is asked
about again: its neighbour may be deaf for a moment, or dead, which the probes will show.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

REFRESH_NS = 60_000_000_000
"""Nanoseconds from an address's answer until it is resolved anew: its neighbour may have another
MAC address. Chosen: losses find a change sooner (`HURRY_NS`)."""
FIRST_BACKOFF_NS = 1_000_000_000
"""Nanoseconds before a silent address is asked about again; each further wait doubles. Chosen: a
silent neighbour costs a helper a second."""
MAX_BACKOFF_NS = 10_000_000_000
"""Longest wait in nanoseconds before a silent address is asked about again. Chosen: a neighbour
that comes up is found within ten seconds."""
HURRY_NS = 5_000_000_000
"""Nanoseconds, at least, between two resolutions of an address whose probes are lost. Chosen: a
dead target does not occupy a helper."""
TIMEOUT_NS = 5_000_000_000
"""Nanoseconds after which a question counts as never to be answered. Chosen: a silent neighbour
takes one second, and the helper kills its fork after three."""

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Wanted:
    due_ns: int
    asked_ns: int = -1
    """When the question was asked that waits for its answer (monotonic); -1 where none does."""
    tries: int = 0
    failures: int = 0
    """Refusals and timeouts since it was resolved last."""
    answered_ns: int = 0


class ResolutionPlan(Generic[K]):
    """All wanted addresses, and when to ask about each."""

    def __init__(self) -> None:
        self._wanted: dict[K, _Wanted] = {}

    def want(self, key: K, *, now_ns: int) -> None:
        """Resolve `key` from now on, if it is not already."""
        if key not in self._wanted:
            self._wanted[key] = _Wanted(now_ns)

    def forget(self, key: K) -> None:
        """Resolve `key` no more."""
        self._wanted.pop(key, None)

    def wanted(self) -> list[K]:
        """Return all wanted addresses."""
        return list(self._wanted)

    def next(self, *, now_ns: int) -> K | None:
        """Return what to ask about now; it counts as asked."""
        due = [
            (wanted.tries > 0, wanted.due_ns, number, key)
            for number, (key, wanted) in enumerate(self._wanted.items())
            if wanted.asked_ns < 0 and wanted.due_ns <= now_ns
        ]
        if not due:
            return None
        key = min(due, key=lambda each: each[:3])[3]
        wanted = self._wanted[key]
        wanted.asked_ns = now_ns
        wanted.tries += 1
        return key

    def answered(self, key: K, *, resolved: bool, now_ns: int) -> bool:
        """Account for an answer; return whether it was waited for."""
        wanted = self._wanted.get(key)
        if wanted is None or wanted.asked_ns < 0:
            return False
        wanted.asked_ns, wanted.answered_ns = -1, now_ns
        if resolved:
            wanted.failures = 0
            wanted.due_ns = now_ns + REFRESH_NS
        else:
            backoff_ns = FIRST_BACKOFF_NS << min(wanted.failures, 16)
            wanted.due_ns = now_ns + min(backoff_ns, MAX_BACKOFF_NS)
            wanted.failures += 1
        return True

    def hurry(self, key: K, *, now_ns: int) -> None:
        """Probes of `key` are lost: ask soon, but not more often than every HURRY_NS."""
        wanted = self._wanted.get(key)
        if wanted is not None and not wanted.failures:
            wanted.due_ns = min(wanted.due_ns, max(now_ns, wanted.answered_ns + HURRY_NS))

    def heard(self, key: K, *, now_ns: int) -> None:
        """Something came from `key`, so that it is not silent: ask again a second after."""
        wanted = self._wanted.get(key)
        if wanted is not None:
            soon_ns = max(now_ns, wanted.answered_ns + FIRST_BACKOFF_NS)
            wanted.due_ns = min(wanted.due_ns, soon_ns)

    def forgotten_questions(self) -> None:
        """Ask again what was asked: the helper died with the questions."""
        for wanted in self._wanted.values():
            wanted.asked_ns = -1

    def overdue(self, *, now_ns: int) -> list[K]:
        """Return what was asked too long ago."""
        return [
            key
            for key, wanted in self._wanted.items()
            if wanted.asked_ns >= 0 and now_ns - wanted.asked_ns >= TIMEOUT_NS
        ]
