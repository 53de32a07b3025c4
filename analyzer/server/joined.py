# SPDX-License-Identifier: Apache-2.0
"""A transport that sends what is written at once in one piece.

uvicorn writes the head of an answer, then its body. By TLS each is a record of its own and a call
of the kernel, which both sides pay for.
"""

import asyncio
from typing import Any

MOST_BYTES = 65_536
"""Bytes from which no more is waited for. Chosen: answers to agents have hundreds; what is larger
gains nothing, and has to be held back by whoever reads slowly."""


class Joined(asyncio.Transport):
    """Another transport, to which is written when the loop comes to it."""

    def __init__(self, inner: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._inner, self._loop = inner, loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send it with what is written before the loop goes on."""
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(bytes(data))
        self._size += len(data)
        if self._size >= MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what was written so far."""
        parts, self._parts, self._size = self._parts, [], 0
        if parts:
            self._inner.write(b"".join(parts))

    def close(self) -> None:
        """Close it once what was written is sent."""
        self.flush()
        self._inner.close()

    def abort(self) -> None:
        """Close it now."""
        self._parts, self._size = [], 0
        self._inner.abort()

    def is_closing(self) -> bool:
        """Return whether it is closed, or soon will be."""
        return self._inner.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        return self._inner.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._inner.resume_reading()
