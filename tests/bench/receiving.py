# SPDX-License-Identifier: Apache-2.0
"""What receiving costs: summaries a second and core that a real `serve` takes over mutual TLS.

Summaries hold what agents' schedules put into them, and come over one connection per host. They
are acknowledged, so on disk. The CPU is that of the process that receives; its judge's is beside
it. The baseline takes the same bytes over TLS and does nothing with them.
"""

import asyncio
import contextlib
import json
import multiprocessing
import os
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from netagent.wire.codec import deflated, encode, inflated
from netagent.wire.messages import Registration
from tests.analyzer.certificates import Authority
from tests.bench.windows import WIDTH_NS, Cluster

WINDOWS = 52
"""Windows that each host delivers."""
HEAD = struct.Struct("<I")
START = b"start_ns\xcf"
"""How msgpack writes the field, and that eight bytes of an unsigned number follow."""
TICKS = os.sysconf("SC_CLK_TCK")


def at(body: bytes, start_ns: int) -> bytes:
    """Return a summary as of another window, as it is sent."""
    plain = inflated(body)
    place = plain.index(START) + len(START)
    return deflated(plain[:place] + start_ns.to_bytes(8, "big") + plain[place + 8 :])


def cpu_s(pid: int) -> float:
    """Return the CPU that a process has used, in seconds."""
    return sum(cpu_times_s(pid))


def cpu_times_s(pid: int) -> tuple[float, float]:
    """Return the CPU that a process has used itself, and in the kernel, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) / TICKS, int(fields[12]) / TICKS


class Refused(Exception):
    """An answer that is none of 200 and 204."""


class Host:
    """One agent's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(
        cls, port: int, context: ssl.SSLContext, address: str = "127.0.0.1"
    ) -> "Host":
        """Return a connection to a server of this machine."""
        return cls(*await asyncio.open_connection(address, port, ssl=context))

    async def call(self, method: str, path: str, body: bytes) -> bytes:
        """Send a request, and return the answer. Raises Refused, EOFError, OSError."""
        head = f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/msgpack\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await self._writer.drain()
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lines = answer.decode().lower().split("\r\n")
        lengths = (int(x.split(":")[1]) for x in lines if x.startswith("content-length"))
        said = await self._reader.readexactly(next(lengths, 0))
        if lines[0].split()[1] not in {"200", "204"}:
            raise Refused(f"{lines[0]}: {said[:200]!r}")
        return said

    def close(self) -> None:
        """Drop the connection."""
        self._writer.close()

    async def give(self, body: bytes) -> None:
        """Send bytes to the baseline, and wait for its answer."""
        self._writer.write(HEAD.pack(len(body)) + body)
        await self._writer.drain()
        await self._reader.readexactly(1)


def bare(files: tuple[str, str, str], ready: "Connection") -> None:
    """Serve the baseline: read frames over mutual TLS, answer each with a byte."""
    ca, cert, key = files
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
    context.load_cert_chain(cert, key)
    context.verify_mode = ssl.CERT_REQUIRED

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (length,) = HEAD.unpack(await reader.readexactly(HEAD.size))
                await reader.readexactly(length)
                writer.write(b"\0")
        writer.close()

    async def inside() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(inside())


async def received(
    port: int, authority: Authority, cluster: Cluster, waves: list[list[bytes]]
) -> None:
    """Register every host and deliver its summaries, each host one after the other."""

    async def live(number: int) -> None:
        host = await Host.connect(port, authority.client(f"h{number}"))
        endpoints = tuple(cluster.endpoints[number, rail] for rail in range(cluster.rails))
        message = Registration(
            host=f"h{number}", instance="i", generation=1, rpc_url="https://127.0.0.1:9",
            endpoints=endpoints,
        )  # fmt: skip
        await host.call("PUT", f"/v1/hosts/h{number}/endpoints", encode(message))
        for wave in waves:
            await host.call("POST", "/v1/summaries", wave[number])

    await asyncio.gather(*map(live, range(cluster.hosts)))


async def taken(port: int, authority: Authority, waves: list[list[bytes]]) -> None:
    """Give the baseline the same bytes, over as many connections."""

    async def live(number: int) -> None:
        host = await Host.connect(port, authority.client(f"h{number}"))
        for wave in waves:
            await host.give(wave[number])

    await asyncio.gather(*map(live, range(len(waves[0]))))


def run() -> list[dict[str, object]]:
    """Return one row."""
    cluster = Cluster(origin_ns=(time.time_ns() // WIDTH_NS - WINDOWS) * WIDTH_NS)
    waves = [cluster.bodies() for _ in range(WINDOWS)]
    count = WINDOWS * cluster.hosts
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = Authority(folder)
        bare_s = _bare(authority, waves)
        serve_s, judge_s, took_s = _served(folder, authority, cluster, waves)
    return [
        {
            "hosts": cluster.hosts,
            "summaries": count,
            "bytes_per_summary": round(sum(len(b) for wave in waves for b in wave) / count),
            "summaries_per_s_of_a_core": round(count / serve_s),
            "ratio": round(serve_s / bare_s, 1),
            "judge_share": round(judge_s / (judge_s + serve_s), 2),
            "seconds": round(took_s, 1),
            "target_summaries_per_s": 1000,
        }
    ]


def _bare(authority: Authority, waves: list[list[bytes]]) -> float:
    ours, theirs = multiprocessing.Pipe()
    files = (str(authority.ca), *map(str, authority.sign("analyzer")))
    process = multiprocessing.get_context("spawn").Process(target=bare, args=(files, theirs))
    process.start()
    try:
        port = ours.recv()
        before_s = cpu_s(int(process.pid or 0))
        asyncio.run(taken(port, authority, waves))
        return cpu_s(int(process.pid or 0)) - before_s
    finally:
        process.terminate()
        process.join()


def _served(
    folder: Path, authority: Authority, cluster: Cluster, waves: list[list[bytes]]
) -> tuple[float, float, float]:
    """Return the CPU of receiving and of judging, and the time that both took, in seconds."""
    cert, key = authority.sign("analyzer")
    config = folder / "analyzer.toml"
    config.write_text(
        f'listen = "127.0.0.1:0"\ndatabase = "netagent.duckdb"\n'
        f'[tls]\nca = "{authority.ca}"\ncert = "{cert}"\nkey = "{key}"\n',
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "analyzer.cli", "serve", "--config", str(config)]
    lines = list[str]()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            log = process.stderr or ()
            url = next(x["url"] for x in map(json.loads, log) if x["event"] == "listening")
            reading = threading.Thread(target=lambda: lines.extend(log))
            reading.start()
            judges = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii")
            judge = int(judges.split()[0])
            before, began_s = (cpu_s(process.pid), cpu_s(judge)), time.monotonic()
            asyncio.run(received(int(url.rpartition(":")[2]), authority, cluster, waves))
            after = cpu_s(process.pid), cpu_s(judge)
            took_s = time.monotonic() - began_s
        finally:
            process.terminate()
        reading.join()
    assert not [line for line in lines if "unusable" in line]  # it would be paid for, too
    return after[0] - before[0], after[1] - before[1], took_s
