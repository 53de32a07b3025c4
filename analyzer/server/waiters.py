# SPDX-License-Identifier: Apache-2.0
"""Long polls: requests that wait for a key to change."""

import asyncio
from collections import defaultdict
from collections.abc import Collection


class Waiters:
    """Requests that wait for keys to change; none waits longer than the server lives."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """Whether the server is stopping."""
        return self._stopping

    def __len__(self) -> int:
        return sum(len(futures) for futures in self._waiting.values())

    def ticket(self, key: str) -> "asyncio.Future[None]":
        """Return a future for the next change of `key`; take it before reading the state."""
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._stopping:
            ticket.set_result(None)
        else:
            self._waiting[key].add(ticket)
        return ticket

    def discard(self, key: str, ticket: "asyncio.Future[None]") -> None:
        """Give a ticket back."""
        self._waiting[key].discard(ticket)
        if not self._waiting[key]:
            del self._waiting[key]

    def wake(self, keys: Collection[str]) -> None:
        """Wake the requests that wait for `keys`."""
        for key in keys:
            for ticket in self._waiting.pop(key, ()):
                if not ticket.done():
                    ticket.set_result(None)

    def stop(self) -> None:
        """Wake all requests, and let no later one wait."""
        self._stopping = True
        self.wake(list(self._waiting))
