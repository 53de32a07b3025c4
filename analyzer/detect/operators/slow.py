# SPDX-License-Identifier: Apache-2.0
"""Who makes a job slow: a rank, a stage, the network, or nobody."""

import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from analyzer.detect.operators import lateness, partition, stalls, transfers, whatif
from analyzer.detect.operators.case import Case
from analyzer.detect.operators.iterations import FEWEST_ITERATIONS, iterations
from analyzer.detect.operators.neighbours import with_peers
from analyzer.detect.operators.positions import mixed, stages
from analyzer.detect.operators.segments import segments
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who
from analyzer.operators.aggregate import summed
from analyzer.operators.keeper import PROBES
from analyzer.operators.log import NEVER, UNKNOWN, Kind, Log
from analyzer.operators.rows import Floats, Ints, Rows, gaps

IRREGULAR = 1.04
"""How many times the usual an iteration takes to be irregular. Holmes' delta, below which jitter
dominates, as in the paper."""
TOGETHER = 0.01
"""Share of the time that all ranks lose in the same iterations, from which it is told. Chosen."""
SLIGHT = 0.1
"""Part of what the worst rank costs, below which another one, or a stage, is not told. Chosen:
nobody waits for it before the worst is mended."""
SLIGHT_INSIDE = 0.25
"""Part of what an uneven stage costs, below which none of its ranks is told apart. Chosen."""
_MOST_OF_HOST = 0.8
"""Share of a host's ranks that are slow where the host is. Chosen."""
_NOBODY = (Holdup.NOTHING, Holdup.ALL_SLOW, Holdup.IMBALANCE)
_HALF = 0.5
_LEAST = 2
_SHOWN = 8
_AT_TIMES = 0.9


def judge(log: Log) -> Verdict | None:
    """Return who makes a job slow, as far as operators tell; None without durations."""
    if not ((log.started_ns != NEVER) & (log.ended_ns != NEVER)).any():
        return None
    if log.source == PROBES and not log.is_whole:
        return _untold()
    found = iterations(log)
    if len(found.steps) < FEWEST_ITERATIONS:
        return insufficient(len(found.steps))
    whole = with_peers(log)
    rows = Rows.of(whole, found.step, found.steps)
    gap = gaps(rows)
    shared = _shared(rows, gap)
    if len(shared) < len(found.steps):
        if len(shared) < FEWEST_ITERATIONS:
            return insufficient(len(shared))
        step = np.where(np.isin(found.step, shared), found.step, UNKNOWN).astype(np.int32)
        found = replace(found, step=step, steps=shared)
        rows = Rows.of(whole, found.step, found.steps)
        gap = gaps(rows)
    try:
        sums = summed(whole, rows, gap)
    except ValueError as error:
        return _too_large(error)
    stage = stages(log, sums.ranks, found.step)
    passes = whatif.passes(log, stage, sums.ranks, found.step)
    passes = passes or segments(whole, rows, gap, stage)
    moves = bool(np.isin(log.kind, (Kind.SEND, Kind.RECV)).any())
    blurred = mixed(log, sums.ranks, stage)
    case = Case(sums, stage, log.groups, log.places, whole is not log, moves, blurred)
    verdict = conclude(case, passes)
    return _at_times(case, rows, verdict) if verdict.holdup in _NOBODY else verdict


def _shared(rows: Rows, gap: Floats) -> Ints:
    """Return the steps that half of the ranks have, and that take any time.

    Who has steps of his own, or of no length, would else make all others' shares of a step nothing.
    """
    lengths = rows.lengths(gap)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        there = np.isfinite(lengths).mean(axis=1) >= _HALF
        return np.asarray(rows.steps[there & (np.nan_to_num(np.nanmedian(lengths, axis=1)) > 0)])


