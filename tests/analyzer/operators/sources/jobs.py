# SPDX-License-Identifier: Apache-2.0
"""Jobs that stand still, as PyTorch's flight recorder would dump them: the dumps and the truth.

Each rank has a program of operations. Its CPU issues some ahead of what its GPU has done; the GPU
does them in order, and each once all who take part have come to it. A fault stops a CPU or a GPU,
or makes a program differ; then all goes on until nothing moves any more.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SHAPES = ((4, 1, 1), (2, 2, 2), (4, 2, 1), (1, 4, 2), (3, 1, 2), (8, 1, 1), (2, 4, 2))
START_NS = 1_700_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a program."""

    name: str
    group: str
    size: int = 1024
    peer: int = -1
    """Of `send` and `recv`: a rank."""


@dataclass
class Job:
    """A job of `dp` x `pp` x `tp` ranks: rank = (dp * PP + pp) * TP + tp, or tp first."""

    dp: int
    pp: int
    tp: int
    steps: int = 3
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    programs: list[list[Op]] = field(default_factory=list)
    ahead: int = 4
    cpu_stops: dict[int, int] = field(default_factory=dict)
    """By rank, the place in its program that is never issued."""
    gpu_stops: dict[int, int] = field(default_factory=dict)
    """By rank, the place in its program that never starts."""

    def __post_init__(self) -> None:
        self.world = self.dp * self.pp * self.tp
        ranks = range(self.world)
        self.groups["0"] = tuple(ranks)
        number = 1
        for axis in ("dp", "tp"):
            parts: dict[tuple[int, ...], list[int]] = {}
            for rank in ranks:
                at = self.at(rank)
                parts.setdefault(tuple(at[each] for each in at if each != axis), []).append(rank)
            for members in parts.values():
                if len(members) > 1:
                    self.groups[f"{number}:{axis}"] = tuple(members)
                    number += 1
        self.programs = [self._program(rank) for rank in ranks]

    def at(self, rank: int) -> dict[str, int]:
        """Return where a rank is on each axis."""
        rest, tp = divmod(rank, self.tp)
        dp, pp = divmod(rest, self.pp)
        return {"dp": dp, "pp": pp, "tp": tp}

    def is_large(self, op: Op) -> bool:
        """Return whether so many take part in a collective that most of them can agree."""
        return op.peer < 0 and len(self.groups[op.group]) > 2

    def group(self, rank: int, axis: str) -> str | None:
        """Return the group of a rank on an axis."""
        found = (name for name, each in self.groups.items() if name.endswith(axis) and rank in each)
        return next(found, None)

    def _program(self, rank: int) -> list[Op]:
        pp, tp_group, dp_group = self.at(rank)["pp"], self.group(rank, "tp"), self.group(rank, "dp")
        ops: list[Op] = []
        for _ in range(self.steps):
            for forward in (True, False):
                before, after = (rank - self.tp, rank + self.tp)
                first, last = (0, self.pp - 1) if forward else (self.pp - 1, 0)
                source, target = (before, after) if forward else (after, before)
                if pp != first:
                    ops.append(Op("recv", "0", 512, source))
                if tp_group:
                    ops += [Op("all_reduce", tp_group, 256), Op("all_reduce", tp_group, 256)]
                if pp != last:
                    ops.append(Op("send", "0", 512, target))
            if dp_group:
                ops += [Op("reduce_scatter", dp_group, 4096), Op("all_gather", dp_group, 2048)]
            ops.append(Op("all_reduce", "0", 1))
        return ops

    def run(self, rounds: int | None = None) -> "Still":
        """Return how far each rank comes; `rounds`: in so many, if it goes on for longer."""
        issued, done = [0] * self.world, [0] * self.world
        moved, count = True, 0
        while moved and count != rounds:
            moved, count = False, count + 1
            for rank, program in enumerate(self.programs):
                limit = min(
                    done[rank] + self.ahead, len(program), self.cpu_stops.get(rank, 1 << 30)
                )
                if limit > issued[rank]:
                    issued[rank], moved = limit, True
            for rank in range(self.world):
                together = self._meets(rank, issued, done)
                for each in together:
                    done[each], moved = done[each] + 1, True
        return Still(self, issued, done, count)

    def _head(self, rank: int, issued: Sequence[int], done: Sequence[int]) -> Op | None:
        at = done[rank]
        if at >= issued[rank] or self.gpu_stops.get(rank, 1 << 30) <= at:
            return None
        return self.programs[rank][at]

    def _meets(self, rank: int, issued: Sequence[int], done: Sequence[int]) -> list[int]:
        """Return all ranks of the operation that a rank is at, if all are at it."""
        op = self._head(rank, issued, done)
        if op is None:
            return []
        if op.peer >= 0:
            wanted = {"send": "recv", "recv": "send"}[op.name]
            other = self._head(op.peer, issued, done)
            meets = other is not None and other.name == wanted and other.peer == rank
            return [rank, op.peer] if meets else []
        members = self.groups[op.group]
        heads = [self._head(each, issued, done) for each in members]
        same = all(each == op for each in heads)
        counts = {self._count(each, op.group, done[each]) for each in members}
        return list(members) if same and len(counts) == 1 else []

    def _count(self, rank: int, group: str, at: int) -> int:
        return sum(op.group == group and op.peer < 0 for op in self.programs[rank][:at])


