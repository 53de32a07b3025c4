# SPDX-License-Identifier: Apache-2.0
"""What faults do to a job's durations: factors and stalls by step, replica and tensor place."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analyzer.simulate.operators.faults import Fault, Injected
from analyzer.simulate.operators.job import Job

Grid = NDArray[np.float64]
"""(steps, data, tensor), or what broadcasts to it."""
_GC_SHARE = 0.3
"""In which share of the steps all collect garbage. Chosen."""
_GC_RARE = 0.03
"""How often one rank alone does in a step. Chosen: about once in thirty steps."""
_CHECKPOINT_EVERY = 5


@dataclass(slots=True)
class Harm:
    """Factors of one job, by stage."""

    forward: list[Grid]
    backward: list[Grid]
    stall_us: list[Grid]
    """Stopped once in a step, before the pass of number `stall_at`."""
    stall_at: list[NDArray[np.int64]]
    loader_us: list[Grid]
    edges: list[Grid]
    """Of transfers between a stage and the next one."""
    gradients: list[Grid]
    """Of collectives among replicas: (steps, 1, tensor)."""
    stop_us: list[Grid]
    """Stopped as the step begins, everybody at the same time."""
    shared: list[Grid]
    """Of the embedding's gradients and of exchanges among experts: of uplinks alone."""
    lost: dict[int, Grid] = field(default_factory=dict)
    """Of stages: how likely a transfer to or from the next one waits for a time-out."""
    lost_in: dict[int, Grid] = field(default_factory=dict)
    """Likewise of collectives among replicas."""
    timeout_us: float = 0.0
    sequences: Grid | None = None
    """(steps, data, microbatches)."""
    experts: float = 0.0
    """Standard deviation of the logarithm of an expert's load."""
    stalled: set[int] = field(default_factory=set)
    """Stages in which anybody is ever stopped."""


def harmless(job: Job) -> Harm:
    """Return what a healthy job has."""
    shape, stages = (job.steps, job.data, job.tensor), range(job.stages)

    def ones() -> list[Grid]:
        return [np.ones(shape) for _ in stages]

    loader = [np.full(shape, job.loader_us if stage == 0 else 0.0) for stage in stages]
    return Harm(
        ones(), ones(), [np.zeros(shape) for _ in stages],
        [np.zeros(shape, np.int64) for _ in stages], loader, ones(),
        [np.ones((job.steps, 1, job.tensor)) for _ in stages],
        [np.zeros(shape) for _ in stages], ones(),
    )  # fmt: skip


def harm(job: Job, faults: Sequence[Injected], rng: np.random.Generator) -> Harm:
    """Return what faults do to a job."""
    made = harmless(job)
    if job.between:
        for forward, backward in zip(made.forward, made.backward, strict=True):
            own = np.maximum(1 + job.between * rng.standard_normal(forward.shape[1:]), 0.5)
            forward[...] *= own
            backward[...] *= own
    for each in faults:
        _inflict(job, each, made, rng)
    return made


def step_us(job: Job) -> float:
    """Return about how long a healthy step takes."""
    passes = job.microbatches + (job.stages - 1) / job.chunks
    return passes * job.forward_us * (1 + job.backward) + 1.5 * job.gradients_us


def _inflict(job: Job, each: Injected, made: Harm, rng: np.random.Generator) -> None:
    when = rng.random(job.steps) < each.share
    stage, data, tensor = job.where(each.rank)
    at = (when, data, tensor)
    match each.fault:
        case Fault.SLOW_RANK | Fault.OFTEN_SLOW:
            made.forward[stage][at] *= each.strength
            made.backward[stage][at] *= each.strength
        case Fault.SLOW_BACKWARD:
            made.backward[stage][at] *= each.strength
        case Fault.HOST:
            _slow_host(job, each, made)
        case Fault.LOADER:
            made.loader_us[stage][at] += each.strength * step_us(job)
        case Fault.LAST_STAGE:
            made.forward[-1] *= each.strength
            made.backward[-1] *= each.strength
        case Fault.NIC | Fault.LINK | Fault.RING:
            _slow_network(job, each, made)
        case Fault.LOSSY:
            _lossy(job, each, made)
        case _:
            _nobodys(job, each, made, rng)


def _slow_host(job: Job, each: Injected, made: Harm) -> None:
    first = each.rank // job.per_host * job.per_host
    for rank in range(first, min(first + job.per_host, job.world)):
        stage, data, tensor = job.where(rank)
        made.forward[stage][:, data, tensor] *= each.strength
        made.backward[stage][:, data, tensor] *= each.strength


def _slow_network(job: Job, each: Injected, made: Harm) -> None:
    stage, data, tensor = job.where(each.rank)
    if each.fault is not Fault.LINK:
        made.gradients[stage][:, :, tensor] *= each.strength
    if each.fault is Fault.RING:
        return
    made.edges[stage][:, data, tensor] *= each.strength
    if each.fault is Fault.NIC:
        made.edges[stage - 1][:, data, tensor] *= each.strength
        made.shared[stage][:, data, tensor] *= each.strength


def _lossy(job: Job, each: Injected, made: Harm) -> None:
    stage, data, tensor = job.where(each.rank)
    for at in {stage, (stage - 1) % job.stages}:
        made.lost[at] = np.zeros((1, job.data, job.tensor))
        made.lost[at][:, data, tensor] = each.share
    made.lost_in[stage] = np.zeros((1, 1, job.tensor))
    made.lost_in[stage][:, :, tensor] = each.share
    made.timeout_us = each.strength * step_us(job)


def _nobodys(job: Job, each: Injected, made: Harm, rng: np.random.Generator) -> None:
    shape = (job.steps, job.data, job.tensor)
    match each.fault:
        case Fault.SEQUENCES:
            spread = each.strength
            drawn = rng.normal(-(spread**2) / 2, spread, (job.steps, job.data, job.microbatches))
            made.sequences = np.exp(drawn)
        case Fault.EXPERTS:
            made.experts = each.strength
        case Fault.GC_ALL:
            _stop_all(job, each.strength, made, rng.random(job.steps) < _GC_SHARE, rng)
        case Fault.CHECKPOINT:
            when = np.arange(job.steps) % _CHECKPOINT_EVERY == _CHECKPOINT_EVERY - 1
            _stop_all(job, each.strength, made, when, rng)
        case _:
            for stage in range(job.stages):
                hit = rng.random(shape) < _GC_RARE
                made.stall_us[stage] += hit * each.strength * step_us(job)
                made.stall_at[stage] = rng.integers(2 * job.microbatches * job.chunks, size=shape)
                made.stalled.add(stage)


def _stop_all(
    job: Job, strength: float, made: Harm, when: NDArray[np.bool_], rng: np.random.Generator
) -> None:
    for own in made.stop_us:
        long = rng.normal(1.0, 0.05, own.shape)
        own[...] += when[:, None, None] * long * strength * step_us(job)
