# SPDX-License-Identifier: Apache-2.0
"""A simulated run as the log that one source or another keeps of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.log import UNKNOWN, Group, GroupKind, Kind, Log, Place, State
from analyzer.simulate.operators.clockwork import Row, Run
from analyzer.simulate.operators.job import Job

_CLOCK_US = 50_000.0
"""Clocks of two ranks differ by so much at most. Chosen."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a source of logs tells."""

    compute: bool = True
    """Whether of computing, too, or of communication alone."""
    groups: bool = True
    """Whether who takes part in a collective, and to whom a rank sends."""
    transfers: bool = True
    """Whether of sends and receives."""
    steps: bool = True
    places: bool = True
    cells: bool = False
    """Whether of one rank of those that work in tensor parallel, its collectives left out."""
    relative: bool = False
    """Whether times begin anew with each step."""


TRACE = Source(groups=False, cells=True, relative=True)
"""Traces of production jobs as Lin et al. publish them (OSDI '25)."""
HOOKS = Source(compute=False, steps=False, places=False)
"""What hooks in a framework see."""
_COLUMNS = (
    "step", "rank", "kind", "op", "group", "peer", "microbatch", "bytes", "sequence",
    "enqueued_ns", "started_ns", "ended_ns", "state",
)  # fmt: skip
_HOST_ONLY = frozenset({GroupKind.TENSOR})


def log_of_run(made: Run, source: Source, rng: np.random.Generator) -> Log:
    """Return the log of all ranks."""
    stages = range(made.job.stages)
    parts = [log_of_stage(made, stage, source, rng) for stage in stages]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS
    }
    places = {rank: place for part in parts for rank, place in part.places.items()}
    return replace(parts[0], places=places, **columns)


def log_of_stage(made: Run, stage: int, source: Source, rng: np.random.Generator) -> Log:
    """Return the log of one stage's ranks, with the groups and operations of all."""
    job = made.job
    names = sorted({op for each in range(job.stages) for op in _part(made, each, source).ops})
    groups = _groups(job) if source.groups else {}
    columns: dict[str, Any] = _columns(
        made, stage, _part(made, stage, source), source, names, groups, rng
    )
    ranks = np.unique(columns["rank"]).tolist()
    return Log(
        **columns, ops=tuple(names), groups=tuple(_named(groups)),
        places={rank: _place(job, rank, source) for rank in ranks},
        world=job.world, source="simulated",
    )  # fmt: skip


def _place(job: Job, rank: int, source: Source) -> Place:
    return job.place(rank) if source.places else Place(job.host(rank))


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of one stage that a source tells."""

    rows: list[Row]
    ops: list[str]


def _part(made: Run, stage: int, source: Source) -> _Part:
    def told(row: Row) -> bool:
        if row.kind in {Kind.COMPUTE, Kind.OTHER}:
            return source.compute
        if row.kind in {Kind.SEND, Kind.RECV}:
            return source.transfers
        return not (source.cells and row.group in _HOST_ONLY)

    rows = [row for row in made.rows[stage] if told(row)]
    return _Part(rows, [row.op for row in rows])


_Groups = Mapping[GroupKind, tuple[NDArray[np.int32], list[Group]]]
"""Of each kind: the place in the log's groups of each rank's own, and the groups."""


def _groups(job: Job) -> _Groups:
    ranks = np.arange(job.world).reshape(job.stages, job.data, job.tensor)
    stage, data, tensor = np.indices(ranks.shape)
    keys = {
        GroupKind.DATA: stage * job.tensor + tensor,
        GroupKind.TENSOR: stage * job.data + data,
        GroupKind.PIPELINE: data * job.tensor + tensor,
        GroupKind.EXPERT: (stage * job.data + data) // job.experts * job.tensor + tensor,
        GroupKind.WORLD: np.zeros_like(stage),
    }
    made: dict[GroupKind, tuple[NDArray[np.int32], list[Group]]] = {}
    count = 0
    for kind, key in keys.items():
        _, number = np.unique(key, return_inverse=True)
        number = number.reshape(key.shape)
        own = []
        for n in range(int(number.max()) + 1):
            members = ranks[number == n]
            if kind is GroupKind.PIPELINE:  # what its embedding is shared by
                members = members[[0, -1]] if len(members) > 1 else members
            own.append(Group(f"{kind.value}{n}", kind, tuple(int(each) for each in members)))
        made[kind] = ((number + count).astype(np.int32), own)
        count += len(own)
    return made


def _named(groups: _Groups) -> list[Group]:
    return [group for _, own in groups.values() for group in own]


def _columns(
    made: Run, stage: int, part: _Part, source: Source, names: list[str], groups: _Groups,
    rng: np.random.Generator,
) -> dict[str, NDArray[np.generic]]:  # fmt: skip
    """Return the columns of one stage's ranks: rank by rank, step by step, in order of issue."""
    job, rows, count = made.job, part.rows, len(part.rows)
    tensor = 1 if source.cells else job.tensor
    shape = (job.data, tensor, job.steps, count)
    ranks = np.arange(job.world, dtype=np.int32).reshape(job.stages, job.data, job.tensor)[stage]
    ranks = ranks[:, :tensor]

    def each(values: list[int], kind: type) -> NDArray[np.generic]:
        return np.broadcast_to(np.array(values, kind), shape).ravel()

    started, ended = (
        _times([getattr(row, name) for row in rows], tensor) for name in ("start", "end")
    )
    base = _bases(made, ranks.shape, source, rng)
    folded = _folded(made, stage, rows, tensor) if source.cells else ended
    where = {name: n for n, name in enumerate(names)}
    number = np.arange(job.steps, dtype=np.int32) * 3 + 7 if source.steps else None
    return {
        "step": np.broadcast_to(
            np.full(job.steps, UNKNOWN, np.int32) if number is None else number, shape[:3]
        ).repeat(count),
        "rank": np.repeat(ranks.ravel(), job.steps * count),
        "kind": each([row.kind for row in rows], np.uint8),
        "op": each([where[row.op] for row in rows], np.int32),
        "group": _per_rank(rows, shape, lambda row: _group(row, groups, stage, tensor)),
        "peer": _per_rank(rows, shape, lambda row: _peer(row, job, source, stage, ranks)),
        "microbatch": each([row.microbatch for row in rows], np.int32),
        "bytes": each([row.bytes for row in rows], np.int64),
        "sequence": np.full(np.prod(shape), UNKNOWN, np.int64),
        "enqueued_ns": _ns(started, base),
        "started_ns": _ns(started, base),
        "ended_ns": _ns(folded, base),
        "state": np.full(np.prod(shape), State.ENDED, np.uint8),
    }