@dataclass
class Still:
    """A job in which nothing moves any more."""

    job: Job
    issued: list[int]
    done: list[int]
    rounds: int = 0
    """Until then."""

    def dumps(
        self, *, timing: bool = False, ring: int = 2000, config: bool = True
    ) -> dict[str, Any]:
        """Return each rank's dump as a plain value, by its file's name."""
        return {
            f"nccl_trace_rank_{rank}": self.dump(rank, timing=timing, ring=ring, config=config)
            for rank in range(self.job.world)
        }

    def dump(self, rank: int, *, timing: bool, ring: int, config: bool) -> dict[str, Any]:
        """Return a rank's dump of version 2.5."""
        mine = {name: each for name, each in self.job.groups.items() if rank in each}
        entries = [self._entry(rank, at, timing=timing) for at in range(self.issued[rank])]
        described = {
            named(name)[0]: {
                "name": named(name)[0],
                "desc": named(name)[1],
                "ranks": str(list(members)),
            }
            for name, members in mine.items()
        }
        return {
            "version": "2.5",
            "pg_config": described if config else {},
            "pg_status": {},
            "entries": entries[-ring:],
        }

    def _entry(self, rank: int, at: int, *, timing: bool) -> Mapping[str, Any]:
        op, done = self.job.programs[rank][at], at < self.done[rank]
        members = self.job.groups[op.group]
        place, peer = members.index(rank), members.index(op.peer) if op.peer >= 0 else -1
        arrow = {"send": f" {place}->{peer}", "recv": f" {place}<-{peer}"}.get(op.name, "")
        before = self.job.programs[rank][: at + 1]
        starts = timing and at == self.done[rank] and self.job.gpu_stops.get(rank) != at
        created = START_NS + 1_000_000 * at
        return {
            "record_id": at,
            "pg_id": list(self.job.groups).index(op.group),
            "process_group": (
                op.group.partition(":")[0],
                op.group.partition(":")[2] or "default_pg",
            ),
            "collective_seq_id": sum(b.group == op.group and b.peer < 0 for b in before),
            "p2p_seq_id": sum(b.group == op.group and b.peer >= 0 for b in before),
            "op_id": at + 1,
            "profiling_name": f"nccl:{op.name}{arrow}",
            "time_created_ns": created,
            "input_sizes": [[op.size, 1]],
            "input_dtypes": ["Float"],
            "output_sizes": [[op.size, 1]],
            "output_dtypes": ["Float"],
            "state": "completed" if done else "started" if starts else "scheduled",
            "time_discovered_started_ns": created + 5 if (done or starts) and timing else None,
            "time_discovered_completed_ns": created + 9 if done else None,
            "retired": done,
            **({"duration_ms": 0.002} if done and timing else {}),
            "timeout_ms": 600000,
            "is_p2p": op.peer >= 0,
            "frames": [{"name": "step", "filename": "train.py", "line": at}],
        }


def named(group: str) -> tuple[str, str]:
    """Return a group's name and description."""
    name, _, description = group.partition(":")
    return name, description or "default_pg"


def still(seed: int, fault: str) -> tuple[Still, int]:
    """Return a random job that one rank holds up, and that rank."""
    rng = random.Random(seed)
    dp, pp, tp = rng.choice(
        [(4, 1, 1), (2, 2, 2), (4, 2, 1), (1, 4, 2), (3, 1, 2), (8, 1, 1), (2, 4, 2)]
    )
    job = Job(dp, pp, tp, ahead=rng.choice([1, 2, 4, 9]))
    rank = rng.randrange(job.world)
    program = job.programs[rank]
    at = rng.randrange(len(program) // 2, len(program))
    if fault == "cpu":
        job.cpu_stops[rank] = at
    elif fault == "gpu":
        job.gpu_stops[rank] = at
    else:
        large = [
            n for n in range(at) if program[n].peer < 0 and len(job.groups[program[n].group]) > 2
        ]
        at = rng.choice(large)
        if fault == "skip":
            del program[at]
        elif fault == "size":
            program[at] = Op(program[at].name, program[at].group, program[at].size * 3)
        else:
            program[at] = Op("broadcast", program[at].group, program[at].size)
    return job.run(), rank
