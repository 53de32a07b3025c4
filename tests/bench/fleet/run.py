# SPDX-License-Identifier: Apache-2.0
"""One run: a `serve` of its own, the load beside it, what was said in time, and what it cost."""

import asyncio
import contextlib
import itertools
import json
import math
import multiprocessing
import os
import random
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import duckdb

from analyzer.server.space import NEEDED_NS
from analyzer.simulate.agents import WIDTH_NS
from tests.analyzer.certificates import Authority
from tests.bench.fleet import hostile
from tests.bench.fleet.hosts import AGAIN_S, NS, Delivered, Load, Served, main
from tests.bench.fleet.trouble import Machine
from tests.bench.receiving import Host, Refused, cpu_s
from tests.campaign.episode import Truth

LOOK_S = 0.2
"""Seconds between two requests that ask for nothing, to see for how long the loop is away."""
WARM = 4
"""Windows at the beginning that are not counted: agents register, routes are learned."""
SPARE = 1.25
"""By how much longer kills may take than they would if each met somebody. Chosen: a judge may not
have begun yet, as its server was killed just before."""
WELL = 6
"""Windows between the last kill and what fails. Chosen: 30 s; for 20 s after a start nobody is
called silent."""
SETTLE_S = 4.0
"""Seconds after the last window in which something may still be said; then its silence is."""


@dataclass
class Seen:
    """What the server said and used."""

    events: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Instant and incident of each event."""
    answered_s: list[float] = field(default_factory=list)
    rss_mib: list[tuple[int, int]] = field(default_factory=list)
    """Of the process that receives and of the judge, once a window."""
    cpu_s: list[tuple[float, float]] = field(default_factory=list)
    """Used by both so far, at the end of each window."""
    again_s: list[float] = field(default_factory=list)
    """From each kill until a judge has read all that came before it answered, if one lived so
    long."""
    status: dict[str, Any] = field(default_factory=dict)
    warnings: set[str] = field(default_factory=set)
    """What is wrong with the server itself."""


class Serve:
    """The server; another one on the same port where it was killed."""

    def __init__(self, folder: Path, authority: Authority, machine: Machine) -> None:
        self._config, self._machine = folder / "analyzer.toml", machine
        self.database = machine.disk / "netagent.duckdb"
        self.log = folder / "serve.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        cert, key = authority.sign("analyzer")
        self._config.write_text(
            f'listen = "127.0.0.1:{self.port}"\ndatabase = "{self.database}"\n'
            f'admins = ["watcher"]\n[retention]\nbytes = {1 << 36}\n'
            f'[tls]\nca = "{authority.ca}"\ncert = "{cert}"\nkey = "{key}"\n',
            encoding="utf-8",
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @property
    def pid(self) -> int:
        """Return the pid of the process that receives."""
        return self._process.pid if self._process is not None else 0

    def judge(self) -> int | None:
        """Return the pid of its judge; None while it has none."""
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        with contextlib.suppress(OSError, IndexError):
            return int(path.read_text("ascii").split()[0])
        return None

    def start(self) -> None:
        """Start it, after its end."""
        self.stop()
        self.starts += 1
        command = [sys.executable, "-m", "analyzer.cli", "serve", "--config", str(self._config)]
        with self.log.open("ab") as log:
            machine = self._machine
            self._process = subprocess.Popen(
                machine.command(command), stderr=log, env=machine.environ
            )

    def kill(self) -> None:
        """Kill it, without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


