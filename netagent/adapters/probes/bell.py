# SPDX-License-Identifier: Apache-2.0
"""Which sockets have something, and a bell that rings once for all at which somebody waits.

One epoll set holds every descriptor: one wake-up serves all that is ready. A packet that waits in
its socket is late for nobody, since the kernel has stamped it, and a wake-up costs more than the
packet that causes it. So replies ring no bell: they are read as something else is due. Probes of
others do; they may gather while the host is busy, for GATHER_NS at most, which the responder's
delay therefore includes.
"""

import os
import select
from collections.abc import Iterator
from contextlib import suppress

from netagent.adapters.clock import wall_ns

GATHER_NS = 2_000_000
"""Nanoseconds, at most, that a packet waits for others that the same wake-up serves. Chosen: kernel
stamps make the wait harmless, and a wake-up costs more than a packet (decision 11)."""
_MAX_ROUNDS = 256
"""Packets that one socket yields to a step; the rest of a flood waits for the next step. Chosen: no
socket starves the others."""
_ONCE = select.EPOLLIN | select.EPOLLONESHOT


class Bell:
    """Rings when an urgent descriptor has something, and is then silent until it is set again."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._urgent = select.epoll()
        self._pulled = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_pulled = False
        self.is_empty = True
        """Whether all was taken that was ready."""
        self._urgent.register(self._pulled, select.EPOLLIN)
        self._bell = select.epoll()
        self._bell.register(self._urgent.fileno(), _ONCE)
        self._ready: list[tuple[int, int]] = []
        """What was found ready as the bell rang, and when."""
        self._woken_ns = 0

    def fileno(self) -> int:
        """Return the descriptor that is readable when the bell rings."""
        return self._bell.fileno()

    def close(self) -> None:
        """Close the bell; what it watches is its owner's."""
        self._bell.close()
        self._urgent.close()
        self._epoll.close()
        os.close(self._pulled)

    def watch(self, descriptor: int, *, urgent: bool) -> None:
        """Tell of `descriptor` when it has something; with `urgent`, ring then."""
        self._epoll.register(descriptor, select.EPOLLIN)
        if urgent:
            self._urgent.register(descriptor, select.EPOLLIN)

    def forget(self, descriptor: int) -> None:
        """Tell of `descriptor` no more; to be called before it is closed."""
        self._ready = []  # descriptors are used again
        self._epoll.unregister(descriptor)
        with suppress(FileNotFoundError):  # not every one rings
            self._urgent.unregister(descriptor)

    def ring(self) -> None:
        """Ring as soon as it is set."""
        if not self._is_pulled:
            os.eventfd_write(self._pulled, 1)
            self._is_pulled = True

    def hush(self, *, look: bool) -> None:
        """Be silent until set again; with `look`, note what is ready as early as this."""
        self._bell.poll(0)
        if self._is_pulled:
            os.eventfd_read(self._pulled)
            self._is_pulled = False
        if look:
            self._ready, self._woken_ns = self._epoll.poll(0), wall_ns()

    def set(self) -> None:
        """Ring at the next urgent packet, or at once if there is one."""
        self._bell.modify(self._urgent.fileno(), _ONCE)

    def rounds(self) -> Iterator[tuple[list[tuple[int, int]], int]]:
        """Yield what is ready (descriptor, events) and when it was found so, until nothing is.

        Of a flood a part stays; then `is_empty` is False.
        """
        ready, woken_ns = self._ready, self._woken_ns
        self._ready, self.is_empty = [], True
        for _ in range(_MAX_ROUNDS):
            if not ready:
                ready, woken_ns = self._epoll.poll(0), wall_ns()
            if not ready:
                return
            yield ready, woken_ns
            ready = []
        self.is_empty = False
