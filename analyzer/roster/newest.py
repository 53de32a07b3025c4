# SPDX-License-Identifier: Apache-2.0
"""What hosts said last of one thing that they say once a minute, and as it changes. Pure.

Nothing of it is kept over a restart: a host has said it again within a minute.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from analyzer.intake.windows import AHEAD_NS

FORGET_NS = 180 * 10**9
"""Nanoseconds after which what a host said is dropped. Chosen: it says it once a minute, and not at
all once there is no such thing any more."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Said(Generic[T]):
    """What a host said."""

    state: T
    start_ns: int
    """Start of the window of which it was said, by the host's clock."""
    heard_ns: int
    """When that came in, by the analyzer's Unix time."""


class Newest(Generic[T]):
    """The newest state of each host. `now_ns` is the analyzer's Unix time.

    `expire` once a minute bounds what is remembered.
    """

    def __init__(self) -> None:
        self._said: dict[str, Said[T]] = {}

    @property
    def said(self) -> Mapping[str, Said[T]]:
        """What each host said last; it changes as hosts say more."""
        return MappingProxyType(self._said)

    def take(self, host: str, start_ns: int, state: T, now_ns: int) -> None:
        """Take what a host said in the window from `start_ns`, unless it said newer things.

        What is said of long ago, or by a clock that is far ahead, is passed over.
        """
        if not now_ns - FORGET_NS < start_ns <= now_ns + AHEAD_NS:
            return
        known = self._said.get(host)
        # A window of the future is one of a clock that went back since.
        if known is None or not start_ns < known.start_ns <= now_ns:
            self._said[host] = Said(state, start_ns, now_ns)

    def drop(self, host: str) -> None:
        """Forget a host."""
        self._said.pop(host, None)

    def expire(self, now_ns: int) -> None:
        """Forget what was said long ago."""
        old = [host for host, said in self._said.items() if said.heard_ns <= now_ns - FORGET_NS]
        for host in old:
            self.drop(host)