class Watcher:
    """An operator: follows incidents, and sees how soon the server answers."""

    def __init__(self, serve: Serve, authority: Authority) -> None:
        self._serve, self._context = serve, authority.client("watcher")
        self.seen = Seen()

    async def follow(self) -> None:
        """Note what is told of incidents, until cancelled."""
        line = _Line(self._serve.port, self._context)
        after = int((await line.get("/v1/incidents/events"))["next"])
        while True:
            found = await line.get(f"/v1/incidents/events?after={after}&wait_s=30")
            after = int(found["next"])
            self.seen.warnings |= set(found["warnings"])
            self.seen.events += [(time.time_ns(), each["incident"]) for each in found["events"]]

    async def knock(self) -> None:
        """Note how soon a request that asks for nothing is answered, until cancelled."""
        line = _Line(self._serve.port, self._context)
        while True:
            began_s, starts = time.monotonic(), self._serve.starts
            await line.get("/v1/incidents/events")
            if starts == self._serve.starts:
                self.seen.answered_s.append(time.monotonic() - began_s)
            await asyncio.sleep(LOOK_S)

    async def judged(self, since_s: float) -> None:
        """Note how long it took from then on until a judge answers, after all that it was told."""
        await _Line(self._serve.port, self._context).get("/v1/findings")
        self.seen.again_s.append(time.monotonic() - since_s)

    async def status(self) -> dict[str, Any]:
        """Return what the server says of itself."""
        return await _Line(self._serve.port, self._context).get("/v1/status")


