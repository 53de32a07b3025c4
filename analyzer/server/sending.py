# SPDX-License-Identifier: Apache-2.0
"""Writes frames to a socket by a thread of its own.

The event loop would write them: as much as the socket takes, some 200 kB, in each of its rounds. A
round in which thousands of hosts deliver takes a second, and the reader starved beside it.
"""

import asyncio
import select
import socket
import threading
from collections import deque
from contextlib import suppress

TOGETHER_BYTES = 1 << 20
"""Bytes of frames that are joined to be written. Chosen: some hundred summaries, copied within a
millisecond."""
LITTLE_BYTES = 4 << 20
"""Bytes that may wait after `drain`. Chosen: so much is written within milliseconds."""
LOOK_MS = 100
"""Milliseconds after which a thread whose reader takes nothing looks whether it is to end."""


class Sender:
    """Frames that wait for one reader."""

    def __init__(self, connection: socket.socket) -> None:
        """Write to a connection, which is this object's from now on."""
        connection.setblocking(False)
        self._connection = connection
        self._frames: deque[bytes] = deque()
        self._news = threading.Condition()
        self._loop = asyncio.get_running_loop()
        self._drained = asyncio.Event()
        self._is_ending = self._is_gone = False
        self.waiting_bytes = 0
        """Of frames that the socket has not taken."""
        threading.Thread(target=self._work, name="link", daemon=True).start()

    def send(self, frame: bytes) -> None:
        """Write a frame after those before; what is sent to a reader that is gone is lost."""
        with self._news:
            if not self._is_gone:
                self._frames.append(frame)
                self.waiting_bytes += len(frame)
                self._news.notify()

    async def drain(self) -> None:
        """Wait until little waits; raises ConnectionError where the reader is gone."""
        while not self._is_gone and self.waiting_bytes > LITTLE_BYTES:
            self._drained.clear()
            if self.waiting_bytes > LITTLE_BYTES:
                await self._drained.wait()
        if self._is_gone:
            raise ConnectionError("the reader is gone")

    def end(self) -> None:
        """Close the connection, once all is written."""
        with self._news:
            self._is_ending = True
            self._news.notify()

    def drop(self) -> None:
        """Close the connection, whatever waits."""
        self._is_gone = True
        self.end()

    def _work(self) -> None:
        try:
            while frames := self._next():
                self._write(b"".join(frames))
                with self._news:
                    self.waiting_bytes -= sum(map(len, frames))
                self._say()
        except OSError:
            self._is_gone = True
        with self._news:
            self._is_gone = True
            self._frames.clear()
            self.waiting_bytes = 0
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        self._connection.close()
        self._say()

    def _next(self) -> list[bytes]:
        """Return the frames to write now; none where that was all."""
        frames, size = list[bytes](), 0
        with self._news:
            self._news.wait_for(lambda: self._frames or self._is_ending)
            while self._frames and size < TOGETHER_BYTES and not self._is_gone:
                frames.append(self._frames.popleft())
                size += len(frames[-1])
        return frames

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        ready = select.poll()
        ready.register(self._connection, select.POLLOUT)
        while view:
            if self._is_gone:
                raise ConnectionError
            try:
                view = view[self._connection.send(view) :]
            except BlockingIOError:
                ready.poll(LOOK_MS)

    def _say(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._drained.set)
