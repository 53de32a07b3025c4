# SPDX-License-Identifier: Apache-2.0
"""When each operator of a job begins and ends: every rank waits for what it needs, and no longer.

One operator of a stage is computed for all its replicas, tensor parallel places and steps at once.
Steps end in a collective of all ranks, so each begins alike: at 0 microseconds of its own.

A send leaves its rank free at once and ends when its receiver has it, as on a stream of its own.
A receive and a collective hold their rank. All members of a collective leave it together.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.log import UNKNOWN, GroupKind, Kind
from analyzer.simulate.operators.harm import Grid, Harm
from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.schedule import Pass, before, order

_SMALL = 0.05
"""Standard deviation of what a transfer takes, as a share. Chosen."""
_ACTIVATION_BYTES, _TENSOR_BYTES, _GRADIENT_BYTES = 1 << 24, 1 << 24, 1 << 28


@dataclass(slots=True)
class Row:
    """One operator of all ranks of a stage, in all steps."""

    kind: Kind
    op: str
    start: Grid
    end: Grid
    group: GroupKind | None = None
    peer: int = UNKNOWN
    """Stage to which or from which."""
    microbatch: int = UNKNOWN
    bytes: int = UNKNOWN


@dataclass(slots=True)
class Run:
    """What happened, in microseconds since each step's beginning."""

    job: Job
    rows: list[list[Row]]
    """By stage, in the order in which its ranks issued them."""
    length_us: NDArray[np.float64]
    """(steps,)."""


@dataclass(slots=True)
class _Clockwork:
    job: Job
    harm: Harm
    rng: np.random.Generator
    drift: Grid
    free: list[Grid]
    rows: list[list[Row]]
    sent: dict[tuple[int, Pass], Row] = field(default_factory=dict)
    done: set[tuple[int, Pass]] = field(default_factory=set)
    passes: list[int] = field(default_factory=list)


def run(job: Job, harm: Harm, rng: np.random.Generator) -> Run:
    """Return the operators of a job that this befalls."""
    shape = (job.steps, job.data, job.tensor)
    drift = 1 + job.drift * rng.standard_normal((job.steps, 1, 1))
    work = _Clockwork(
        job, harm, rng, drift,
        free=[rng.uniform(0, 20, shape) for _ in range(job.stages)],
        rows=[[] for _ in range(job.stages)],
        passes=[0] * job.stages,
    )  # fmt: skip
    for stage in range(job.stages):
        _begin(work, stage)
    _pipeline(work)
    return Run(job, work.rows, _finish(work))


def _noisy(work: _Clockwork, mean_us: float, share: float) -> Grid:
    shape = (work.job.steps, work.job.data, work.job.tensor)
    noise = work.rng.standard_normal(shape, np.float32)
    return np.asarray(np.maximum(mean_us * (1 + share * noise.astype(np.float64)), 0.2 * mean_us))


def _begin(work: _Clockwork, stage: int) -> None:
    if work.job.data > 1:
        _collective(work, stage, "params-all-gather", GroupKind.DATA, work.job.gradients_us / 2)
    if work.harm.stop_us[stage].any():
        _busy(work, stage, Kind.OTHER, "stopped", work.harm.stop_us[stage])
    loader = work.harm.loader_us[stage]
    if loader.any():
        _busy(work, stage, Kind.OTHER, "data-load", loader * _noisy(work, 1.0, 0.1))


def _busy(work: _Clockwork, stage: int, kind: Kind, op: str, us: Grid, at: int = UNKNOWN) -> None:
    start = work.free[stage]
    end = work.free[stage] = start + us
    work.rows[stage].append(Row(kind, op, start, end, microbatch=at))


def _together(work: _Clockwork, start: Grid, kind: GroupKind) -> Grid:
    """Return when the last of a group has come, in the shape of `start`."""
    if kind is GroupKind.TENSOR:
        return np.asarray(start.max(axis=2, keepdims=True))
    if kind is GroupKind.EXPERT:
        blocks = start.reshape(len(start), -1, work.job.experts, start.shape[2])
        last = np.broadcast_to(blocks.max(axis=2, keepdims=True), blocks.shape)
        return last.reshape(start.shape)
    return np.asarray(start.max(axis=1, keepdims=True))