class _Line:
    """A connection, made anew where it broke."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port, self._context = port, context
        self._host: Host | None = None

    async def get(self, path: str) -> dict[str, Any]:
        while True:
            try:
                self._host = self._host or await Host.connect(self._port, self._context)
                said = await self._host.call("GET", path, b"")
            except (OSError, EOFError, Refused):
                if self._host is not None:
                    self._host.close()
                self._host = None
                await asyncio.sleep(AGAIN_S[0])
                continue
            found: dict[str, Any] = json.loads(said)
            return found


@dataclass(frozen=True)
class Kills:
    """Which processes are killed while windows come, and how often."""

    whom: tuple[str, ...] = ()
    """Of `serve` and `judge`, in turn."""
    every_s: float = 12.0
    times: int | None = None
    """How often, all before something fails; None: until the last window."""

    def waits_s(self, seed: int) -> Iterator[float]:
        """Yield the seconds before each kill, without end."""
        rng = random.Random(seed)
        while True:
            yield self.every_s * rng.uniform(0.5, 1.5)

    def windows(self, seed: int) -> int:
        """Return in how many windows they are done and all is well again; 0 where they go on."""
        if not self.whom or self.times is None:
            return 0
        took_s = SPARE * sum(itertools.islice(self.waits_s(seed), self.times))
        return math.ceil(took_s * NS / WIDTH_NS) + WELL


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    load: Load
    truths: list[Truth]
    failed_ns: int
    """When the window began in which something fails."""
    delivered: Delivered
    seen: Seen
    lost: int
    """Windows that were acknowledged and are not on disk."""
    trimmed: int
    """Such that might be deleted, as the disk was full."""
    killed: int
    hostile: dict[str, int]
    """How attempts of each kind ended."""


def run(
    load: Load,
    folder: Path,
    kills: Kills,
    say: Callable[[str], None],
    machine: Machine,
    *,
    attacked: bool = False,
) -> Outcome:
    """Run it; `say` is told how far it is."""
    authority = Authority(folder, environ=machine.of_certificates)
    names = [f"h{n}" for n in range(load.hosts)]
    ours, theirs = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=main, args=(load, str(folder), theirs), daemon=True)
    process.start()
    theirs.close()  # or its death would not end what waits for it
    serve = Serve(folder, authority, machine)
    try:
        say("making windows and certificates")
        certificates = tuple(_text(authority.sign(name)) for name in names)
        everybody = _text(authority.sign("fleet", names))
        truths: list[Truth] = ours.recv()
        serve.start()
        ours.send(Served(serve.port, str(authority.ca), certificates, everybody))
        watcher = Watcher(serve, authority)
        live = _Live(load, serve, watcher, ours, kills, say, machine)
        attack = _attacked(serve.port, folder, authority) if attacked else _left_alone()
        with attack as counts:
            delivered = asyncio.run(live.live())
    finally:
        process.terminate()
        process.join()
        serve.stop()
    gone = missing(delivered.acknowledged, _kept(serve.database), machine.full_ns)
    seen, failed_ns = watcher.seen, live.failed_ns
    return Outcome(load, truths, failed_ns, delivered, seen, *gone, live.killed, counts)


@contextlib.contextmanager
def _left_alone() -> Iterator[dict[str, int]]:
    yield {}


@contextlib.contextmanager
def _attacked(port: int, folder: Path, authority: Authority) -> Iterator[dict[str, int]]:
    """Attack the server meanwhile; the counts are there at the end."""
    other = folder / "stranger"
    other.mkdir()
    stolen, stranger = (_text(a.sign("stolen")) for a in (authority, Authority(other)))
    aim = hostile.Aim(port, "/v1/summaries", hostile.summary)
    with hostile.attacking(aim, str(authority.ca), stolen, stranger) as counts:
        yield counts


class _Live:
    """The run's own time."""

    def __init__(
        self,
        load: Load,
        serve: Serve,
        watcher: Watcher,
        pipe: Connection,
        kills: Kills,
        say: Callable[[str], None],
        machine: Machine,
    ) -> None:
        self._load, self._serve, self._watcher = load, serve, watcher
        self._pipe, self._kills, self._say = pipe, kills, say
        self._machine = machine
        self.failed_ns = 0
        self.killed = 0

    async def live(self) -> Delivered:
        loop, seen = asyncio.get_running_loop(), self._watcher.seen
        await self._watcher.status()  # it serves
        start_ns = time.time_ns() // WIDTH_NS * WIDTH_NS
        self.failed_ns = start_ns + self._load.healthy * WIDTH_NS
        self._pipe.send(start_ns)
        done = loop.run_in_executor(None, self._pipe.recv)
        tasks = [asyncio.create_task(self._watcher.follow())]
        tasks.append(asyncio.create_task(self._watcher.knock()))
        tasks.append(asyncio.create_task(self._machine.live(self._say)))
        killing = asyncio.create_task(self._kill())
        for window in range(self._load.windows + 1):
            await asyncio.sleep(max(0.0, (start_ns + window * WIDTH_NS - time.time_ns()) / NS))
            receiving, judging = rss_mib(self._serve.pid), rss_mib(self._serve.judge() or 0)
            seen.rss_mib.append((receiving, judging))
            seen.cpu_s.append(self._cpu_s())
            self._say(f"window {window} of {self._load.windows}")
        killing.cancel()  # what waits is delivered now
        delivered: Delivered = await done
        await asyncio.sleep(SETTLE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, killing, return_exceptions=True)
        seen.status = await self._watcher.status()
        return delivered

    def _cpu_s(self) -> tuple[float, float]:
        return cpu_s(self._serve.pid), cpu_s(self._serve.judge() or self._serve.pid)

    async def _kill(self) -> None:
        waits_s = self._kills.waits_s(self._load.seed)
        judged: asyncio.Task[None] | None = None
        for whom, wait_s in zip(itertools.cycle(self._kills.whom), waits_s, strict=False):
            if self.killed == self._kills.times:
                return
            await asyncio.sleep(wait_s)
            killed_s = time.monotonic()
            if whom == "serve":
                self._serve.kill()
                self._serve.start()
            elif (judge := self._serve.judge()) is not None:
                os.kill(judge, signal.SIGKILL)
            else:
                continue  # it met nobody
            self.killed += 1
            if judged is not None:
                judged.cancel()  # it did not live so long
            judged = asyncio.create_task(self._watcher.judged(killed_s))
            self._say(f"killed {whom}, {self.killed}")


def _kept(database: Path) -> set[tuple[str, int]]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return set(connection.execute("SELECT host, start_ns FROM windows").fetchall())


