# SPDX-License-Identifier: Apache-2.0
"""The load, a process of its own: the agents of a simulated fabric, as a server meets them.

Windows are made before time runs, and kept in files, so that little of the load's CPU is used
beside the server. A host delivers over one connection and waits for its list over another, each by
mutual TLS and under its own certificate; it keeps what was not acknowledged, and comes again. It
answers questions as the simulated fabric does.
"""

import asyncio
import contextlib
import pickle
import random
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from msgspec.structs import replace as replaced

from analyzer.questions import Failed, Reply, Request, StatusRequest
from analyzer.simulate.agents import WIDTH_NS, Agents
from analyzer.simulate.clos import Clos, Shape
from analyzer.simulate.failures import Failure
from netagent.probing.roster import Roster
from netagent.wire.codec import decode, deflated, encode
from netagent.wire.messages import PathRequest, Registered, Registration, Summary
from netagent.wire.roster import Update
from tests.bench.fleet.again import Again
from tests.bench.receiving import START, Host, Refused
from tests.bench.windows import ROTATE
from tests.campaign.apart import beside
from tests.campaign.episode import Truth

RAILS = 8
LATE_S = 0.2
"""Seconds after a window's end until agents deliver it."""
AGAIN_S = 0.2, 10.0
"""Seconds until a host comes again that was refused, doubled each time: as agents have it
(`netagent.adapters.peers.uplink.BACKOFF_S`)."""
PATIENCE_S = 60.0
"""Seconds after the last window in which nothing is acknowledged until a run ends without the rest.
Chosen: six times the longest pause between two attempts."""
POLL_S = 30
WHOLE = b"\xa8whole_ns"
U64 = 0xCF
"""First byte of an integer of 64 bits in msgpack; a whole table says 0, in one byte."""
NS = 10**9


@dataclass(frozen=True)
class Load:
    """What the fleet does."""

    rnics: int = 2_048
    seed: int = 1
    types: tuple[int, ...] = (1,)
    """Numbers of Table 1 of what fails, all at once."""
    healthy: int = 12
    """Windows delivered before that."""
    made: int = 12
    """Different ones among them; then they come again."""
    failing: int = 8
    stall: int = 0
    """Windows half way before the failure for which the load stands still; then they come in a
    burst."""

    @property
    def windows(self) -> int:
        """Return how many windows are delivered."""
        return self.healthy + self.failing

    @property
    def hosts(self) -> int:
        """Return how many hosts there are."""
        return self.rnics // RAILS


@dataclass(frozen=True)
class Served:
    """Where the server is, and whom it knows."""

    port: int
    ca: str
    certificates: tuple[tuple[str, str], ...]
    """Of each host: certificate and key."""
    everybody: tuple[str, str]
    """A certificate that names all hosts, to answer questions by one listener."""


@dataclass
class Delivered:
    """What became of the windows."""

    acknowledged: list[tuple[str, int]] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    """From the first try of each to its acknowledgement."""
    refused: int = 0
    waiting: int = 0
    """Windows that nobody took."""
    questions: int = 0
    cpu_s: float = 0.0
    lists: int = 0


