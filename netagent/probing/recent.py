# SPDX-License-Identifier: Apache-2.0
"""What is remembered of others for a while. Pure.

Containers and source ports come and go for as long as an agent lives, and nobody says which of
those that probe it will not come again. A bound on their number alone is reached after days, in
which memory grows as if it leaked.
"""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A mapping that forgets what was put into it one to two spans ago.

    Two tables, of which the older one goes as a whole: looking for what is old would cost each
    packet. Either has room for half of what may be remembered.
    """

    def __init__(self, *, span_ns: int, most: int) -> None:
        self._span_ns, self._room = span_ns, most // 2
        self._new: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._since_ns = 0
        """When the new table was begun."""

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._new) + len(self._old)

    def put(self, key: K, value: V, *, now_ns: int) -> None:
        """Remember `value`; `now_ns` is of any clock, which may be set."""
        # What a clock that was set back leaves would else stay until it is as late again.
        if abs(now_ns - self._since_ns) >= self._span_ns or len(self._new) >= self._room:
            self._old, self._new, self._since_ns = self._new, {}, now_ns
        self._old.pop(key, None)
        self._new[key] = value

    def get(self, key: K) -> V | None:
        """Return what is remembered; None where nothing is."""
        value = self._new.get(key)
        return self._old.get(key) if value is None else value

    def pop(self, key: K) -> V | None:
        """Return what is remembered, and forget it; None where nothing is."""
        value = self._new.pop(key, None)
        return self._old.pop(key, None) if value is None else value