def _at_times(case: Case, rows: Rows, verdict: Verdict) -> Verdict:
    """Return a verdict that names nobody, or else who takes part in what stalls at times."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        own = np.nan_to_num(np.nanmedian(case.own_us / case.step_us[:, None], axis=0))
        hosts = [case.host(rank) for rank in rows.ranks.tolist()]
        found = stalls.stalled(rows, case.groups, case.step_us, own, hosts)
    if not found:
        return verdict
    count = len(case.step_us)
    culprits = tuple(_stalling(each, count) for each in found)
    return Verdict(
        Holdup.SLOW_COMMUNICATION, _told(culprits[0]), culprits, innocent=False,
        evidence=(*(each.why for each in culprits), *verdict.evidence), iterations=count,
    )  # fmt: skip


def _stalling(each: stalls.Stalled, count: int) -> Culprit:
    share = each.steps / count
    kind = Who.EDGE if each.edge else Who.RANK if len(each.ranks) == 1 else Who.GROUP
    why = (
        f"in {share:.0%} of the iterations something that it sends or takes part in ends "
        f"{each.late_us / 1e3:.0f} ms late, though all began in time; {each.effect:.0%} of the time"
    )
    return Culprit(kind, each.ranks, _sure(share), why, network=True)


def _untold() -> Verdict:
    """Return what probes tell of who is late.

    Gaps between gloo's calls, which lack a pipeline's transfers, and between NCCL's, which return
    at once, are waiting as well as work.
    """
    return Verdict(
        Holdup.NOTHING,
        "the job goes on; who is late in it is not told by probes, which see a part of what ranks "
        "do",
        missing=("what ranks send and receive, and the job's steps, as hooks record them",),
    )


def _too_large(error: ValueError) -> Verdict:
    return Verdict(
        Holdup.INSUFFICIENT, str(error), missing=("a log of fewer steps, ranks or operations",)
    )


def insufficient(count: int) -> Verdict:
    """Return what is said of a log with too few iterations."""
    return Verdict(
        Holdup.INSUFFICIENT,
        f"{count} iterations are too few to tell who is slow from who was late once",
        iterations=count,
        missing=(f"a log of at least {FEWEST_ITERATIONS} iterations",),
    )


def conclude(case: Case, passes: whatif.Passes | None = None) -> Verdict:
    """Return who makes a job slow, from its aggregates, and its passes where a log tells them."""
    # NaN is what is not known, and numpy warns of a median of nothing: that is not known, either.
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        return _concluded(case, passes)


def _concluded(case: Case, passes: whatif.Passes | None) -> Verdict:
    slow, hot = lateness.slow(case), transfers.hot(case)
    parts = partition.parts(case, slow.places)
    why: tuple[str, ...] = ()
    if passes is not None:
        shares = whatif.shares(passes, case.sums.ranks[slow.places].tolist())
        parts = replace(parts, partition=shares.partition, chance=shares.chance, bounded=False)
        why = _simulated(shares, whatif.alike(passes) if passes.alike else None)
    slow = _without_slight(case, slow, parts)
    held = [*_ranks(case, slow), *_stage(case, parts, slow)]
    named = list(_network(_others(case, slow, hot)))
    if case.is_piped and not case.is_blind:
        if held and not named:
            return _not_apart(case, [culprit for _, culprit, _ in held])
        held = []
    named = [*held, *named]
    named.sort(key=lambda each: -each[0])
    if not named:
        return _nobody(case, parts, why)
    culprits = tuple(culprit for _, culprit, _ in named)
    network = any(each.network for each in culprits)
    if all(each.network for each in culprits):
        why = ()  # passes are what ranks compute: what shares of them are lost accuses others
    return Verdict(
        named[0][2], _told(culprits[0]), culprits, innocent=not network,
        evidence=(*(each.why for each in culprits), *why), iterations=len(case.step_us),
    )  # fmt: skip


def _not_apart(case: Case, held: list[Culprit]) -> Verdict:
    """Return what is said where ranks may have computed, or waited for each other."""
    ranks = sorted({rank for each in held for rank in each.ranks})
    some = ", ".join(map(str, ranks[:_SHOWN])) + (", ..." if len(ranks) > _SHOWN else "")
    late = f"ranks {some} are late, or" if ranks else "ranks"
    return Verdict(
        Holdup.INSUFFICIENT,
        f"{late} wait for each other where nothing was logged",
        iterations=len(case.step_us),
        missing=("a log of what ranks compute, or of the pipeline's sends and receives",),
    )


def _simulated(shares: whatif.Shares, alike: float | None) -> tuple[str, ...]:
    """Return what running the schedule again says, as sentences."""
    together = f"forward and backward passes of a microbatch go together by {alike or 0:.2f}"
    return (
        f"with every pass as the mean, steps would take 1/{shares.slowdown:.2f} of the time",
        f"of what is lost, {shares.ranks:.0%} is gone without the ranks at fault (M_W)",
        f"and {shares.last_stage:.0%} with the last stage's passes as the mean (M_S)",
        f"stages differ by {shares.partition:.0%} of a step, chance costs {shares.chance:.0%}",
        *([] if alike is None else [together]),
    )


_Named = tuple[float, Culprit, Holdup]


def _told(first: Culprit) -> str:
    host = first.host if first.kind is Who.HOST else None
    some = ", ".join(map(str, first.ranks[:_SHOWN]))
    more = ", ..." if len(first.ranks) > _SHOWN else ""
    return f"{first.kind.value} {host or some + more} holds the job up: {first.why}"


def _ranks(case: Case, slow: lateness.Slow) -> Iterator[_Named]:
    """Yield slow ranks, those of one host together where most of its ranks are slow."""
    left = dict(zip(slow.places.tolist(), range(len(slow.places)), strict=True))
    for host, places in _hosts(case, slow).items():
        at = [left.pop(place) for place in places]
        ranks = tuple(sorted(int(case.sums.ranks[place]) for place in places))
        effect = float(slow.effect[at].max())
        why = f"{len(ranks)} of its ranks take {effect:.0%} of a step longer than their peers"
        sure = _sure(float(slow.share[at].mean()))
        yield effect, Culprit(Who.HOST, ranks, sure, why, host), Holdup.SLOW_RANK
    for place, at in left.items():
        rank, effect = int(case.sums.ranks[place]), float(slow.effect[at])
        why = (
            f"takes {effect:.0%} of a step longer over its own work than its peers, "
            f"far off in {slow.share[at]:.0%} of the iterations{_mostly(case, place)}"
            f"{_going(float(slow.share[at]), float(slow.with_time[at]))}"
        )
        sure = _sure(max(float(slow.share[at]), float(slow.with_time[at])))
        culprit = Culprit(Who.RANK, (rank,), sure, why, case.host(rank))
        yield effect, culprit, Holdup.SLOW_RANK


def _sure(share: float) -> float:
    """Return a confidence: half where the iterations are split, at most 0.99."""
    return min(0.99, 0.6 + 0.4 * float(share))


def _going(share: float, with_time: float) -> str:
    """Return how a rank that is slow at times makes iterations long, as the end of a sentence."""
    if share > _AT_TIMES:
        return ""
    return f"; goes with the iterations' time by {with_time:.2f}"


def _mostly(case: Case, place: int) -> str:
    """Return in which operation a rank is late, as the end of a sentence."""
    peers = case.stage == case.stage[place]
    usual = np.nanmedian(case.sums.own_us[:, peers], axis=1)
    over = (case.sums.own_us[:, place] - usual).mean(axis=0)
    return f", mostly in {case.sums.labels[int(np.argmax(over))]}"


def _hosts(case: Case, slow: lateness.Slow) -> dict[str, list[int]]:
    """Return the slow ranks of hosts of which most ranks are slow."""
    of: dict[str, list[int]] = {}
    for place, rank in enumerate(case.sums.ranks.tolist()):
        if (host := case.host(rank)) is not None:
            of.setdefault(host, []).append(place)
    bad = set(slow.places.tolist())
    made = {host: [place for place in own if place in bad] for host, own in of.items()}
    return {
        host: some for host, some in made.items()
        if len(some) >= max(_LEAST, _MOST_OF_HOST * len(of[host]))
    }  # fmt: skip


def _stage(case: Case, parts: partition.Parts, slow: lateness.Slow) -> Iterator[_Named]:
    # What it costs is a share of the step without slow ranks, theirs of the step that was.
    worst = float(slow.effect.max(initial=0))
    effect = parts.partition * (1 - worst)
    if not parts.uneven or effect < SLIGHT * worst:
        return
    for stage in parts.stages:
        of = case.sums.ranks[case.stage == stage]
        why = (
            f"{_stage_named(case, stage)} has {parts.times:.2f} times the "
            f"work of the others, which costs {parts.partition:.0%} of a step"
        )
        if len(parts.stages) > 1:
            why += f", as {len(parts.stages) - 1} more stages have"
        culprit = Culprit(Who.GROUP, tuple(of.tolist()), _sure(parts.steady), why)
        yield effect, culprit, Holdup.SLOW_RANK


def _stage_named(case: Case, stage: int) -> str:
    return "the last stage" if stage == int(case.stage.max()) else f"stage {stage}"


def _without_slight(case: Case, slow: lateness.Slow, parts: partition.Parts) -> lateness.Slow:
    """Return the slow ranks, but for those that others beside them make slight.

    Of a stage that is slow as a whole some are the slowest, and it does not wait for their sake.
    """
    least = np.full(len(slow.places), SLIGHT * slow.effect.max(initial=0))
    if parts.uneven:
        inside = np.isin(case.stage[slow.places], parts.stages)
        least = np.maximum(least, np.where(inside, SLIGHT_INSIDE * parts.partition, 0))
    keep = slow.effect >= least
    return replace(
        slow, places=slow.places[keep], effect=slow.effect[keep], share=slow.share[keep],
        with_time=slow.with_time[keep],
    )  # fmt: skip


def _others(case: Case, slow: lateness.Slow, hot: list[transfers.Hot]) -> list[transfers.Hot]:
    """Return what is slow of the network, but for what a rank takes part in that is slower itself.

    A rank that has too little to compute with is slow at sending and reducing, too.
    """
    effect = dict(zip(case.sums.ranks[slow.places].tolist(), slow.effect.tolist(), strict=True))
    return [
        each for each in hot
        if each.effect > max((effect.get(rank, 0.0) for rank in each.ranks), default=0.0)
    ]  # fmt: skip


def _network(hot: list[transfers.Hot]) -> Iterator[_Named]:
    for each in hot:
        why = (
            f"{each.what} takes {each.times:.1f} times as long as its like in {each.share:.0%} of "
            f"the iterations, {each.effect:.0%} of a step"
        )
        culprit = Culprit(each.kind, each.ranks, _sure(each.share), why, network=True)
        yield each.effect, culprit, Holdup.SLOW_COMMUNICATION


def _nobody(case: Case, parts: partition.Parts, why: tuple[str, ...]) -> Verdict:
    """Return what a job without a culprit suffers from, if anything."""
    count, together = len(case.step_us), _together(case)
    if together >= TOGETHER and together > parts.chance / 2:
        return Verdict(
            Holdup.ALL_SLOW,
            f"all ranks are slow in the same iterations, which costs {together:.0%} of the time",
            evidence=why, iterations=count,
        )  # fmt: skip
    if case.is_piped and not case.is_blind:
        return _not_apart(case, [])
    if parts.uneven_by_chance:
        return Verdict(
            Holdup.IMBALANCE,
            f"work is dealt unevenly by chance, which costs {parts.chance:.0%} of a step: "
            "another rank is last each time",
            evidence=(f"the stages' shares of work cost {parts.partition:.0%}", *why),
            iterations=count,
        )  # fmt: skip
    return Verdict(Holdup.NOTHING, "nobody holds the job up", evidence=why, iterations=count)


def _together(case: Case) -> float:
    """Return the share of the time that is lost in irregular iterations to what all ranks did."""
    time, own = case.step_us, np.nanmedian(case.own_us, axis=1)
    over = np.maximum(time - np.median(time), 0) * (time > IRREGULAR * np.median(time))
    alike = np.maximum(own - np.median(own), 0)
    if (over > 0).sum() < _LEAST:
        return 0.0
    return float(np.minimum(over, alike).sum() / time.sum())