@dataclass
class Fleet:
    """The hosts, their windows and what they answer."""

    load: Load
    folder: Path

    def __post_init__(self) -> None:
        shape = Shape(
            self.load.hosts, RAILS, hosts_per_segment=min(16, self.load.hosts),
            spines=8 if self.load.rnics < 4_096 else 32,
        )  # fmt: skip
        self.clos = Clos(shape, self.load.seed)
        self.agents = Agents(self.clos, self.load.seed, rotate=ROTATE)
        self.delivered = Delivered()
        self._origin: dict[int, int] = {}
        """Window -> when it was made to begin."""
        self._whole_ns: dict[str, int] = {}
        """Host -> start of the newest window delivered that had all of its paths."""
        self._shift_ns = 0
        """Real time less simulated time, of the windows that fail."""

    def make(self) -> list[Truth]:
        """Make the windows; return what fails in the later ones."""
        for window in range(self.load.made):
            self._keep(window)
        rng, failures = np.random.default_rng([self.load.seed, 4]), list[Failure]()
        for number in self.load.types:
            each = beside(failures, number, self.clos, rng)
            failures.append(replace(each, start_ns=int(rng.integers(WIDTH_NS))))
        self.agents.fail(failures, now_ns=self.agents.now_ns)
        for window in range(self.load.made, self.load.made + self.load.failing):
            self._keep(window)
        return [
            Truth(
                each.number, "", str(each.truth), each.family.value,
                tuple(sorted(map(str, each.also))), each.start_ns / NS,
            )
            for each in failures
        ]  # fmt: skip

    def _keep(self, window: int) -> None:
        self._origin[window] = self.agents.now_ns
        bodies = {each.host: _again(each) for each in self.agents.window()}
        self._file(window).write_bytes(pickle.dumps(bodies))

    def _file(self, window: int) -> Path:
        return self.folder / f"{window}.pickle"

    # --- delivering -----------------------------------------------------------------------------

    async def live(self, served: Served, start_ns: int) -> None:
        """Register every host, and deliver all windows; the first one begins at `start_ns`."""
        answering = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=served.ca)
        answering.load_cert_chain(*served.everybody)
        answering.verify_mode = ssl.CERT_REQUIRED
        answers = (partial(self._answer, f"h{n}") for n in range(self.load.hosts))
        servers = [
            await asyncio.start_server(each, "127.0.0.1", 0, ssl=answering) for each in answers
        ]
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        self._shift_ns = start_ns + self.load.healthy * WIDTH_NS - self._origin[self.load.made]
        agents = [_Agent(n, served) for n in range(self.load.hosts)]
        waiting = [asyncio.Queue[tuple[int, bytes]]() for _ in agents]
        gate = asyncio.Semaphore(64)  # handshakes at once
        working = [
            asyncio.create_task(self._live(*each, gate))
            for each in zip(agents, self.agents.registrations(), waiting, ports, strict=True)
        ]
        began_s, burst = time.process_time(), max(self.load.stall, self.load.healthy // 2)
        for window in range(self.load.windows):
            await self._until(start_ns + (window + 1) * WIDTH_NS + LATE_S * NS)
            if burst - self.load.stall <= window < burst:
                continue
            held = self.load.stall if window == burst else 0
            for each in range(window - held, window + 1):
                # Made beside the loop, in which hosts answer meanwhile.
                bodies = await asyncio.to_thread(self._bodies, each, start_ns)
                for queue, (_, body) in zip(waiting, bodies, strict=True):
                    queue.put_nowait((start_ns + each * WIDTH_NS, body))
        await self._taken(waiting)
        self.delivered.cpu_s = time.process_time() - began_s
        self.delivered.refused = sum(agent.refused for agent in agents)
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        for server in servers:
            server.close()

    async def _taken(self, waiting: "Sequence[asyncio.Queue[tuple[int, bytes]]]") -> None:
        """Wait until all is acknowledged, or nothing is any more."""
        work = asyncio.gather(*(queue.join() for queue in waiting))
        taken = -1
        while not work.done() and taken < len(self.delivered.acknowledged):
            taken = len(self.delivered.acknowledged)
            await asyncio.wait([work], timeout=PATIENCE_S)
        made = self.load.windows * self.load.hosts
        self.delivered.waiting = made - len(self.delivered.acknowledged)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    async def _live(
        self,
        agent: "_Agent",
        message: Registration,
        queue: "asyncio.Queue[tuple[int, bytes]]",
        port: int,
        gate: asyncio.Semaphore,
    ) -> None:
        await self._join(agent, message, port, gate)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(agent, gate))
            group.create_task(self._deliver(agent, queue))

    def _bodies(self, window: int, start_ns: int) -> list[tuple[str, bytes]]:
        """Return every host's summary of a window that was made, as of when it is delivered."""
        healthy = window < self.load.healthy
        made = window % self.load.made if healthy else window - self.load.healthy + self.load.made
        bodies: dict[str, Again | Summary] = pickle.loads(  # noqa: S301
            self._file(made).read_bytes()
        )
        now_ns = start_ns + window * WIDTH_NS
        shift_ns = now_ns - self._origin[made]
        made_now = []
        for host, body in bodies.items():
            whole_ns, shifted = _as_of(body, now_ns, shift_ns, self._whole_ns.get(host, 0))
            self._whole_ns[host] = whole_ns
            made_now.append((host, shifted))
        return made_now

    async def _until(self, at_ns: float) -> None:
        await asyncio.sleep(max(0.0, at_ns / NS - time.time()))

    async def _join(
        self, agent: "_Agent", message: Registration, port: int, gate: asyncio.Semaphore
    ) -> None:
        message = replaced(message, rpc_url=f"https://127.0.0.1:{port}")
        body = encode(message)
        async with gate:
            said = await agent.insist("PUT", f"/v1/hosts/{agent.name}/endpoints", body)
        decode(said, Registered)

    async def _follow(self, agent: "_Agent", gate: asyncio.Semaphore) -> None:
        """Wait for the host's list again and again, over a connection of its own."""
        other = agent.twin()
        roster = Roster(agent.name)
        while True:
            asked = encode(roster.asks(POLL_S))
            try:
                async with gate:
                    await other.connect()
                said = await other.call("POST", f"/v1/hosts/{agent.name}/pinglist", asked)
            except (OSError, EOFError, Refused):
                await asyncio.sleep(AGAIN_S[1] * random.uniform(0.1, 1.0))
                continue
            if said:
                self.delivered.lists += 1
                roster.take(decode(said, Update))

    async def _deliver(self, agent: "_Agent", queue: "asyncio.Queue[tuple[int, bytes]]") -> None:
        while True:
            start_ns, body = await queue.get()
            began_s = time.monotonic()
            await agent.insist("POST", "/v1/summaries", body)
            self.delivered.took_s.append(time.monotonic() - began_s)
            self.delivered.acknowledged.append((agent.name, start_ns))
            queue.task_done()

    # --- answering ------------------------------------------------------------------------------

    async def _answer(
        self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                body = await reader.readexactly(_length(head))
                status, said = await self._said(host, head[0].split()[1], body)
                length = f"Content-Length: {len(said)}\r\n"
                kind = "Content-Type: application/msgpack\r\n"
                writer.write(f"HTTP/1.1 {status}\r\n{kind}{length}\r\n".encode() + said)
        writer.close()

    async def _said(self, host: str, path: str, body: bytes) -> tuple[str, bytes]:
        what = path.removeprefix("/v1/")
        self.delivered.questions += 1
        request: Request
        if what == "path":
            request = decode(body, PathRequest)
        elif what == "status":
            request = StatusRequest()
        else:
            return "501 Not Implemented", b"a simulated host has no flow tables"
        now_ns = time.time_ns() - self._shift_ns
        reply: Reply = self.agents.reply(host, request, now_ns=now_ns)
        await self._until(self.agents.replied_ns + self._shift_ns)
        if isinstance(reply, Failed):
            return "501 Not Implemented", reply.text.encode()
        return "200 OK", encode(reply)


class _Agent:
    """One host's connection."""

    def __init__(self, number: int, served: Served) -> None:
        self.name = f"h{number}"
        self.refused = 0
        self._number, self._served = number, served
        self._host: Host | None = None

    def twin(self) -> "_Agent":
        """Return another connection of the same host."""
        return _Agent(self._number, self._served)

    async def connect(self) -> Host:
        """Return the connection, made on first use."""
        if self._host is None:
            context = ssl.create_default_context(cafile=self._served.ca)
            context.load_cert_chain(*self._served.certificates[self._number])
            self._host = await Host.connect(self._served.port, context)
        return self._host

    async def insist(self, method: str, path: str, body: bytes) -> bytes:
        """Send a request until it is taken."""
        wait_s, longest_s = AGAIN_S
        while True:
            try:
                return await self.call(method, path, body)
            except (OSError, EOFError, Refused):
                self.refused += 1
                await asyncio.sleep(wait_s * random.uniform(0.5, 1.5))
                wait_s = min(2 * wait_s, longest_s)

    async def call(self, method: str, path: str, body: bytes) -> bytes:
        """Send a request, and return the answer."""
        host = await self.connect()
        try:
            return await host.call(method, path, body)
        except (OSError, EOFError):
            self._host = None
            host.close()
            raise


def _length(head: list[str]) -> int:
    found = (x.partition(":")[2] for x in head if x.lower().startswith("content-length:"))
    return int(next(found, "0"))


def _again(summary: Summary) -> Again | Summary:
    """Return a summary to be sent as of other times; one with findings tells of its own."""
    if summary.findings:
        return summary
    body = encode(summary)
    start, whole = (body.index(name) + len(name) for name in (START, WHOLE))
    return Again.of(body, [start, whole + 1] if body[whole] == U64 else [start])


def _as_of(made: Again | Summary, now_ns: int, shift_ns: int, whole_ns: int) -> tuple[int, bytes]:
    """Return a summary as of another time, and when its host last said all of its paths.

    Before, that was at `whole_ns`: in health it says the same each time.
    """
    if isinstance(made, Again):
        is_whole = len(made.packed) == 2
        numbers = [now_ns] if is_whole else [now_ns, whole_ns]
        return now_ns if is_whole else whole_ns, made.sent(numbers)
    is_whole = not made.paths.whole_ns
    findings = tuple(replace(each, wall_ns=each.wall_ns + shift_ns) for each in made.findings)
    paths = made.paths if is_whole else replaced(made.paths, whole_ns=whole_ns)
    shifted = replaced(made, start_ns=now_ns, findings=findings, paths=paths)
    return now_ns if is_whole else whole_ns, deflated(encode(shifted))


def main(load: Load, folder: str, pipe: Connection) -> None:
    """Be the load: tell the truths, be told where the server is and when to begin, say what was."""
    fleet = Fleet(load, Path(folder))
    pipe.send(fleet.make())
    served: Served = pipe.recv()
    asyncio.run(fleet.live(served, pipe.recv()))
    pipe.send(fleet.delivered)