def _collective(
    work: _Clockwork, stage: int, op: str, kind: GroupKind, us: float, at: int = UNKNOWN
) -> None:
    start = work.free[stage]
    takes = us * (1 + _SMALL * work.rng.standard_normal((work.job.steps, 1, 1)))
    if kind is GroupKind.DATA:
        takes = takes * work.harm.gradients[stage] + _timeouts(work, work.harm.lost_in, stage)
    if kind is GroupKind.EXPERT:
        takes = takes * _together(work, work.harm.shared[stage], kind)
    end = work.free[stage] = np.broadcast_to(_together(work, start, kind) + takes, start.shape)
    size = _TENSOR_BYTES if kind in {GroupKind.TENSOR, GroupKind.EXPERT} else _GRADIENT_BYTES
    work.rows[stage].append(Row(Kind.COLLECTIVE, op, start, end, kind, UNKNOWN, at, size))


def _pipeline(work: _Clockwork) -> None:
    """Do each stage's passes as soon as what they need has been sent."""
    job = work.job
    queues = [
        list(order(stage, job.stages, job.microbatches, job.chunks)) for stage in range(job.stages)
    ]
    done, total = [0] * job.stages, sum(len(queue) for queue in queues)
    while sum(done) < total:
        for stage, queue in enumerate(queues):
            while done[stage] < len(queue) and _ready(work, stage, queue[done[stage]]):
                _pass(work, stage, queue[done[stage]])
                done[stage] += 1


def _ready(work: _Clockwork, stage: int, each: Pass) -> bool:
    needs = before(each, stage, work.job.stages, work.job.chunks)
    return needs is None or needs in work.done


def _pass(work: _Clockwork, stage: int, each: Pass) -> None:
    job = work.job
    needs = before(each, stage, job.stages, job.chunks)
    way = "forward" if each.forward else "backward"
    if needs is not None and needs[0] != stage:
        _receive(work, stage, needs, way)
    _compute(work, stage, each, way)
    onward = _onward(each, stage, job)
    work.done.add((stage, each))
    if onward is not None and onward != stage:
        start = work.free[stage]
        row = Row(
            Kind.SEND, f"{way}-send", start, start, None, onward, each.microbatch, _ACTIVATION_BYTES
        )
        work.rows[stage].append(row)
        work.sent[stage, each] = row


def _onward(each: Pass, stage: int, job: Job) -> int | None:
    """Return the stage that needs a pass's result."""
    step = 1 if each.forward else -1
    at, chunk = stage + step, each.chunk
    if at < 0 or at >= job.stages:
        at, chunk = at % job.stages, chunk + step
    return at if 0 <= chunk < job.chunks else None


def _receive(work: _Clockwork, stage: int, needs: tuple[int, Pass], way: str) -> None:
    row, job = work.sent[needs], work.job
    low = min(needs[0], stage) if abs(needs[0] - stage) == 1 else job.stages - 1
    takes = _noisy(work, job.transfer_us, _SMALL) * work.harm.edges[low]
    takes = takes + _timeouts(work, work.harm.lost, low)
    start = work.free[stage]
    end = work.free[stage] = np.maximum(row.start, start) + takes
    row.end = end
    size, at = _ACTIVATION_BYTES, needs[1].microbatch
    got = Row(Kind.RECV, f"{way}-recv", start, end, None, needs[0], at, size)
    work.rows[stage].append(got)


def _timeouts(work: _Clockwork, lost: dict[int, Grid], stage: int) -> Grid | float:
    """Return how long each of a stage's transfers waits, of which some packet was lost."""
    if stage not in lost:
        return 0.0
    likely = lost[stage]
    hit = work.rng.random((work.job.steps, *likely.shape[1:])) < likely
    return np.asarray(hit * work.harm.timeout_us, np.float64)


