# SPDX-License-Identifier: Apache-2.0
"""Entries by key, and what changed of them since a state that somebody has.

A state is named by its content: the sum of its entries' digests. So whoever has the same entries
has the same state, whichever process told them of it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from netagent.wire.codec import array, encode
from netagent.wire.messages import Peer
from netagent.wire.roster import Member, as_bytes, digest_of, summed

SPARE = 16
"""Changes remembered beyond one per entry. Chosen: with more of them, all entries are no longer
than what changed; a small ledger remembers some."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What leads from a state to the present one."""

    whole: bool
    """`put` is all there is."""
    put: bytes
    """Entries that are new or different: a msgpack array."""
    gone: tuple[str, ...]
    """Keys of entries that are no more."""


class Ledger:
    """Entries by key. Every entry is encoded once."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, bytes]] = {}
        self._sum = 0
        self._log: deque[tuple[int, str]] = deque()  # digest before each change, and whose it was
        self._first = 0  # number of the oldest change that is remembered
        self._numbers: dict[int, int] = {}  # digest -> number of the change that ended it

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    @property
    def digest(self) -> bytes:
        """The present state's name."""
        return as_bytes(self._sum)

    def put(self, key: str, entry: Member | Peer) -> None:
        """Add an entry, or replace it."""
        digest, (before, _) = digest_of(entry), self._entries.get(key, (0, b""))
        if digest == before:
            return
        self._note(key)
        self._entries[key] = digest, encode(entry)
        self._sum = summed(self._sum, plus=digest, minus=before)

    def drop(self, key: str) -> None:
        """Remove an entry, if it is there."""
        if key in self._entries:
            self._note(key)
            digest, _ = self._entries.pop(key)
            self._sum = summed(self._sum, minus=digest)

    def since(self, digest: bytes | None) -> Changes:
        """Return what changed since the state `digest`; all of it, where that is not known."""
        state = int.from_bytes(digest, "little") if digest is not None else None
        if state == self._sum:
            return Changes(whole=False, put=array(()), gone=())
        number = self._numbers.get(state) if state is not None else None
        if number is None:
            everything = array([entry for _, entry in self._entries.values()])
            return Changes(whole=True, put=everything, gone=())
        changed = {self._log[n][1] for n in range(number - self._first, len(self._log))}
        there = [self._entries[key][1] for key in sorted(changed & self._entries.keys())]
        return Changes(
            whole=False, put=array(there), gone=tuple(sorted(changed - self._entries.keys()))
        )

    def _note(self, key: str) -> None:
        self._numbers[self._sum] = self._first + len(self._log)
        self._log.append((self._sum, key))
        while len(self._log) > len(self._entries) + SPARE:
            digest, _ = self._log.popleft()
            if self._numbers.get(digest) == self._first:
                del self._numbers[digest]
            self._first += 1
