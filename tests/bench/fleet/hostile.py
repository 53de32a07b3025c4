# SPDX-License-Identifier: Apache-2.0
"""Hostile traffic to a server, bounded: strangers, and one host whose key was stolen."""

import asyncio
import contextlib
import multiprocessing
import os
import random
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from netagent.wire.codec import encode
from netagent.wire.messages import Health, Summary
from tests.bench.receiving import Host, Refused

EVERY_S = 0.05
"""Seconds between two attempts of one kind. Chosen: 150 a second of all kinds cost the server a
quarter of a core, mostly in handshakes, which no limit of it can spare; no more was tried."""
HELD = 200
"""Connections that one kind holds at once."""
HOLD_S = 20.0


@dataclass(frozen=True, slots=True)
class Aim:
    """A server, and what it takes."""

    port: int
    path: str
    message: Callable[[str, int], bytes]
    """Makes a message of a host, and of a number that tells it from others."""
    method: str = "POST"
    address: str = "127.0.0.1"


class Attack:
    """Attempts of all kinds; counts how each ended."""

    def __init__(self, aim: Aim, ca: str, stolen: Sequence[str], stranger: Sequence[str]) -> None:
        self._aim = aim
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
        host = await Host.connect(self._aim.port, context, self._aim.address)
        try:
            await host.call("GET", "/v1/status", b"")
        finally:
            host.close()

    async def _keep(self, name: str, context: ssl.SSLContext | None, said: bytes) -> None:
        """Open a connection and say little over it; the oldest of many is dropped."""
        aim = self._aim
        reader, writer = await asyncio.open_connection(aim.address, aim.port, ssl=context)
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
        head = f"{self._aim.method} {self._aim.path} HTTP/1.1\r\nHost: a\r\n"
        await self._keep("slow", self._stolen, f"{head}Content-Length: 1000000\r\n\r\n".encode())

    async def _damaged(self) -> None:
        body = bytearray(self._aim.message("stolen", self._rng.randrange(1 << 40)))
        for _ in range(3):
            body[self._rng.randrange(len(body))] = self._rng.randrange(256)
        await self._send(bytes(body))

    async def _large(self) -> None:
        await self._send(bytes(1 << 20))

    async def _other(self) -> None:
        await self._send(self._aim.message("h0", 0))

    async def _send(self, body: bytes) -> None:
        host = await Host.connect(self._aim.port, self._stolen, self._aim.address)
        try:
            await host.call(self._aim.method, self._aim.path, body)
        finally:
            host.close()


def summary(host: str, start_ns: int) -> bytes:
    """Return an empty summary, as the analyzer takes."""
    width_ns = 5_000_000_000
    return encode(
        Summary(host=host, instance="i", start_ns=start_ns, width_ns=width_ns, health=Health())
    )


def _context(ca: str, files: Sequence[str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    if files:
        context.load_cert_chain(*files)
    return context


def main(
    aim: Aim, ca: str, stolen: Sequence[str], stranger: Sequence[str], pipe: Connection
) -> None:
    """Attack until told to end; tell the counts.

    Nobody who attacks a machine from outside takes its CPU for that: so the rest comes first.
    """
    os.nice(19)

    async def inside() -> dict[str, int]:
        attack = Attack(aim, ca, stolen, stranger)
        work = asyncio.create_task(attack.run())
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        work.cancel()
        await asyncio.wait({work})
        return dict(sorted(attack.counts.items()))

    pipe.send(asyncio.run(inside()))


@contextlib.contextmanager
def attacking(
    aim: Aim, ca: str, stolen: Sequence[str], stranger: Sequence[str]
) -> Iterator[dict[str, int]]:
    """Attack from a process of its own meanwhile; the counts are there at the end."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=main, args=(aim, ca, stolen, stranger, theirs), daemon=True
    )
    process.start()
    theirs.close()
    counts = dict[str, int]()
    try:
        yield counts
        ours.send(None)
        counts.update(ours.recv())
    finally:
        process.terminate()
        process.join()
