# SPDX-License-Identifier: Apache-2.0
"""Training jobs: what each RNIC sends, second by second, and which pairs really talk.

An iteration of SkeletonHunter's Figure 7 is a plateau (pipeline and expert traffic of the
microbatches), a burst (gradients over the replicas) and a pause. Each pipeline stage repeats the
traffic of the stage before it, a moment later. Ranks are laid out as in Figure 9: tensor parallel
ranks fastest, then experts, stages and replicas.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from analyzer.skeleton.series import Floats, Ints, TrafficSeries, carried, cliques, unique_edges
from netagent.model.errors import LocalProtocolError
from netagent.model.task import Parallelism


class Reduction(StrEnum):
    """How gradients are summed: it shapes the burst."""

    RING = "ring"
    TREE = "tree"
    """Up and down: two peaks."""


@dataclass(frozen=True, slots=True)
class Template:
    """The traffic of one iteration; the defaults are Figure 7's."""

    period_s: float = 80.0
    plateau_s: float = 46.0
    burst_s: float = 4.5
    plateau_bps: float = 2e9
    burst_bps: float = 13.6e9
    stage_shift_s: float = 1.0
    """Seconds from a burst of one pipeline stage to that of the next."""
    microbatches: int = 12
    chunks: int = 1
    """Model chunks per stage: more than one is an interleaved schedule."""
    reduction: Reduction = Reduction.RING


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Deviations of the traffic from the template."""

    noise: float = 0.1
    """Standard deviation of a tick's traffic, as a share of it."""
    jitter_s: float = 0.2
    """Standard deviation by which a replica is early or late between gradient exchanges."""
    clock_s: float = 0.0
    """Largest offset of a host's clock, in seconds."""
    straggler_s: float = 0.0
    """Seconds by which one host is late."""
    missing: float = 0.0
    """Share of the ticks that are unknown."""
    checkpoints: tuple[int, ...] = ()
    """Iterations after which the job writes a checkpoint, and sends nothing for half a period."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The pairs that really talk. Edges are unordered pairs of rows, smaller row first."""

    parallelism: Parallelism
    groups: dict[str, list[list[int]]]
    """``dp``, ``pp`` or ``ep`` -> groups of two rows or more."""
    edges: Ints
    """(n_edges, 2), sorted."""
    wrap: bool = False
    """Whether the last stage sends to the first, as in an interleaved schedule."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A job's traffic and its truth."""

    series: TrafficSeries
    truth: Truth
    stage: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """(n_endpoints,): pipeline stage of each row."""


def truth_of(job: Parallelism, *, rnics_per_host: int = 8, wrap: bool = False) -> Truth:
    """Return the truth of a job whose rank r is RNIC r % `rnics_per_host` of its host.

    `wrap`: the last stage sends to the first, as in an interleaved schedule.
    """
    ranks = np.arange(job.ranks).reshape(job.dp, job.pp, job.ep, job.tp)
    host, rail = ranks.ravel() // rnics_per_host, ranks.ravel() % rnics_per_host
    groups = {
        "dp": _rows(np.moveaxis(ranks, 0, -1)),
        "pp": _rows(np.moveaxis(ranks, 1, -1)),
        "ep": _rows(np.moveaxis(ranks, 2, -1)),
    }
    chain = [np.stack([ranks[:, :-1].ravel(), ranks[:, 1:].ravel()], axis=1)]
    if wrap and job.pp > 2:
        chain.append(np.stack([ranks[:, -1].ravel(), ranks[:, 0].ravel()], axis=1))
    parts = [cliques(np.asarray(groups[kind]), host, rail) for kind in ("dp", "ep") if groups[kind]]
    parts += [carried(pairs, host, rail) for pairs in chain]
    return Truth(job, groups, unique_edges(parts), wrap)


def _rows(ranks: Ints) -> list[list[int]]:
    return ranks.reshape(-1, ranks.shape[-1]).tolist() if ranks.shape[-1] > 1 else []