def missing(
    acknowledged: Iterable[tuple[str, int]], kept: Collection[tuple[str, int]], full_ns: int
) -> tuple[int, int]:
    """Return how many windows are lost, and how many were deleted for room.

    The disk was full last at `full_ns`, 0 if never. What is older than a restart reads may go then.
    """
    gone = [start_ns for _, start_ns in set(acknowledged) - set(kept)]
    trimmed = sum(start_ns + WIDTH_NS <= full_ns - NEEDED_NS for start_ns in gone)
    return len(gone) - trimmed, trimmed


def rss_mib(pid: int) -> int:
    """Return the memory that a process holds; 0 where there is none."""
    try:
        text = Path(f"/proc/{pid}/statm").read_text("ascii")
    except OSError:
        return 0
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def _text(files: tuple[Path, Path]) -> tuple[str, str]:
    return str(files[0]), str(files[1])


def told(outcome: Outcome) -> dict[str, Any]:
    """Return what a run shows, as one line of numbers."""
    load, seen, delivered = outcome.load, outcome.seen, outcome.delivered
    named: dict[str, float | None] = {each.component: None for each in outcome.truths}
    excused = {also for each in outcome.truths for also in (each.component, *each.also)}
    others, undecided = dict[str, str](), dict[str, str]()
    for at_ns, incident in seen.events:
        component = incident["component"]
        if component in named and named[component] is None:
            began = next(t.start_s for t in outcome.truths if t.component == component)
            named[component] = round((at_ns - outcome.failed_ns) / NS - began, 1)
        elif component is None:
            undecided[incident["id"]] = incident["summary"]
        elif component not in excused:
            others.setdefault(component, incident["summary"])
    took, answered = sorted(delivered.took_s), sorted(seen.answered_s)
    return {
        "rnics": load.rnics,
        "hosts": load.hosts,
        "windows": load.windows,
        "summaries": len(took),
        "named_s": named,
        "others": others,
        "undecided": sorted(undecided.values()),
        "lost": outcome.lost,
        "trimmed": outcome.trimmed,
        "undelivered": delivered.waiting,
        "killed": outcome.killed,
        "hostile": outcome.hostile,
        "refused": delivered.refused,
        "cpu_s_per_window": {
            "healthy": _used(seen.cpu_s[WARM : load.healthy + 1]),
            "failing": _used(seen.cpu_s[load.healthy + 1 :]),
            "load": round(delivered.cpu_s / load.windows, 3),
        },
        "acknowledged_ms": _spread(took),
        "answered_ms": _spread(answered),
        "rss_mib": {
            "receive": [seen.rss_mib[0][0], seen.rss_mib[-1][0]],
            "judge": [seen.rss_mib[0][1], seen.rss_mib[-1][1]],
        },
        "told": _told(seen),
        "questions": delivered.questions,
        "again_s": _spread(sorted(seen.again_s), 1) if seen.again_s else {},
        "stood_still": seen.status["stood_still"],
    }


def _told(seen: Seen) -> dict[str, Any]:
    """Return what the server said of itself."""
    late = [incident["late_ns"] for _, incident in seen.events]
    return {"late_s": round(max(late, default=0) / NS, 1), "warnings": sorted(seen.warnings)}


def _used(totals: list[tuple[float, float]]) -> dict[str, float | None]:
    """Return the median of what a window took, of each process."""
    names = ("receive", "judge")
    if len(totals) < 2:
        return dict.fromkeys(names)
    told: dict[str, float | None] = {}
    for name, each in zip(names, zip(*totals, strict=True), strict=True):
        used = [after - before for before, after in pairwise(each) if after >= before]
        told[name] = round(statistics.median(used), 3) if used else None  # else it was killed
    return told


def _spread(seconds: list[float], unit: int = 1000) -> dict[str, float]:
    cuts = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    last = len(seconds) - 1
    return {name: round(unit * seconds[int(share * last)], 1) for name, share in cuts}
