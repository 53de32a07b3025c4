# SPDX-License-Identifier: Apache-2.0
"""What the start of containers costs the analyzer: registrations, lists and plans, without sockets.

Bytes and seconds are of the process that receives, from a decoded request to an encoded answer, the
database on disk included. That of the judge, which keeps the same registry, is told apart.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from analyzer.roster.lists import Lists
from analyzer.roster.registry import Registry
from analyzer.roster.service import AnalyzerService
from analyzer.skeleton.plans import Skeletons
from analyzer.store.tables import Store
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.task import Task
from netagent.probing.roster import Roster
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Registration
from netagent.wire.roster import Follow, Update

RAILS = 8
AT_ONCE = 32
"""Registrations that come at the same time: they share a write."""
S = 10**9


class Service:
    """The analyzer's methods over a database, as a server calls them."""

    def __init__(self, path: Path) -> None:
        self.store = Store(str(path))
        self.registry, self.judges = Registry(), Registry()
        self.skeletons = Skeletons(self.registry)
        self.lists = Lists(self.registry, used=self.skeletons.used)
        self.woken: set[str] = set()
        self.service = AnalyzerService(
            self.registry, self.lists, self.store, changed=self.woken.update
        )
        self.agents: dict[str, Roster] = {}
        self.sent = 0
        self.judge_s = 0.0

    async def declare(self, tasks: Iterable[Task]) -> None:
        """Declare tasks, at the same time: they share a write."""
        tasks = list(tasks)
        await asyncio.gather(*(self.service.put_task(each, 0) for each in tasks))
        for each in tasks:
            self.judges.put_task(each, 0)

    async def register(self, body: bytes, wall_ns: int) -> None:
        """Take a registration; it is written before this returns."""
        said = decode(body, Registration)
        answer = encode(await self.service.register(said, wall_ns))
        self.sent += len(answer)
        began = time.process_time()
        self.judges.apply(said, wall_ns)
        self.judge_s += time.process_time() - began

    async def register_all(self, bodies: Sequence[bytes], wall_ns: int) -> None:
        """Take registrations that come at about the same time."""
        for first in range(0, len(bodies), AT_ONCE):
            batch = bodies[first : first + AT_ONCE]
            await asyncio.gather(*(self.register(body, wall_ns) for body in batch))

    def follow(self, host: str, asked: bytes) -> bytes:
        """Answer what changed of a host's list."""
        update = self.lists.update(host, decode(asked, Follow))
        body = encode(update) if update is not None else b""
        self.sent += len(body)
        return body

    def all_follow(self, hosts: Iterable[str]) -> float:
        """Let agents ask; return the analyzer's CPU seconds."""
        took_s = 0.0
        for host in sorted(hosts):
            roster = self.agents.setdefault(host, Roster(host))
            asked = encode(roster.asks())
            began = time.process_time()
            body = self.follow(host, asked)
            took_s += time.process_time() - began
            if body:
                roster.take(decode(body, Update))
        return took_s


def endpoint(host: int, container: str, rail: int, life: int) -> Endpoint:
    """Return an endpoint of a container's `life`-th start."""
    octets = (host >> 8, host & 255)
    return Endpoint(
        EndpointId(container, rail),
        task="",
        host=f"gpu-{host:05d}",
        address=f"10.{rail}.{octets[0]}.{octets[1]}",
        mac=f"0a:00:{life % 256:02x}:{rail:02x}:{octets[0]:02x}:{octets[1]:02x}",
        underlay=f"172.{16 + rail}.{octets[0]}.{octets[1]}",
        rnic=f"rnic{rail}",
        bridge="br-int",
        port=f"{container}-{rail}",
    )


def declared(task: str, containers: tuple[str, ...], rnics: int) -> Task:
    """Return a task that is declared."""
    return Task(task, containers, rnics, tuple(range(rnics)), declared=True)


def registration(host: int, endpoints: tuple[Endpoint, ...], generation: int) -> bytes:
    """Return what the agent of a host says."""
    name = f"gpu-{host:05d}"
    url = f"https://{name}.cluster.example:8421"
    return encode(
        Registration(
            host=name, instance="one", generation=generation, rpc_url=url, endpoints=endpoints
        )
    )