def generate(
    job: Parallelism,
    *,
    seed: int,
    ticks: int = 1200,
    tick_s: float = 1.0,
    rnics_per_host: int = 8,
    template: Template | None = None,
    disturbance: Disturbance | None = None,
) -> Workload:
    """Return a job's traffic; raises LocalProtocolError for a job that does not fill its hosts."""
    if job.ranks % rnics_per_host:
        raise LocalProtocolError(f"{job}: {job.ranks} ranks do not fill hosts of {rnics_per_host}")
    template, disturbance = template or Template(), disturbance or Disturbance()
    rng = np.random.default_rng(seed)
    rank = np.arange(job.ranks)
    host, rail = rank // rnics_per_host, rank % rnics_per_host
    stage = rank // (job.tp * job.ep) % job.pp
    replica = rank // (job.tp * job.ep * job.pp)
    late_s = rng.uniform(-1, 1, int(host.max()) + 1) * disturbance.clock_s
    if disturbance.straggler_s:
        late_s[rng.integers(len(late_s))] += disturbance.straggler_s
    timeline = _Timeline(job, template, disturbance, ticks * tick_s, rng)
    edges_s: Floats = tick_s * np.arange(ticks + 1, dtype=np.float64)
    rate = np.empty((job.ranks, ticks))
    made: dict[tuple[int, int, float], Floats] = {}
    for row in range(job.ranks):
        key = (int(replica[row]), int(stage[row]), float(late_s[host[row]]))
        if key not in made:
            made[key] = timeline.sent(key[0], key[1], edges_s - key[2])
        rate[row] = made[key]
    rate *= 1 + disturbance.noise * rng.standard_normal(rate.shape)
    np.maximum(rate, 0, out=rate)
    if disturbance.missing:
        rate[rng.random(rate.shape) < disturbance.missing] = np.nan
    series = TrafficSeries(rate, tick_s, host, rail)
    truth = truth_of(job, rnics_per_host=rnics_per_host, wrap=template.chunks > 1)
    return Workload(series, truth, stage)


class _Timeline:
    """When each replica's stages send, and how much."""

    def __init__(
        self,
        job: Parallelism,
        template: Template,
        disturbance: Disturbance,
        length_s: float,
        rng: np.random.Generator,
    ) -> None:
        self._job = job
        self._template = template
        self._begin_s = self._beginnings(disturbance.checkpoints, length_s, rng)
        pulses = template.microbatches * template.chunks
        shape = (len(self._begin_s), job.dp, pulses)
        # Between gradient exchanges a replica is early or late as a whole; tokens go unevenly.
        self._early_s = disturbance.jitter_s * rng.standard_normal(shape[:2])
        uneven = 0.3 if job.ep > 1 else 0.05
        self._volume = np.clip(1 + uneven * rng.standard_normal(shape), 0.1, 3)

    def _beginnings(
        self, checkpoints: Sequence[int], length_s: float, rng: np.random.Generator
    ) -> Floats:
        period_s = self._template.period_s
        count = int(length_s / period_s) + 4
        paused = np.isin(np.arange(count), checkpoints)
        steps_s = period_s * (1 + 0.5 * paused) + 0.01 * period_s * rng.standard_normal(count)
        return np.cumsum(steps_s) - 2 * period_s - rng.uniform(0, period_s)

    def sent(self, replica: int, stage: int, edges_s: Floats) -> Floats:
        """Return the bytes that a rank of `stage` sends in each tick between `edges_s`."""
        template = self._template
        at_s, total = self._cumulative(replica, stage)
        late_s = template.stage_shift_s * stage
        return np.diff(np.interp(edges_s - late_s, at_s, total))

    def _cumulative(self, replica: int, stage: int) -> tuple[Floats, Floats]:
        template, begin_s = self._template, self._begin_s[:, None]
        pulses = self._volume.shape[2]
        step_s = template.plateau_s / pulses
        # A pulse fills its step but for a short pause; edge stages have one neighbour only.
        share = 1.0 if 0 < stage < self._job.pp - 1 or template.chunks > 1 else 0.8
        from_s = begin_s + self._early_s[:, replica, None] + step_s * np.arange(pulses)
        until_s = from_s + 0.9 * step_s
        volume = share * template.plateau_bps / 8 * step_s * self._volume[:, replica]
        burst_s = begin_s + template.plateau_s + 1.5
        parts = 2 if template.reduction is Reduction.TREE else 1
        length_s = template.burst_s / parts
        from_burst_s = burst_s + length_s * 1.2 * np.arange(parts)
        volume_burst = np.full_like(from_burst_s, template.burst_bps / 8 * length_s)
        starts = np.concatenate([from_s, from_burst_s], axis=1).ravel()
        ends = np.concatenate([until_s, from_burst_s + length_s], axis=1).ravel()
        volumes = np.concatenate([volume, volume_burst], axis=1).ravel()
        order = np.argsort(starts, kind="stable")
        return _staircase(starts[order], ends[order], volumes[order])


def _staircase(starts: Floats, ends: Floats, volumes: Floats) -> tuple[Floats, Floats]:
    """Return instants, and the bytes sent in all by each, of sendings that follow each other."""
    starts = np.maximum(starts, np.concatenate([starts[:1], ends[:-1]]))
    ends = np.maximum(ends, starts + 1e-6)
    sent = np.cumsum(volumes)
    at_s = np.maximum.accumulate(np.stack([starts, ends], axis=1).ravel())
    total = np.stack([sent - volumes, sent], axis=1).ravel()
    return at_s, total
