# SPDX-License-Identifier: Apache-2.0
"""A lab for an hour in which tasks come and go: what its processes hold must stay flat.

Memory (PSS, so that pages which a fork shares count once), file descriptors, threads, helpers,
queue pairs and the analyzer's database are read again and again. The first quarter is a warm-up.
What each held in the last quarter is compared with the second one, by medians: a leak goes on, a
step does not, and what comes and goes with containers is in both.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tests.lab.commands import run as command
from tests.lab.demo import Observer, Say
from tests.lab.health import Health
from tests.lab.health import Report as Seen
from tests.lab.lab import Lab
from tests.lab.processes import children, family
from tests.lab.shape import Shape, Transport

EVERY_S = 15.0
"""Seconds between two readings."""
QUARTERS = 4
LIMITS: Mapping[str, tuple[float, float]] = {
    "memory_kb": (0.03, 2048), "descriptors": (0.0, 40), "threads": (0.0, 4),
    "helpers": (0.0, 2),
    "database_kb": (0.03, 1024), "queue_pairs": (0.0, 8),
}  # fmt: skip
"""How much more the last quarter's median may be than the second's: a share, and an amount. Chosen:
some more containers are no growth; each has some twenty descriptors of its host's agent."""

Reading = Mapping[tuple[str, str], float]
"""What was held, by process and kind."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one process held of one kind."""

    process: str
    kind: str
    quarters: tuple[float, ...]
    """Median of each quarter of its readings."""

    @property
    def flat(self) -> bool:
        """Whether the last quarter is not beyond the limits of the second."""
        share, amount = LIMITS[self.kind]
        _, before, *_, after = self.quarters
        return after <= before * (1 + share) + amount

    def line(self) -> str:
        """Return it for people."""
        verdict = "flat" if self.flat else "GREW"
        held = "".join(f"{each:>9.0f}" for each in self.quarters)
        return f"{self.process:25} {self.kind:11}{held}  {verdict}"


def compared(readings: Sequence[Reading]) -> list[Held]:
    """Return what each process held in each quarter of its readings.

    One that was read less than four times, a helper for a moment, is left out.
    """
    keys = sorted({key for each in readings for key in each})
    series = {key: [each[key] for each in readings if key in each] for key in keys}
    return [_held(key, values) for key, values in series.items() if len(values) >= QUARTERS]


def _held(key: tuple[str, str], values: Sequence[float]) -> Held:
    ends = [len(values) * number // QUARTERS for number in range(QUARTERS + 1)]
    return Held(*key, tuple(median(values[a:b]) for a, b in pairwise(ends)))


@dataclass(slots=True)
class Report:
    """What was seen."""

    health: Seen
    readings: list[Reading] = field(default_factory=list)

    @property
    def held(self) -> list[Held]:
        """What each process held; nothing where there were too few readings."""
        return compared(self.readings)

    @property
    def good(self) -> bool:
        """Whether all was flat and nobody was named."""
        return self.health.good and bool(self.held) and all(each.flat for each in self.held)

    def lines(self) -> list[str]:
        """Return all of it, for people."""
        head = f"{'process':25} {'kind':11}{'1st':>9}{'2nd':>9}{'3rd':>9}{'4th':>9}"
        return [*self.health.lines(), head, *(each.line() for each in self.held)]

    def values(self) -> dict[str, Any]:
        """Return all of it, for programs."""
        rows = [
            {"process": h.process, "kind": h.kind, "quarters": h.quarters, "flat": h.flat}
            for h in self.held
        ]  # fmt: skip
        return {"good": self.good, "readings": len(self.readings), "held": rows}


class Soak(Health):
    """Changes a lab, watches, and reads what its processes hold."""

    def __init__(self, lab: Lab, observer: Observer, say: Say, *, seed: int) -> None:
        super().__init__(lab, observer, say, seed=seed)
        self.readings: list[Reading] = []
        self._due_s = 0.0

    def _look(self) -> None:
        super()._look()
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + EVERY_S
            self.readings.append(dict(read(self._lab)))


def read(lab: Lab) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield what the agents, the analyzer, and the largest of each one's helpers hold now."""
    tree = children()
    for name in lab.processes.names():
        pid = lab.processes.pid(name)
        if pid is None or not name.endswith(("/agent", "/analyzer")):
            continue
        _, *helpers = family(pid, tree)
        yield (name, "helpers"), len(helpers)
        for kind, of in _KINDS.items():
            yield (name, kind), of(pid)
            if helpers:
                yield (f"{name}'s helper", kind), max(map(of, helpers))
    database = lab.directory / "analyzer"
    size = sum(path.stat().st_size for path in database.rglob("*.duckdb*"))
    yield ("analyzer/analyzer", "database_kb"), size / 1024
    if lab.state().shape.transport is Transport.RDMA:
        rows = json.loads(command("rdma", "-j", "resource", "show"))
        yield ("all devices", "queue_pairs"), sum(row.get("qp", 0) for row in rows)


def _memory_kb(pid: int) -> float:
    return _number(pid, "smaps_rollup", "Pss:")


def _threads(pid: int) -> float:
    return _number(pid, "status", "Threads:")


def _descriptors(pid: int) -> float:
    with suppress(OSError):
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return 0.0


def _number(pid: int, file: str, name: str) -> float:
    with suppress(OSError):  # it ended meanwhile
        for line in Path(f"/proc/{pid}/{file}").read_text(encoding="ascii").splitlines():
            if line.startswith(name):
                return float(line.split()[1])
    return 0.0


_KINDS: Mapping[str, Callable[[int], float]] = {
    "memory_kb": _memory_kb, "descriptors": _descriptors, "threads": _threads,
}  # fmt: skip


def run(lab: Lab, say: Say, *, minutes: float, seed: int, transport: Transport) -> Report:
    """Run on a fresh lab, which is taken down after; return what was seen."""
    lab.up(Shape(transport=transport))
    try:
        with lab.services().client() as client:
            soak = Soak(lab, Observer(client), say, seed=seed)
            soak.run(minutes)
    finally:
        lab.down()
    return Report(soak.report, soak.readings)
