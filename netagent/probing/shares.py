# SPDX-License-Identifier: Apache-2.0
"""What several take of one rate, so that none of them takes all of it."""

from collections.abc import Hashable

from netagent.probing.schedule import TokenBucket


class Shares:
    """Half of a rate is theirs in equal parts, half is of whoever needs it.

    One that takes as much as it can leaves all others their part; and all together take no more
    than the rate, with a burst of a second.
    """

    def __init__(self, rate: float, *, now_ns: int) -> None:
        """Begin with nobody."""
        self._half = rate / 2
        self._common = TokenBucket(self._half, self._half, now_ns=now_ns)
        self._own: dict[Hashable, TokenBucket] = {}

    def join(self, who: Hashable, *, now_ns: int) -> None:
        """Give somebody a part; those of the others become smaller."""
        self._divide({*self._own, who}, now_ns)

    def leave(self, who: Hashable, *, now_ns: int) -> None:
        """Let the others have this part."""
        self._divide(self._own.keys() - {who}, now_ns)

    def take(self, who: Hashable, *, now_ns: int) -> bool:
        """Take one token; False where there is none."""
        own = self._own.get(who)
        if own is not None and own.take(1, now_ns=now_ns):
            return True
        return self._common.take(1, now_ns=now_ns)

    def _divide(self, among: set[Hashable], now_ns: int) -> None:
        part = self._half / max(1, len(among))
        self._own = {who: TokenBucket(part, max(1.0, part), now_ns=now_ns) for who in among}
