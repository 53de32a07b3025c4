# SPDX-License-Identifier: Apache-2.0
"""What the processes of a lab hold, and its analyzer's folder, read from the machine.

A part is a process, or one of its helpers: all processes that run the same module, added up.
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.commands import run as command
from tests.lab.errors import LabError
from tests.lab.lab import Lab
from tests.lab.processes import children, family
from tests.lab.shape import Shape, Transport

Key = tuple[str, str]
"""Part and kind."""
JUDGE = "analyzer.judge"
LASTING = (JUDGE, "netagent.adapters.rdma.")
"""How the modules of helpers begin that last as long as whom they help. Others come with a question
and go a minute after the last one: what they held is given back, so that they are only counted."""
RDMA_HELPERS = ("netagent.adapters.rdma.responder", "netagent.adapters.rdma.resolver")
OTHERS = "others"
DATABASE = "netagent.duckdb"
FOLDER = "folder"
"""Of the analyzer, the sum of its parts."""
DEVICES = "all devices"


@dataclass(slots=True)
class Reading:
    """What was held at a moment."""

    held: dict[Key, float | None] = field(default_factory=dict)
    """None: it could not be read."""
    pids: dict[str, set[int]] = field(default_factory=dict)
    """Part -> processes that stand for it, without their forks."""


def expected(shape: Shape) -> set[Key]:
    """Return what every reading of a lab must have."""
    parts = [f"h{host}/agent" for host in range(shape.hosts)] + ["analyzer/analyzer"]
    keys = {(f"{part}: {OTHERS}", "processes") for part in parts}
    keys |= {(part, kind) for part in [*parts, f"{parts[-1]}: {JUDGE}"] for kind in KINDS}
    keys |= {(f"{FOLDER}: {part}", "disk_mb") for part in ("database", "summaries", "recording")}
    keys.add((FOLDER, "disk_mb"))
    if shape.transport is Transport.RDMA:
        helpers = [f"{part}: {module}" for part in parts[:-1] for module in RDMA_HELPERS]
        keys |= {(DEVICES, "queue_pairs")} | {(part, kind) for part in helpers for kind in KINDS}
    return keys


def read(lab: Lab) -> Reading:
    """Return what the agents and the analyzer, their helpers and the analyzer's folder hold now."""
    reading, tree = Reading(), children()
    for name in lab.processes.names():
        if name.endswith(("/agent", "/analyzer")):
            pid = lab.processes.pid(name)
            _read_process(reading, name, pid, tree)
    reading.held |= sizes(lab.directory / "analyzer")
    if lab.state().shape.transport is Transport.RDMA:
        reading.held[DEVICES, "queue_pairs"] = _queue_pairs()
    return reading


def _read_process(
    reading: Reading, name: str, pid: int | None, tree: Mapping[int, list[int]]
) -> None:
    if pid is None:
        reading.held |= {(name, kind): None for kind in KINDS}
        return
    _, *helpers = family(pid, tree)
    parts: dict[str, list[int]] = defaultdict(list, {name: [pid], f"{name}: {OTHERS}": []})
    for helper in helpers:
        module = module_of(_command(helper))
        lasts = module.startswith(LASTING)
        parts[f"{name}: {module if lasts else OTHERS}"].append(helper)
    for part, pids in parts.items():
        kinds = ("processes",) if part.endswith(OTHERS) else KINDS
        reading.held |= {(part, kind): _sum(map(KINDS[kind], pids)) for kind in kinds}
    lasting = [part for part in parts if not part.endswith(OTHERS)]
    own = {pid, *tree.get(pid, ())}
    reading.pids |= {part: own.intersection(parts[part]) for part in lasting}


def module_of(argv: Sequence[str]) -> str:
    """Return the module that ``python -m MODULE`` runs; empty for anything else."""
    return argv[argv.index("-m") + 1] if "-m" in argv[1:-1] else ""


def least(readings: Collection[Reading]) -> Reading:
    """Return the least of each that was read, so without what is held for a moment."""
    made = Reading()
    for key in {key for each in readings for key in each.held}:
        values = [value for each in readings if (value := each.held.get(key)) is not None]
        made.held[key] = min(values, default=None)
    for each in readings:
        for part, pids in each.pids.items():
            made.pids.setdefault(part, set()).update(pids)
    return made


def sizes(folder: Path) -> dict[Key, float | None]:
    """Return the megabytes of an analyzer's folder, and of each of its parts."""
    found: dict[Key, float | None] = {}
    total = 0.0
    for where, _, files in os.walk(folder):  # which takes it that folders go meanwhile
        for path in (Path(where, name) for name in files):
            with suppress(FileNotFoundError):  # it was deleted meanwhile
                size = path.stat().st_size / 1024**2
                key = (f"{FOLDER}: {_part(path.relative_to(folder).parts[0])}", "disk_mb")
                found[key] = (found.get(key) or 0.0) + size
                total += size
    return found | {(FOLDER, "disk_mb"): total}


def _part(name: str) -> str:
    """Return the part that a file of the folder, or a folder in it, belongs to."""
    if name == DATABASE or name.removeprefix(DATABASE) in {".wal", ".tmp", ".wal.checkpoint"}:
        return "database"
    if name.startswith(DATABASE + "."):
        return name.removeprefix(DATABASE + ".").partition(".")[0]
    return "log" if name.endswith(".log") else "recording" if name == "recording" else "rest"


def _sum(values: Iterable[float | None]) -> float | None:
    read = list(values)
    known = [value for value in read if value is not None]
    return sum(known) if len(known) == len(read) else None


def _queue_pairs() -> float | None:
    with suppress(LabError, ValueError):
        rows = json.loads(command("rdma", "-j", "resource", "show"))
        return float(sum(row.get("qp", 0) for row in rows))
    return None


def _command(pid: int) -> list[str]:
    with suppress(OSError):  # it ended meanwhile
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def _memory_mb(pid: int) -> float | None:
    # Its own: how much of a library's pages is whose changes with who else runs.
    names = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")
    numbers = [number for name, number in _numbers(pid, "smaps_rollup") if name in names]
    return sum(numbers) / 1024 if numbers else None


def _threads(pid: int) -> float | None:
    return next((number for name, number in _numbers(pid, "status") if name == "Threads:"), None)


def _numbers(pid: int, file: str) -> Iterator[tuple[str, float]]:
    with suppress(OSError):  # it ended meanwhile
        text = Path(f"/proc/{pid}/{file}").read_text(encoding="ascii", errors="replace")
        for line in text.splitlines():
            name, *rest = line.split() or [""]
            if rest and rest[0].isdecimal():
                yield name, float(rest[0])


def _descriptors(pid: int) -> float | None:
    with suppress(OSError):
        return float(len(list(Path(f"/proc/{pid}/fd").iterdir())))
    return None


def _one(_pid: int) -> float:
    return 1.0


KINDS: Mapping[str, Callable[[int], float | None]] = {
    "memory_mb": _memory_mb, "descriptors": _descriptors, "threads": _threads, "processes": _one,
}  # fmt: skip
