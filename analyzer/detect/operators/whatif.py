# SPDX-License-Identifier: Apache-2.0
"""How long a job's steps would have taken, had some ranks' passes been as they usually are.

After Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis"
(OSDI '25): the schedule is taken from the log, and run again with other durations. A pass begins
once the one before it on its rank has ended, and the one whose result it needs on the stage before
or after. Replicas wait for each other at the end of a step. Transfers are left out: what they take
is hidden or alike.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.operators.positions import way
from analyzer.operators.log import UNKNOWN, Kind, Log
from analyzer.operators.rows import Floats, Ints

_FEWEST_STEPS = 2
_MOSTLY = 0.5  # ranks whose passes of a step are all there, so that it counts


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward or backward pass of a stage, by its number on it, and what it waits for."""

    number: int
    forward: bool
    needs: tuple[int, int] | None
    """Stage and number of the pass whose result it needs."""
    chunk: int = 0
    """Which part of the model, where a stage has several."""


@dataclass(frozen=True, slots=True)
class Passes:
    """What ranks computed, where all replicas of a stage keep the same order."""

    order: tuple[tuple[Pass, ...], ...]
    """By stage."""
    took_us: tuple[Floats, ...]
    """By stage: (steps, replicas, passes)."""
    ranks: tuple[Ints, ...]
    """By stage: (replicas,)."""
    alike: bool = True
    """Whether passes of one direction are alike on all stages, as forward and backward ones are."""


def passes(log: Log, stage: Ints, ranks: Ints, step: NDArray[np.int32]) -> Passes | None:
    """Return what a log tells of passes; None where it names none, or replicas differ."""
    ways = np.array([way(op) for op in log.ops], np.int64)[log.op]
    rows = np.flatnonzero((log.kind == Kind.COMPUTE) & (ways != 0) & (step != UNKNOWN))
    if not len(rows):
        return None
    at = stage[np.searchsorted(ranks, log.rank[rows])]
    rows = rows[np.lexsort((log.started_ns[rows], step[rows], log.rank[rows], at))]
    at = stage[np.searchsorted(ranks, log.rank[rows])]
    parts = [_stage(log, rows[at == n], ways, step) for n in range(int(stage.max()) + 1)]
    if any(part is None for part in parts):
        return None
    told = [part for part in parts if part is not None]
    replicas = {len(part[2]) for part in told}
    common = sorted(set.intersection(*(set(part[3].tolist()) for part in told)))
    if len(replicas) > 1 or len(common) < _FEWEST_STEPS:
        return None
    order = _needs([(part[0], part[1]) for part in told])
    if order is None:
        return None
    took = tuple(part[4][np.isin(part[3], common)] for part in told)
    made = Passes(order, took, tuple(part[2] for part in told))
    return made if runs(made) else None


def runs(passes_: Passes) -> bool:
    """Return whether a schedule can be run: passes may be named otherwise than they are done."""
    try:
        replay(passes_, [each[:1, :1] for each in passes_.took_us])
    except ValueError:
        return False
    return True


_Stage = tuple[NDArray[np.bool_], Ints, Ints, Ints, Floats]
"""Which passes go forward, their microbatches, ranks, steps, and (steps, ranks, passes) in us."""


def _stage(log: Log, rows: NDArray[np.int64], ways: Ints, step: NDArray[np.int32]) -> _Stage | None:
    """Return what one stage computed, in steps of which most ranks have all passes."""
    if not len(rows):
        return None
    ranks, rank = np.unique(log.rank[rows], return_inverse=True)
    steps, place = np.unique(step[rows], return_inverse=True)
    cell = rank * len(steps) + place
    counts = np.bincount(cell, minlength=len(ranks) * len(steps))
    usual = int(np.median(counts))
    whole = counts == usual
    kept = whole.reshape(len(ranks), -1).mean(axis=0) >= _MOSTLY
    if usual == 0 or not kept.any() or not whole.reshape(len(ranks), -1).any(axis=1).all():
        return None
    rows = rows[whole[cell]]
    forward = ways[rows].reshape(-1, usual) > 0
    if (forward != forward[:1]).any():
        return None
    took = np.full((len(whole), usual), np.nan)
    took[whole] = log.duration_ns[rows].reshape(-1, usual) / 1e3
    took = _filled(took.reshape(len(ranks), len(steps), usual)).transpose(1, 0, 2)[kept]
    microbatch = log.microbatch[rows[:usual]].astype(np.int64)
    first = _begins(forward[0], microbatch, log.op[rows[:usual]])
    took = np.add.reduceat(took, first, axis=2)
    ahead, microbatch = forward[0][first], microbatch[first]
    return ahead, microbatch, ranks.astype(np.int64), steps[kept].astype(np.int64), took


