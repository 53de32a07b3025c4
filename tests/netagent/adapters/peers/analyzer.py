# SPDX-License-Identifier: Apache-2.0
"""An analyzer that says what a test tells it to, over real sockets, with or without TLS."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from typing_extensions import Self

from netagent.concurrency import timeout
from netagent.wire.codec import encode
from netagent.wire.messages import Accepted


@dataclass
class Asked:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Answer = tuple[int, bytes] | None
"""Status and body; None: say nothing and keep the connection."""


def accepted(_: Asked) -> Answer:
    """Acknowledge everything."""
    return 200, encode(Accepted())


@dataclass
class FakeAnalyzer:
    """Serves HTTP/1.1 on loopback; `answer` decides, `asked` remembers."""

    answer: Callable[[Asked], Answer] = accepted
    tls: ssl.SSLContext | None = None
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    came: asyncio.Condition = field(default_factory=asyncio.Condition)
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self.tls, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections from now on and cut the open ones."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def heard(self, count: int) -> list[Asked]:
        """Wait until `count` requests came."""
        async with timeout(30), self.came:
            await self.came.wait_for(lambda: len(self.asked) >= count)
        return self.asked

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            async for asked in _requests(reader):
                async with self.came:
                    self.asked.append(asked)
                    self.came.notify_all()
                answer = self.answer(asked)
                if answer is None:
                    continue
                status, body = answer
                head = f"HTTP/1.1 {status} X\r\ncontent-type: application/msgpack\r\n"
                length = "" if status == 204 else f"content-length: {len(body)}\r\n"
                writer.write(f"{head}{length}\r\n".encode() + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _requests(reader: asyncio.StreamReader) -> AsyncIterator[Asked]:
    while line := await reader.readline():
        method, target, _ = line.decode().split()
        headers = {}
        while (line := await reader.readline()) not in {b"\r\n", b""}:
            key, _, value = line.decode().partition(":")
            headers[key.strip().lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        yield Asked(method, target, headers, body)
