# SPDX-License-Identifier: Apache-2.0
"""Which sockets have something, and a bell that rings once for all of them.

One epoll set holds every descriptor: one wake-up serves all that is ready. A packet that waits in
its socket is late for nobody, since the kernel has stamped it. A wake-up costs more than the packet
that causes it, so packets may gather while the host is busy: for GATHER_NS at most, which the
responder's and the prober's delays therefore include.
"""

import select
from collections.abc import Iterator

from netagent.adapters.clock import wall_ns

GATHER_NS = 2_000_000
"""Nanoseconds, at most, that a packet waits for others that the same wake-up serves. Chosen: kernel
stamps make the wait harmless, and a wake-up costs more than a packet (DESIGN.md, 11)."""
_MAX_ROUNDS = 256
"""Packets that one socket yields to a step; the rest of a flood waits for the next step. Chosen: no
socket starves the others."""
_ONCE = select.EPOLLIN | select.EPOLLONESHOT


class Bell:
    """Rings when a descriptor has something, and is then silent until it is set again."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._bell = select.epoll()
        self._bell.register(self._epoll.fileno(), _ONCE)
        self._ready: list[tuple[int, int]] = []
        """What was found ready as the bell rang, and when."""
        self._woken_ns = 0

    def fileno(self) -> int:
        """Return the descriptor that is readable when the bell rings."""
        return self._bell.fileno()

    def close(self) -> None:
        """Close the bell; what it watches is its owner's."""
        self._bell.close()
        self._epoll.close()

    def watch(self, descriptor: int) -> None:
        """Ring when `descriptor` has something."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def forget(self, descriptor: int) -> None:
        """Ring for `descriptor` no more; to be called before it is closed."""
        self._ready = []  # descriptors are used again
        self._epoll.unregister(descriptor)

    def hush(self, *, look: bool) -> None:
        """Be silent until set again; with `look`, note what is ready as early as this."""
        self._bell.poll(0)
        if look:
            self._ready, self._woken_ns = self._epoll.poll(0), wall_ns()

    def set(self) -> None:
        """Ring at the next packet, or at once if there is one."""
        self._bell.modify(self._epoll.fileno(), _ONCE)

    def rounds(self) -> Iterator[tuple[list[tuple[int, int]], int]]:
        """Yield what is ready (descriptor, events) and when it was found so, until nothing is."""
        ready, woken_ns = self._ready, self._woken_ns
        self._ready = []
        for _ in range(_MAX_ROUNDS):
            if not ready:
                ready, woken_ns = self._epoll.poll(0), wall_ns()
            if not ready:
                return
            yield ready, woken_ns
            ready = []
