# SPDX-License-Identifier: Apache-2.0
"""What reading a controller costs: a reader's process at a real ovsdb-server with OVN's schemas."""

import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from analyzer.config import Ovn
from analyzer.intent.model import Intent
from analyzer.server.controllers import Controller
from tests.analyzer.controllers.central import NB, SB, Central, Cluster, fill, update
from tests.waiting import until, wait_until

PORTS, CHASSIS, SWITCHES = 10_000, 100, 100
UPDATES, A_SECOND = 3_000, 1_000
"""Ports that change, and how many of them a second; half of them in either database."""
WITHIN_S = 120.0


def run() -> Iterator[dict[str, object]]:
    """Yield a row of one server, killed meanwhile, and one of a cluster whose leaders are."""
    with tempfile.TemporaryDirectory() as folder:
        central = Central(Path(folder))
        central.start()
        try:
            fill(central, ports=PORTS, chassis=CHASSIS, switches=SWITCHES)
            yield asyncio.run(_read(central))
        finally:
            central.kill()
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        try:
            wait_until(cluster.is_whole, "the cluster", WITHIN_S)
            fill(cluster, ports=PORTS, chassis=CHASSIS, switches=SWITCHES)
            yield asyncio.run(_lose_leaders(cluster))
        finally:
            for number in cluster.members:
                cluster.kill(number)


async def _lose_leaders(cluster: Cluster) -> dict[str, object]:
    """Read at the leader alone; kill it, and count until a change at the new one is known."""
    first = cluster.leader(NB)
    remotes = [cluster.remotes[first], *(each for each in cluster.remotes
                                         if each != cluster.remotes[first])]  # fmt: skip
    controller = Controller(
        Ovn(northbound=tuple(remotes), southbound=tuple(remotes)), time.time_ns,
        on_intent=lambda _intent: None,
    )  # fmt: skip
    running = asyncio.create_task(controller.run())
    try:
        await until(lambda: not controller.intent.away, "all of it", WITHIN_S)
        killed_s = time.monotonic()
        cluster.kill(cluster.leader(NB))
        name = next(iter(controller.intent.ports))
        await asyncio.to_thread(_change, cluster, [name], [])
        changed_s = time.monotonic()
        await until(
            lambda: not controller.intent.away and not controller.intent.ports[name].is_enabled,
            "a change at another leader", WITHIN_S,
        )  # fmt: skip
        return {
            "members": 3, "ports": PORTS, "elected_s": round(changed_s - killed_s, 2),
            "back_s": round(time.monotonic() - killed_s, 2), "target_back_s": 5,
            "rss_mb": _memory_mb(controller.pid), "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _read(central: Central) -> dict[str, object]:
    said: list[Intent] = []
    config = Ovn(northbound=(central.remote,), southbound=(central.remote,))
    controller = Controller(config, time.time_ns, on_intent=said.append)
    began_s = time.monotonic()
    running = asyncio.create_task(controller.run())
    try:
        await until(lambda: not controller.intent.away, "all of it", WITHIN_S)
        whole_s = time.monotonic() - began_s
        assert len(controller.intent.ports) == len(controller.intent.placements) == PORTS
        first = _cpu_s(controller.pid), _memory_mb(controller.pid)
        count, ours_s = len(said), resource.getrusage(resource.RUSAGE_SELF)
        updated_s = await _update(controller, central)
        here = resource.getrusage(resource.RUSAGE_SELF)
        parent_s = here.ru_utime + here.ru_stime - ours_s.ru_utime - ours_s.ru_stime
        followed_s, told = _cpu_s(controller.pid) - first[0], len(said) - count
        central.kill()
        await until(lambda: controller.intent.away, "being away", WITHIN_S)
        central.start()
        again_s = time.monotonic()
        await until(lambda: not controller.intent.away, "being back", WITHIN_S)
        return {
            "ports": PORTS, "chassis": CHASSIS,
            "whole_s": round(whole_s, 2), "whole_cpu_s": round(first[0], 2), "target_s": 5,
            "rss_mb": _memory_mb(controller.pid), "rss_first_mb": first[1], "target_mb": 150,
            "updates": UPDATES, "updates_per_s": round(UPDATES / updated_s),
            "cpu_s_per_1000": round(followed_s / UPDATES * 1_000, 3),
            "intents": told, "parent_and_load_cpu_s": round(parent_s, 2),
            "back_s": round(time.monotonic() - again_s, 2), "target_back_s": 5,
            "load": round(os.getloadavg()[0], 1),
        }  # fmt: skip
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _update(controller: Controller, central: Central) -> float:
    """Change ports one by one, in tenths of a second; return seconds until all that is known."""
    began_s = time.monotonic()
    names = sorted(controller.intent.ports)[:UPDATES]
    for number in range(0, UPDATES, A_SECOND // 10):
        part = names[number : number + A_SECOND // 10]
        half = len(part) // 2
        await asyncio.to_thread(_change, central, part[:half], part[half:])
        await asyncio.sleep(max(0.0, began_s + (number + len(part)) / A_SECOND - time.monotonic()))
    await until(
        lambda: (
            sum(not each.is_enabled for each in controller.intent.ports.values())
            + sum(not each.is_up for each in controller.intent.placements.values())
            == UPDATES
        ),
        "all changes",
        WITHIN_S,
    )
    return time.monotonic() - began_s


def _change(central: Central | Cluster, ports: list[str], bindings: list[str]) -> None:
    for name in ports:
        central.transact(NB, update("Logical_Switch_Port", ["name", "==", name], enabled=False))
    for name in bindings:
        central.transact(SB, update("Port_Binding", ["logical_port", "==", name], up=False))


def _cpu_s(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int | None) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0
