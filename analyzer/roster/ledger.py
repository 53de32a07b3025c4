# SPDX-License-Identifier: Apache-2.0
"""Entries by key, and what changed of them since a state that somebody has.

A state is named by its content. So whoever has the same entries has the same state, whichever
process told them of it.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from netagent.wire.codec import array, encode
from netagent.wire.messages import Peer
from netagent.wire.roster import Member, digest_of, digest_of_all

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
        self._entries: dict[str, tuple[bytes, bytes]] = {}  # key -> digest, encoded
        self._digests: list[bytes] = []  # in ascending order
        self._digest: bytes | None = None
        """The present state's name, once somebody asked for it: others have no other states."""
        self._log: deque[tuple[bytes | None, str]] = deque()
        """Name of the state before each change, and whose change it was."""
        self._first = 0  # number of the oldest change that is remembered
        self._numbers: dict[bytes, int] = {}
        """Name of a state -> number of the change that ended it."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    @property
    def digest(self) -> bytes:
        """The present state's name."""
        if self._digest is None:
            self._digest = digest_of_all(self._digests)
        return self._digest

    def put(self, key: str, entry: Member | Peer) -> None:
        """Add an entry, or replace it."""
        digest, (before, _) = digest_of(entry), self._entries.get(key, (b"", b""))
        if digest == before:
            return
        self._note(key)
        self._remove(before)
        insort(self._digests, digest)
        self._entries[key] = digest, encode(entry)

    def drop(self, key: str) -> None:
        """Remove an entry, if it is there."""
        if key in self._entries:
            self._note(key)
            self._remove(self._entries.pop(key)[0])

    def since(self, digest: bytes | None) -> Changes:
        """Return what changed since the state `digest`; all of it, where that is not known."""
        if digest == self.digest:
            return Changes(whole=False, put=array(()), gone=())
        number = self._numbers.get(digest) if digest is not None else None
        if number is None:
            everything = array([entry for _, entry in self._entries.values()])
            return Changes(whole=True, put=everything, gone=())
        changed = {self._log[n][1] for n in range(number - self._first, len(self._log))}
        there = [self._entries[key][1] for key in sorted(changed & self._entries.keys())]
        return Changes(
            whole=False, put=array(there), gone=tuple(sorted(changed - self._entries.keys()))
        )

    def _remove(self, digest: bytes) -> None:
        if digest:
            del self._digests[bisect_left(self._digests, digest)]

    def _note(self, key: str) -> None:
        if self._digest is not None:
            self._numbers[self._digest] = self._first + len(self._log)
        self._log.append((self._digest, key))
        self._digest = None
        while len(self._log) > len(self._entries) + SPARE:
            digest, _ = self._log.popleft()
            if digest is not None and self._numbers.get(digest) == self._first:
                del self._numbers[digest]
            self._first += 1