def _times(grids: list[NDArray[np.float64]], tensor: int) -> NDArray[np.float64]:
    """Return (data, tensor, steps, operators)."""
    return np.stack(grids, axis=-1)[:, :, :tensor].transpose(1, 2, 0, 3)


def _folded(made: Run, stage: int, rows: list[Row], tensor: int) -> NDArray[np.float64]:
    """Return the ends, where collectives in tensor parallel count as part of the computation."""
    after = dict(zip(map(id, made.rows[stage]), [*made.rows[stage][1:], None], strict=True))
    ends = []
    for row in rows:
        follows = after[id(row)]
        inner = follows is not None and follows.group in _HOST_ONLY
        ends.append(follows.end if follows is not None and inner else row.end)
    return _times(ends, tensor)


def _bases(
    made: Run, shape: tuple[int, ...], source: Source, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return (data, tensor, steps) where a rank's own clock stands as a step begins."""
    offset = rng.uniform(-_CLOCK_US, _CLOCK_US, shape)[:, :, None]
    if source.relative:
        return np.broadcast_to(offset / 1000, (*shape, made.job.steps)).astype(np.float64)
    began = np.concatenate([[0.0], np.cumsum(made.length_us)[:-1]])
    return np.asarray(offset + began)


def _ns(times: NDArray[np.float64], base: NDArray[np.float64]) -> NDArray[np.int64]:
    made: NDArray[np.int64] = np.rint((times + base[..., None]) * 1000).astype(np.int64)
    return made.ravel()


def _per_rank(
    rows: list[Row], shape: tuple[int, ...], of: Callable[[Row], NDArray[np.int32] | int]
) -> NDArray[np.int32]:
    """Return one value per rank and operator, alike in all steps."""
    made = np.full((*shape[:2], 1, shape[3]), UNKNOWN, np.int32)
    for n, row in enumerate(rows):
        made[:, :, 0, n] = of(row)
    return np.broadcast_to(made, shape).ravel()


def _group(row: Row, groups: _Groups, stage: int, tensor: int) -> NDArray[np.int32] | int:
    if row.group is None or not groups:
        return UNKNOWN
    return np.asarray(groups[row.group][0][stage][:, :tensor], np.int32)


def _peer(
    row: Row, job: Job, source: Source, stage: int, ranks: NDArray[np.int32]
) -> NDArray[np.int32] | int:
    if row.peer == UNKNOWN or not source.groups:
        return UNKNOWN
    away = np.int32((row.peer - stage) * job.data * job.tensor)
    return np.asarray(ranks + away, np.int32)