def one_task(folder: Path, hosts: int) -> dict[str, object]:
    """Let one task's containers come one after another, then one of them again."""
    bench = Service(folder / "one.duckdb")
    names = tuple(f"train-{n:05d}" for n in range(hosts))
    asyncio.run(bench.declare([declared("train", names, RAILS)]))
    bodies = [
        registration(n, tuple(endpoint(n, name, rail, 0) for rail in range(RAILS)), 1)
        for n, name in enumerate(names)
    ]

    began_s, began = time.perf_counter(), time.process_time()
    asyncio.run(bench.register_all(bodies, S))
    registered_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began
    hosts_named = [f"gpu-{n:05d}" for n in range(hosts)]
    followed_s, lists = bench.all_follow(hosts_named), bench.sent
    bench.sent = 0
    began = time.process_time()
    moved = [replace(endpoint(7, names[7], r, 2), address=f"10.99.{r}.1") for r in range(RAILS)]
    for life, there in ((1, []), (2, moved)):  # it goes, and comes again elsewhere
        body, wall_ns = registration(7, tuple(there), life + 1), life * 60 * S
        asyncio.run(bench.register(body, wall_ns))
        bench.skeletons.refresh(wall_ns)
    start_s = time.process_time() - began + bench.all_follow(hosts_named)
    assert all(len(a.pinglist().targets) == RAILS * (hosts - 1) for a in bench.agents.values())
    asyncio.run(bench.store.close())
    return {
        "rnics": hosts * RAILS, "tasks": 1,
        "registered_s": round(registered_s, 2), "registered_cpu_s": round(cpu_s, 2),
        "of_it_judge_s": round(bench.judge_s, 2),
        "lists_cpu_s": round(followed_s, 2), "lists_mb": round(lists / 1e6, 1),
        "restart_cpu_s": round(start_s, 3), "restart_mb": round(bench.sent / 1e6, 2),
    }  # fmt: skip


def many_tasks(folder: Path, tasks: int, starts: int) -> dict[str, object]:
    """Let containers of many small tasks come again within a minute."""
    bench = Service(folder / "many.duckdb")
    held: dict[int, dict[str, tuple[Endpoint, ...]]] = {}
    asyncio.run(
        bench.declare(declared(f"t{n}", (f"t{n}-0", f"t{n}-1"), RAILS // 2) for n in range(tasks))
    )
    for n in range(tasks):  # a task's two containers share their hosts with two other tasks
        for k in (0, 1):
            name, host = f"t{n}-{k}", (n + k) % tasks
            rails = range(n % 2 * RAILS // 2, (n % 2 + 1) * RAILS // 2)
            held.setdefault(host, {})[name] = tuple(endpoint(host, name, r, 0) for r in rails)

    def said(host: int, generation: int) -> bytes:
        ends = tuple(each for name in held[host] for each in held[host][name])
        return registration(host, ends, generation)

    asyncio.run(bench.register_all([said(host, 1) for host in range(tasks)], S))
    bench.skeletons.refresh(2 * S)
    bench.all_follow([f"gpu-{n:05d}" for n in range(tasks)])
    bench.sent, bench.judge_s, used_s = 0, 0.0, 0.0
    for second in range(60):
        wall_ns = (100 + second) * S
        chosen = range(second * starts // 60, (second + 1) * starts // 60)
        for host in chosen:
            first = min(held[host])
            held[host][first] = tuple(
                replace(each, address=f"10.99.{each.id.rail}.1") for each in held[host][first]
            )
        bench.woken.clear()
        bodies = [said(host, 2) for host in chosen]
        began = time.process_time()
        asyncio.run(bench.register_all(bodies, wall_ns))
        bench.skeletons.refresh(wall_ns)
        bench.skeletons.to_sample(wall_ns)
        used_s += time.process_time() - began
        peers = {each.host for host in bench.woken for each in bench.agents[host].peers()}
        used_s += bench.all_follow(bench.woken | peers)
    asyncio.run(bench.store.close())
    return {
        "rnics": tasks * RAILS, "tasks": tasks, "starts_per_minute": starts,
        "share_of_a_core": round(used_s / 60, 4), "of_it_judge": round(bench.judge_s / 60, 4),
        "bytes_per_start": round(bench.sent / starts),
    }  # fmt: skip


def run() -> list[dict[str, object]]:
    """Return a row per size of one task, and one of many tasks."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [one_task(Path(folder) / f"{hosts}", hosts) for hosts in (128, 1024)]
        return [*rows, many_tasks(Path(folder) / "many", 5_000, 2_000)]