def _factor(work: _Clockwork, stage: int, each: Pass) -> Grid:
    job = work.job
    factor = (work.harm.forward if each.forward else work.harm.backward)[stage] * work.drift
    beside = job.last_stage if stage == job.stages - 1 else job.first_stage if stage == 0 else 1.0
    if work.harm.sequences is None:
        return factor * beside
    longer = work.harm.sequences[:, :, each.microbatch, None]
    return factor * (longer + beside - 1 if job.even_loss else longer * beside)


def _compute(work: _Clockwork, stage: int, each: Pass, way: str) -> None:
    """Compute one pass, with what tensor and expert parallel ranks do together in it."""
    job, number = work.job, work.passes[stage]
    work.passes[stage] += 1
    mean_us = job.forward_us / job.chunks * (1.0 if each.forward else job.backward)
    takes = _noisy(work, mean_us, job.jitter) * _factor(work, stage, each)
    if job.hiccups:
        takes = np.where(work.rng.random(takes.shape) < job.hiccups, 3 * takes, takes)
    if stage in work.harm.stalled:
        takes = takes + work.harm.stall_us[stage] * (work.harm.stall_at[stage] == number)
    if job.experts > 1:
        _busy(work, stage, Kind.COMPUTE, f"{way}-compute", takes * 0.6, each.microbatch)
        _exchange(work, stage, each, way, takes * 0.4)
    else:
        _busy(work, stage, Kind.COMPUTE, f"{way}-compute", takes, each.microbatch)
    if job.tensor > 1:
        us = job.tensor_us
        _collective(work, stage, "all_reduce", GroupKind.TENSOR, us, each.microbatch)


def _exchange(work: _Clockwork, stage: int, each: Pass, way: str, takes: Grid) -> None:
    """Have experts compute what they are dealt: at one expert more, at another one less."""
    us, spread = work.job.exchange_us, work.harm.experts
    if spread:
        # Tensor parallel ranks of one expert are dealt the same tokens.
        drawn = work.rng.normal(-(spread**2) / 2, spread, (*takes.shape[:2], 1))
        takes = takes * np.exp(drawn)
    _collective(work, stage, "all_to_all", GroupKind.EXPERT, us, each.microbatch)
    _busy(work, stage, Kind.COMPUTE, f"{way}-experts", takes, each.microbatch)
    _collective(work, stage, "all_to_all", GroupKind.EXPERT, us, each.microbatch)


def _finish(work: _Clockwork) -> NDArray[np.float64]:
    job = work.job
    for stage in range(job.stages):
        if job.data > 1:
            us = job.gradients_us
            _collective(work, stage, "grads-reduce-scatter", GroupKind.DATA, us)
    if job.stages > 1:
        _across(work, (0, job.stages - 1), "embedding-grads-all-reduce", GroupKind.PIPELINE)
    _across(work, tuple(range(job.stages)), "clip-grads-all-reduce", GroupKind.WORLD)
    for stage in range(job.stages):
        takes = _noisy(work, job.optimizer_us, job.jitter)
        _busy(work, stage, Kind.COMPUTE, "optimizer", takes)
    _across(work, tuple(range(job.stages)), "step-all-reduce", GroupKind.WORLD)
    length: NDArray[np.float64] = np.stack(work.free).max(axis=(0, 2, 3))
    return length


def _across(work: _Clockwork, stages: tuple[int, ...], op: str, kind: GroupKind) -> None:
    """Have ranks of several stages take part in a collective."""
    starts = np.stack([work.free[stage] for stage in stages])
    axes = 0 if kind is GroupKind.PIPELINE else (0, 2, 3)
    last = starts.max(axis=axes, keepdims=True)[0]
    takes = work.job.clip_us * (1 + _SMALL * work.rng.standard_normal((work.job.steps, 1, 1)))
    if kind is GroupKind.PIPELINE:
        takes = takes * np.maximum.reduce([work.harm.shared[stage] for stage in stages])
    for stage in stages:
        start = work.free[stage]
        end = work.free[stage] = np.broadcast_to(last + takes, start.shape)
        row = Row(Kind.COLLECTIVE, op, start, end, kind, UNKNOWN, UNKNOWN, 1 << 20)
        work.rows[stage].append(row)
