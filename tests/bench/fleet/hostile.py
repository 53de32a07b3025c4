# SPDX-License-Identifier: Apache-2.0
"""Hostile traffic to a server, bounded: strangers, and one host whose key was stolen."""

import asyncio
import contextlib
import random
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import Connection

from netagent.wire.codec import encode
from netagent.wire.messages import Health, Summary
from tests.bench.receiving import Host, Refused

EVERY_S = 0.05
"""Seconds between two attempts of one kind. Chosen: 150 a second of all kinds cost the server a
quarter of a core, mostly in handshakes, which no limit of it can spare."""
HELD = 200
"""Connections that one kind holds at once."""
HOLD_S = 20.0


class Attack:
    """Attempts of all kinds, until the pipe closes; counts how each ended."""

    def __init__(self, port: int, ca: str, stolen: Sequence[str], stranger: Sequence[str]) -> None:
        self._port = port
        self._stolen, self._stranger = _context(ca, stolen), _context(ca, stranger)
        self._nobody = _context(ca, ())
        self._rng = random.Random(1)
        self._held: dict[str, list[asyncio.StreamWriter]] = {}
        self.counts = Counter[str]()

    async def run(self) -> None:
        """Attack until cancelled."""
        kinds: dict[str, Callable[[], Awaitable[object]]] = {
            "stranger": lambda: self._opened(self._stranger),
            "nobody": lambda: self._opened(self._nobody),
            "silent": self._silent,
            "garbage": self._garbage,
            "connections": self._connections,
            "slow": self._slow,
            "damaged": self._damaged,
            "large": self._large,
            "other": self._other,
        }
        await asyncio.gather(*(self._repeat(name, kind) for name, kind in kinds.items()))

    async def _repeat(self, name: str, attempt: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(EVERY_S * self._rng.uniform(0.5, 1.5))
            try:
                async with asyncio.timeout(HOLD_S):
                    await attempt()
                self.counts[f"{name} passed"] += 1
            except (OSError, EOFError, ssl.SSLError, Refused, TimeoutError):
                self.counts[f"{name} refused"] += 1

    async def _opened(self, context: ssl.SSLContext) -> None:
        """Ask for something, once the handshake is over."""
        host = await Host.connect(self._port, context)
        try:
            await host.call("GET", "/v1/incidents", b"")
        finally:
            host.close()

    async def _keep(self, name: str, context: ssl.SSLContext | None, said: bytes) -> None:
        """Open a connection and say little over it; the oldest of many is dropped."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=context)
        writer.write(said)
        held = self._held.setdefault(name, [])
        held.append(writer)
        if len(held) > HELD:
            held.pop(0).transport.abort()
        with contextlib.suppress(TimeoutError):
            if not await asyncio.wait_for(reader.read(1), EVERY_S):
                raise EOFError

    async def _silent(self) -> None:
        await self._keep("silent", None, b"")

    async def _garbage(self) -> None:
        await self._keep("garbage", self._stolen, self._rng.randbytes(4096))

    async def _connections(self) -> None:
        await self._keep("connections", self._stolen, b"")

    async def _slow(self) -> None:
        head = b"POST /v1/summaries HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
        await self._keep("slow", self._stolen, head)

    async def _damaged(self) -> None:
        body = bytearray(encode(_summary("stolen", self._rng.randrange(1 << 40))))
        for _ in range(3):
            body[self._rng.randrange(len(body))] = self._rng.randrange(256)
        await self._post("/v1/summaries", bytes(body))

    async def _large(self) -> None:
        await self._post("/v1/summaries", bytes(1 << 20))

    async def _other(self) -> None:
        await self._post("/v1/summaries", encode(_summary("h0", 0)))

    async def _post(self, path: str, body: bytes) -> None:
        host = await Host.connect(self._port, self._stolen)
        try:
            await host.call("POST", path, body)
        finally:
            host.close()


def _summary(host: str, start_ns: int) -> Summary:
    return Summary(
        host=host, instance="i", start_ns=start_ns, width_ns=5_000_000_000, health=Health()
    )


def _context(ca: str, files: Sequence[str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    if files:
        context.load_cert_chain(*files)
    return context


def main(
    port: int, ca: str, stolen: Sequence[str], stranger: Sequence[str], pipe: Connection
) -> None:
    """Attack until told to end; tell the counts."""

    async def inside() -> dict[str, int]:
        attack = Attack(port, ca, stolen, stranger)
        work = asyncio.create_task(attack.run())
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        work.cancel()
        await asyncio.wait({work})
        return dict(sorted(attack.counts.items()))

    pipe.send(asyncio.run(inside()))
