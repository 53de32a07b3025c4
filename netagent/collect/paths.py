# SPDX-License-Identifier: Apache-2.0
"""Which traced paths a window's summary has to say: all once in a minute, then what differs. Pure.

What differs is said in every summary until all are said again. So a summary that is lost, or an
analyzer that starts anew, misses no more than the rest of a minute.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

from netagent.model.ids import FlowId

WHOLE_NS = 60_000_000_000
"""Nanoseconds from one window with all paths to the next one. Chosen: half of the time that an
analyzer reads again after a restart; an agent takes a minute to trace all of its flows again."""


@dataclass(frozen=True, slots=True)
class TracedPath:
    """Outer path of one direction of a flow."""

    flow: FlowId
    reply: bool
    outer_port: int
    hops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PathsToSay:
    """What a summary says of paths."""

    rows: tuple[TracedPath, ...]
    whole_ns: int = 0
    """Start of the window that had all of the paths from which these differ; 0: these are all."""


class PathNews:
    """What was said of the paths of one host, and what is to be said next."""

    def __init__(self, host: str) -> None:
        # Without the difference all hosts would say all in one and the same window.
        self._phase_ns = crc32(host.encode()) * WHOLE_NS >> 32
        self._whole: dict[tuple[FlowId, bool], TracedPath] = {}
        self._whole_ns = 0

    def of(self, traced: Iterable[TracedPath], *, start_ns: int) -> PathsToSay:
        """Return what the summary says of a window that began at `start_ns` (Unix time).

        Of one that is gone nothing is said until all are said again: of a host some port that roams
        goes in nearly every window.
        """
        paths = {(each.flow, each.reply): each for each in traced}
        news = [each for key, each in paths.items() if self._whole.get(key) != each]
        if (
            not self._whole_ns
            or self._minute(start_ns) != self._minute(self._whole_ns)
            or start_ns <= self._whole_ns
            or 2 * len(news) > len(paths)
        ):
            self._whole, self._whole_ns = paths, start_ns
            return PathsToSay(tuple(paths.values()))
        return PathsToSay(tuple(news), self._whole_ns)

    def _minute(self, at_ns: int) -> int:
        return (at_ns + self._phase_ns) // WHOLE_NS
