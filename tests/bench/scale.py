# SPDX-License-Identifier: Apache-2.0
"""What one window costs the judge at each size, from bytes to incidents, and a restart.

A simulated fabric sends what agents send, deflated as they do; a process of its own for each size.
No sockets and no disk: those of the receiver are in `receiving`, and both together, in real time,
in `tests.bench.fleet`. Agents answer as the simulated fabric does, and that is not timed.
"""

import gc
import io
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from analyzer.diagnosis.engine import Diagnosis
from analyzer.history.ledger import Ledger, Sealed
from analyzer.intake.table import WindowTable
from analyzer.intake.tables import Tables
from analyzer.judge.__main__ import GARBAGE
from analyzer.judge.memory import keep_freed
from analyzer.localize.topology import LearnedTopology
from analyzer.questions import Question
from analyzer.replay.routes import pack, unpack
from analyzer.roster.registry import Registry
from analyzer.simulate.agents import WIDTH_NS, Agents
from analyzer.simulate.clos import Clos, Shape
from analyzer.simulate.failures import Failure
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.topology import DeclaredTopology
from netagent.wire.codec import deflated, encode
from tests.bench.fleet.run import rss_mib
from tests.bench.judging import ingested_s
from tests.bench.windows import ROTATE
from tests.campaign.apart import beside

T = TypeVar("T")

RNICS = (256, 2_048, 8_192, 39_936)
RAILS = 8
WARM = 4
WINDOWS_A_DAY = 86_400 * 10**9 // WIDTH_NS
ROUNDS, HALF_MINUTE = 3, 6
"""Windows of a fault; and those in health, of which one ends a half minute and costs more.

The first half minute is told by itself: what a judge has never held costs the kernel a page each,
and that is over once it is as large as it gets."""
LONG, LONG_RNICS = 1_000, 512
BEFORE_BYTES = 3 << 30
"""Memory of the judge before. Chosen: what one of 39,936 RNICs comes to while it begins."""
FAULTS = {"link": (2,), "links": (1,) * 8, "spine": (4,)}
"""What fails, rows of Table 1: a dead link, eight lossy ones, a dead spine."""


@dataclass
class Watcher:
    """Looks on, and takes the time of it."""

    ledger: Ledger = field(default_factory=Ledger)
    sealed: list[Sealed] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)

    def wants(self, start_ns: int) -> bool:
        """Return whether a window can be added that came late; none does."""
        return self.ledger.wants(start_ns)

    def saw(
        self,
        table: WindowTable,
        endpoints: Mapping[EndpointId, Endpoint],
        topology: LearnedTopology,
    ) -> None:
        """Add a window."""
        began_s = time.process_time()
        self.sealed += self.ledger.saw(table, endpoints, topology)
        self.took_s.append(time.process_time() - began_s)

    def expire(self, before_ns: int) -> None:
        """Seal what is older; nothing is."""
        self.sealed += self.ledger.expire(before_ns)


