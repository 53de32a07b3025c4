# SPDX-License-Identifier: Apache-2.0
"""What minutes and hours cost the judge, and how long they last in 100 GB.

Two kinds of fleets, in health, without sockets; a process of its own for each. In the life of
`scale` tasks have skeletons, so that an RNIC probes few others. In a task of `windows` every pair
of a rail is probed, as where it has no skeleton. MINUTES minutes are judged and written, of such a
task one; the hour is made of these, over and over.
"""

import gc
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from analyzer.config import History
from analyzer.diagnosis.engine import Diagnosis
from analyzer.history.blocks import Block, block_of
from analyzer.history.files import HISTORY, Tier
from analyzer.history.ledger import MINUTE_NS
from analyzer.intake.tables import Tables
from analyzer.judge.__main__ import GARBAGE
from analyzer.simulate.agents import WIDTH_NS
from analyzer.store.listing import pieces_in
from analyzer.store.past import Wanted, page
from analyzer.store.tiers import Tiers
from netagent.model.topology import DeclaredTopology
from tests.bench.judging import ingested_s
from tests.bench.scale import WARM, Life, Watcher
from tests.bench.windows import Cluster

RNICS = (2_048, 8_192)
TASKS = ((32, 8), (128, 1))
"""Hosts and rails of tasks of which every pair of a rail is probed."""
MINUTES = 3
WINDOWS = MINUTE_NS // WIDTH_NS
"""In a minute."""
HOUR = 60
DAYS = 100e9 / 86_400
"""Of 100 GB, at a byte a second."""


class Fleet(Protocol):
    """What is judged."""

    diagnosis: Diagnosis
    took_s: list[tuple[float, float]]

    def windows(self, count: int) -> object:
        """Let so many pass."""


class Whole:
    """A task of which every pair of a rail is probed, and the diagnosis of it."""

    def __init__(self, hosts: int, rails: int) -> None:
        self._cluster = Cluster(hosts, rails)
        self.diagnosis = Diagnosis(self._cluster.registry(), DeclaredTopology())
        self.tables = Tables()
        self.took_s: list[tuple[float, float]] = []
        """Seconds of CPU of ingesting and of judging, by window."""

    def windows(self, count: int) -> None:
        """Let so many pass."""
        for _ in range(count):
            bodies = self._cluster.bodies()
            now_ns = self._cluster.window * WIDTH_NS + 1
            ingest_s = ingested_s(self.diagnosis, self.tables, bodies, now_ns)
            self.took_s.append((ingest_s, cpu_s(lambda at=now_ns: self.diagnosis.step(at))))  # type: ignore[misc]  # a default


def cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU that `work` takes, in seconds."""
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def measure(rnics: int) -> dict[str, Any]:
    """Return what one size costs."""
    return {"rnics": rnics} | costs(Life(rnics), rnics, MINUTES)


def measure_task(hosts: int, rails: int) -> dict[str, Any]:
    """Return what a task costs of which every pair of a rail is probed."""
    return {"rnics": hosts * rails} | costs(Whole(hosts, rails), hosts * rails, 1)


def costs(life: Fleet, rnics: int, minutes: int) -> dict[str, Any]:
    """Return what so many minutes cost, and how much space they take."""
    gc.set_threshold(*GARBAGE)
    watcher = Watcher()
    life.diagnosis.observer = watcher
    life.windows(WARM)
    first_s = watcher.took_s[0]
    while len(watcher.sealed) < minutes + 1:  # the first one is not whole
        life.windows(1)
    took_s = watcher.took_s[-minutes * WINDOWS :]
    others_s = [sum(each) for each in life.took_s[-minutes * WINDOWS :]]
    judged_s = statistics.mean(others_s) - statistics.mean(took_s)
    with tempfile.TemporaryDirectory() as folder:
        made = list[Block]()
        block_s = statistics.mean(
            cpu_s(lambda each=each: made.append(block_of(each)))  # type: ignore[misc]  # a default
            for each in watcher.sealed[-minutes:]
        )
        shown = written(str(Path(folder) / "db"), made)
    writing_s = (block_s + shown["minute_s"] + shown["hour_s"] / HOUR) / WINDOWS
    return {
        "pairs": len(made[-1].pairs),
        "pairs_per_rnic": round(len(made[-1].pairs) / rnics, 1),
        "components": len(made[-1].components),
        "judging_s": round(judged_s, 3),
        "adding_s": round(statistics.mean(took_s), 4),
        "writing_s": round(writing_s, 4),
        "share": round((statistics.mean(took_s) + writing_s) / judged_s, 3),
        "first_s": round(first_s, 2),
        "longest_s": round(max(took_s), 3),
        "minute_bytes_per_rnic": round(1e3 * shown["minute_kb"] / rnics),
    } | {name: value for name, value in shown.items() if not name.endswith("_s")}


def written(database: str, made: list[Block]) -> dict[str, Any]:
    """Write an hour of minutes; return what each tier costs and takes."""
    tiers = Tiers(database, History())
    hour_ns = made[0].start_ns // Tier.HOUR.width_ns * Tier.HOUR.width_ns
    tiers.begin(hour_ns)

    def put(n: int) -> float:
        block = replace(made[n % len(made)], start_ns=hour_ns + n * MINUTE_NS)
        return cpu_s(lambda: tiers.put(block))

    took_s = [put(n) for n in range(HOUR)]
    minute = sum(size for _, size in pieces_in(Path(database + HISTORY))) // HOUR
    took_s.append(put(HOUR))  # the hour is merged, and some of its minutes are put together
    hour = sum(n for piece, n in pieces_in(Path(database + HISTORY)) if piece.tier is Tier.HOUR)
    name = made[0].components.names[0]
    wanted = Wanted(Tier.MINUTE, hour_ns, hour_ns + Tier.HOUR.width_ns, component=name)
    return {
        "minute_s": statistics.median(took_s[1:HOUR]),
        "hour_s": took_s[HOUR] - statistics.median(took_s[1:HOUR]),
        "minute_kb": round(minute / 1e3, 1),
        "hour_kb": round(hour / 1e3, 1),
        "minutes_days_in_100_gb": round(DAYS * 60 / minute),
        "hours_days_in_100_gb": round(DAYS * 3600 / hour),
        "asking_ms": round(1e3 * cpu_s(lambda: page(database, wanted, None, HOUR))),
    }


def run() -> Iterator[dict[str, object]]:
    """Yield one row for each size, and for each task."""
    for rnics in RNICS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            yield pool.apply(measure, (rnics,))
    for task in TASKS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            yield pool.apply(measure_task, task)