def _filled(took: Floats) -> Floats:
    """Return (ranks, steps, passes) in which what is lacking is as the step's others had it.

    Times what the rank usually takes longer: a step may be ten times as long for everybody.
    """
    lacks = np.isnan(took)
    if not lacks.any():
        return took
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        usual = np.nanmedian(took, axis=0, keepdims=True)
        longer = np.nanmedian(took / usual, axis=(1, 2), keepdims=True)
    return np.where(lacks, usual * longer, took)


def _begins(forward: NDArray[np.bool_], microbatch: Ints, op: NDArray[np.int32]) -> Ints:
    """Return where a pass begins: attention and experts of one microbatch are one."""
    same = (np.diff(forward.astype(np.int8)) == 0) & (np.diff(microbatch) == 0) & (np.diff(op) != 0)
    same &= microbatch[1:] != UNKNOWN
    return np.flatnonzero(np.append(True, ~same))


def _needs(stages: Sequence[tuple[NDArray[np.bool_], Ints]]) -> tuple[tuple[Pass, ...], ...] | None:
    """Return each stage's passes with what they wait for; None where stages do not fit."""
    keys = [_keys(forward, microbatch) for forward, microbatch in stages]
    where = [{key: n for n, key in enumerate(own)} for own in keys]
    if any(len(each) != len(own) for each, own in zip(where, keys, strict=True)):
        return None
    chunks = 1 + max(key[2] for own in keys for key in own)
    made = []
    for stage, own in enumerate(keys):
        passes_ = []
        for number, (forward, microbatch, chunk) in enumerate(own):
            side = stage + (-1 if forward else 1)
            at, on = side % len(keys), chunk
            if side != at:
                on += -1 if forward else 1
            needs = where[at].get((forward, microbatch, on)) if 0 <= on < chunks else None
            if needs is None and 0 <= on < chunks:
                return None
            passes_.append(Pass(number, forward, None if needs is None else (at, needs), chunk))
        made.append(tuple(passes_))
    return tuple(made)


def _keys(forward: NDArray[np.bool_], microbatch: Ints) -> list[tuple[bool, int, int]]:
    """Return direction, microbatch and model chunk of each pass, in order."""
    named = bool((microbatch != UNKNOWN).all())
    seen: dict[tuple[bool, int], int] = {}
    made = []
    for ahead, number in zip(forward.tolist(), microbatch.tolist(), strict=True):
        key = (ahead, number if named else UNKNOWN)
        n = seen[key] = seen.get(key, -1) + 1
        made.append((ahead, number, n) if named else (ahead, n, 0))
    most = max((chunk for _, _, chunk in made), default=0)
    return [(ahead, number, n if ahead else most - n) for ahead, number, n in made]


def replay(passes_: Passes, took_us: Sequence[Floats]) -> Floats:
    """Return (steps,) how long steps take in microseconds, with these durations.

    Raises `ValueError` where the schedule waits for itself.
    """
    ends: list[dict[int, Floats]] = [{} for _ in took_us]
    free: list[Floats] = [np.zeros(each.shape[:2]) for each in took_us]
    at = [0] * len(took_us)
    left = sum(len(own) for own in passes_.order)
    while left:
        before = left
        for stage, own in enumerate(passes_.order):
            while at[stage] < len(own):
                each = own[at[stage]]
                if each.needs is not None and each.needs[1] not in ends[each.needs[0]]:
                    break
                start = free[stage]
                if each.needs is not None:
                    start = np.maximum(start, ends[each.needs[0]][each.needs[1]])
                free[stage] = ends[stage][each.number] = start + took_us[stage][:, :, each.number]
                at[stage] += 1
                left -= 1
        if left == before:
            raise ValueError("the schedule waits for itself")
    length: Floats = np.stack(free).max(axis=(0, 2))
    return length


@dataclass(frozen=True, slots=True)
class Shares:
    """What explains that steps take longer than with evenly dealt work."""

    slowdown: float
    """How many times as long steps take as if each pass took the mean of its kind."""
    partition: float
    """Of the ideal step: what is lost because stages differ, ranks at fault left out. The median
    of all steps, as one that is ten times as long would decide a mean."""
    chance: float
    """Likewise, because passes of a stage differ."""
    ranks: float
    """Share of the slowdown that is gone without the ranks at fault: M_W."""
    last_stage: float
    """Share that is gone if the last stage's passes were as the mean: M_S."""