@dataclass
class Life:
    """A fabric, and the diagnosis of it."""

    rnics: int
    shape: Shape | None = None
    """None: two tiers of switches."""
    took_s: list[tuple[float, float]] = field(default_factory=list)
    """Seconds of CPU of ingesting and of judging, by window."""
    bytes: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    named: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        hosts = self.rnics // RAILS
        spines = 8 if self.rnics < 4_096 else 32
        self.clos = Clos(self.shape or Shape(hosts, RAILS, hosts_per_segment=16, spines=spines), 1)
        self.agents = Agents(self.clos, 1, rotate=ROTATE)
        self.registry = Registry()
        for message in self.agents.registrations():
            self.registry.apply(message, 0)
        self.diagnosis = Diagnosis(self.registry, DeclaredTopology())
        self.tables = Tables()
        self.watcher = Watcher()
        self.diagnosis.observer = self.watcher  # history is on by default

    def fail(self, numbers: Sequence[int]) -> set[str]:
        """Let something fail from now on, and all else be well; return what may be named."""
        rng, failures = np.random.default_rng([1, 4]), list[Failure]()
        for number in numbers:
            failures.append(beside(failures, number, self.clos, rng))
        self.agents.fail(failures, now_ns=self.agents.now_ns)
        return {str(also) for each in failures for also in (each.truth, *each.also)}

    def windows(self, count: int) -> tuple[float, float]:
        """Let so many pass; return the medians of the seconds of ingesting and judging."""
        for _ in range(count):
            summaries = self.agents.window()
            bodies = [deflated(encode(each)) for each in summaries]
            self.rows.append(sum(len(each.flows.source_port) // 2 for each in summaries))
            now_ns = self.agents.now_ns + 1
            self.bytes.append(sum(map(len, bodies)))
            ingest_s = ingested_s(self.diagnosis, self.tables, bodies, now_ns)
            self.watcher.sealed.clear()  # a thread of the judge writes them
            self.took_s.append((ingest_s, self._judged_s(now_ns)))
        ingest, judge = zip(*self.took_s[-count:], strict=True)
        return statistics.median(ingest), statistics.median(judge)

    def _judged_s(self, now_ns: int) -> float:
        took_s = 0.0
        questions: list[Question] | None = None
        while questions is None or questions:
            for each in questions or ():
                reply = self.agents.reply(each.host, each.request, now_ns=now_ns)
                self.diagnosis.answer(each.id, reply, now_ns)
            began_s = time.process_time()
            questions = self.diagnosis.step(now_ns)
            took_s += time.process_time() - began_s
        while (event := self.diagnosis.next_event()) is not None:
            incident = getattr(event, "incident", None)
            if incident is not None and incident.verdict.component is not None:
                self.named.add(str(incident.verdict.component))
        return took_s

    def restart(self) -> dict[str, float]:
        """Return the seconds of keeping routes, and of a judge that begins with them."""
        began_s = time.process_time()
        saved = self.diagnosis.routes_saved()
        assert saved is not None  # it has stepped
        kept = b"".join(pack(saved))
        kept_s = time.process_time() - began_s
        since = [[deflated(encode(each)) for each in self.agents.window()] for _ in range(2)]
        took_s, kernel_s, held_mib = apart(
            begun, self.registry, kept, since, self.agents.now_ns + 1
        )
        return {
            "keep_s": kept_s,
            "keep_mb": len(kept) / 1e6,
            "restart_s": took_s,
            "restart_kernel_s": kernel_s,
            "restart_rss_mib": held_mib,
        }


def begun(
    registry: Registry, kept: bytes, since: list[list[bytes]], now_ns: int
) -> tuple[float, float, int]:
    """Begin with the routes that were kept, and with the windows since.

    Return seconds of CPU, and those of them that the kernel took, which is for memory, and MiB of
    memory that are held then, what was given included. The memory was in use before, as a judge's
    is that was just killed. Where a virtual machine has to ask its host for it, each first use
    costs several times as much.
    """
    gc.set_threshold(*GARBAGE)
    np.ones(BEFORE_BYTES, np.uint8)
    keep_freed()
    began_s, before = time.process_time(), os.times()
    again = Diagnosis(registry, DeclaredTopology())
    again.observer, tables = Watcher(), Tables()
    again.adopt_routes(unpack(io.BytesIO(kept), now_ns=now_ns, most_ns=3 * WIDTH_NS))
    for bodies in since:
        ingested_s(again, tables, bodies, now_ns)
    again.begin(now_ns)
    took_s, kernel_s = time.process_time() - began_s, os.times().system - before.system
    return took_s, kernel_s, rss_mib(os.getpid())


def measure(rnics: int) -> dict[str, Any]:
    """Return what one size costs."""
    gc.set_threshold(*GARBAGE)  # as a judge has it
    keep_freed()  # likewise
    life = Life(rnics)
    life.windows(WARM)
    start_s = [round(sum(each), 2) for each in life.took_s[:2]]
    life.windows(HALF_MINUTE)
    first_s = [sum(each) for each in life.took_s[-HALF_MINUTE:]]
    ingest_s, judge_s = life.windows(HALF_MINUTE)
    healthy_s = [sum(each) for each in life.took_s[-HALF_MINUTE:]]
    shown: dict[str, Any] = {
        "rnics": rnics,
        "flows": life.diagnosis.flows,
        "mb_per_window": round(statistics.median(life.bytes[WARM:]) / 1e6, 2),
        "bytes_per_row": round(sum(life.bytes[WARM:]) / sum(life.rows[WARM:]), 2),
        "days_in_100_gb": round(1e11 / statistics.median(life.bytes[WARM:]) / WINDOWS_A_DAY, 2),
        "start_s": start_s,
        "ingest_s": round(ingest_s, 3),
        "judge_s": round(judge_s, 3),
        "first_mean_s": round(statistics.mean(first_s), 3),
        "first_most_s": round(max(first_s), 3),
        "window_mean_s": round(statistics.mean(healthy_s), 3),
        "window_most_s": round(max(healthy_s), 3),
        "rows_per_s": round(life.rows[-1] / (ingest_s + judge_s)),
        "mean_rows_per_s": round(life.rows[-1] / statistics.mean(healthy_s)),
    }
    others = set(life.named)
    for name, numbers in FAULTS.items():
        life.named.clear()
        truths = life.fail(numbers)
        _, shown[f"judge_{name}_s"] = (round(each, 3) for each in life.windows(ROUNDS))
        shown[f"named_{name}"] = len(life.named & truths)
        others |= life.named - truths
        life.fail(())
        life.windows(2)
    shown["others"] = sorted(others)
    return shown | {name: round(each, 2) for name, each in life.restart().items()}


def last(rnics: int) -> dict[str, Any]:
    """Return how the memory of one life, the simulation's included, grows in health."""
    gc.set_threshold(*GARBAGE)
    keep_freed()
    life, grown = Life(rnics), list[int]()
    for _ in range(10):
        life.windows(LONG // 10)
        grown.append(rss_mib(os.getpid()))
    return {"rnics": rnics, "windows": LONG, "rss_mib": grown, "others": sorted(life.named)}


def apart(measured: Callable[..., T], *args: object) -> T:
    """Return what a process of its own returns."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measured, *args).result()


def run() -> Iterator[dict[str, object]]:
    """Yield one row for each size, and one of a thousand windows."""
    for rnics in RNICS:
        yield apart(measure, rnics)
    yield apart(last, LONG_RNICS)


if __name__ == "__main__":  # one size, or some
    for given in map(int, sys.argv[1:]):
        print(json.dumps(apart(measure, given)), flush=True)