def shares(passes_: Passes, faulty: Sequence[int]) -> Shares:
    """Return what explains a job's slowness, given the ranks that are at fault."""
    took = passes_.took_us
    bad = [np.isin(ranks, faulty) for ranks in passes_.ranks]
    mended = [_mended(each, own) for each, own in zip(took, bad, strict=True)]
    ideal = _even(passes_, took)
    lived, best = float(replay(passes_, took).mean()), float(replay(passes_, ideal).mean())
    well, even = replay(passes_, mended), replay(passes_, _even_by_step(passes_, mended))
    staged = replay(passes_, _by_stage(passes_, mended))
    without_last = float(replay(passes_, [*took[:-1], ideal[-1]]).mean())
    without = [np.where(own[None, :, None], new, old)
               for old, new, own in zip(took, ideal, bad, strict=True)]  # fmt: skip
    lost = max(lived - best, 1e-9)
    return Shares(
        lived / best, float(np.median((staged - even) / even)),
        float(np.median((well - staged) / even)),
        (lived - float(replay(passes_, without).mean())) / lost, (lived - without_last) / lost,
    )  # fmt: skip


def _mended(took: Floats, bad: NDArray[np.bool_]) -> Floats:
    """Return durations in which faulty replicas are as the others' median."""
    if not bad.any() or bad.all():
        return took
    made = took.copy()
    made[:, bad] = np.median(took[:, ~bad], axis=1, keepdims=True)
    return made


def _even(passes_: Passes, took: Sequence[Floats]) -> list[Floats]:
    """Return durations in which each pass takes the mean of its direction, over all stages.

    Where passes are not alike, the mean of its kind, and stages have as much to do as each other.
    """
    if not passes_.alike:
        staged = _by_kind(passes_, took, (0, 1, 2))
        total = np.array([float(each.sum(axis=2).mean()) for each in staged])
        scale = total.mean() / np.maximum(total, 1e-9)
        return [each * one for each, one in zip(staged, scale, strict=True)]
    ahead = [np.array([each.forward for each in own]) for own in passes_.order]
    mean = {
        way_: float(np.mean(np.concatenate(
            [each[:, :, own == way_].ravel() for each, own in zip(took, ahead, strict=True)]
        )))
        for way_ in (True, False) if any((own == way_).any() for own in ahead)
    }  # fmt: skip
    return [
        np.broadcast_to(np.array([mean[bool(way_)] for way_ in own]), each.shape)
        for each, own in zip(took, ahead, strict=True)
    ]


def _even_by_step(passes_: Passes, took: Sequence[Floats]) -> list[Floats]:
    """Return durations in which each pass takes the mean of its direction and step."""
    steps = range(len(took[0]))
    each = [_even(passes_, [own[n : n + 1] for own in took]) for n in steps]
    return [np.concatenate(parts) for parts in zip(*each, strict=True)]


def _by_stage(passes_: Passes, took: Sequence[Floats]) -> list[Floats]:
    """Return durations in which each pass takes the mean of its kind and step.

    Those of a stage's last chunk may be longer than its others, which is no chance.
    """
    return _by_kind(passes_, took, (1, 2))


def _by_kind(passes_: Passes, took: Sequence[Floats], axes: tuple[int, ...]) -> list[Floats]:
    made = []
    for own, each in zip(passes_.order, took, strict=True):
        kinds = np.array([2 * one.chunk + one.forward for one in own])
        usual = np.empty_like(each)
        for some in (kinds == kind for kind in np.unique(kinds)):
            usual[:, :, some] = each[:, :, some].mean(axis=axes, keepdims=True)
        made.append(usual)
    return made


def alike(passes_: Passes) -> float:
    """Return how forward and backward passes of the same microbatch go together, -1 to 1.

    A long sequence is long both ways, and on every stage; a rank's own trouble is not. Lin et al.
    take 0.9 and more for a sign of sequences of unequal length.
    """
    pairs = []
    for own, took in zip(passes_.order, passes_.took_us, strict=True):
        ahead = [each.number for each in own if each.forward]
        back = [each.number for each in own if not each.forward]
        if len(ahead) != len(back):
            return 0.0
        forward, backward = took[:, :, ahead], took[:, :, back]
        pairs.append((forward / forward.mean(), backward / backward.mean()))
    x = np.concatenate([pair[0].ravel() for pair in pairs])
    y = np.concatenate([pair[1].ravel() for pair in pairs])
    if not (x.std() and y.std()):
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])
