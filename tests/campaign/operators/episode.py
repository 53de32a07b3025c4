# SPDX-License-Identifier: Apache-2.0
"""One episode: a job of random shape with faults at random places, its log, what is said of it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzer.detect.operators.slow import judge
from analyzer.detect.operators.transfers import FEWEST_ALIKE
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who
from analyzer.operators.log import Log
from analyzer.simulate.operators.clockwork import run
from analyzer.simulate.operators.faults import NETWORK, NOBODY, Blame, Fault, Injected, blame, draw
from analyzer.simulate.operators.harm import harm
from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.logs import HOOKS, TRACE, Source, log_of_run
from tests.campaign.operators import baselines

JUDGING = 1_000_000
"""Seeds from here on judge. Thresholds were tuned on those below."""
SHAPES: Mapping[int, Sequence[tuple[int, int, int, int]]] = {
    64: ((8, 4, 2, 1), (16, 2, 2, 8), (32, 1, 2, 1)),
    256: ((16, 4, 4, 1), (32, 4, 2, 1), (8, 8, 4, 1), (32, 2, 4, 8), (128, 1, 2, 1)),
    2048: ((64, 4, 8, 1), (32, 8, 8, 1), (128, 2, 8, 8), (256, 1, 8, 1)),
    8192: ((128, 8, 8, 1), (256, 4, 8, 8), (1024, 1, 8, 1)),
}
"""Ranks -> DP, PP, TP, EP."""
SOURCES: Mapping[str, Source] = {"hooks": HOOKS, "all": Source(), "trace": TRACE}
EXPECTED = {
    Fault.SEQUENCES: {Holdup.IMBALANCE}, Fault.EXPERTS: {Holdup.IMBALANCE},
    Fault.GC_RANDOM: {Holdup.IMBALANCE, Holdup.ALL_SLOW},
    Fault.GC_ALL: {Holdup.ALL_SLOW}, Fault.CHECKPOINT: {Holdup.ALL_SLOW},
}  # fmt: skip
"""What is to be said where nobody is at fault."""
_HEALTHY, _NOBODY, _TWO = 0.1, 0.2, 0.3
"""Shares of episodes."""
_SHOWN = 8
_BLAMED = set(Fault) - NOBODY - {Fault.LOSSY}  # that one is tried apart, by name
_SECOND = (*_BLAMED, Fault.GC_RANDOM, Fault.GC_ALL, Fault.CHECKPOINT)


@dataclass(frozen=True, slots=True)
class Episode:
    """What is tried."""

    seed: int
    job: Job
    source: str
    faults: tuple[Injected, ...]

    @property
    def truth(self) -> list[tuple[Fault, Blame]]:
        """Who is at fault."""
        found = [(each.fault, blame(self.job, each)) for each in self.faults]
        made = [(fault, truth) for fault, truth in found if truth is not None]
        if not SOURCES[self.source].cells:
            return made
        return [(fault, _logged(self.job, truth)) for fault, truth in made]


def _logged(job: Job, truth: Blame) -> Blame:
    """Return those at fault of whom a trace of one rank in each cell has a log."""
    ranks = frozenset(rank // job.tensor * job.tensor for rank in truth.ranks)
    return Blame(truth.kind, ranks)


def episode(seed: int, ranks: int, only: Fault | None = None) -> Episode:
    """Return the episode of a seed; `only`: with this fault alone."""
    rng = np.random.default_rng(seed)
    source = str(rng.choice([name for name in SOURCES if only is None or _tells(name, only)]))
    faults = _faults(rng, source) if only is None else [only]
    shapes = [shape for shape in SHAPES[ranks] if _fits(shape, faults)]
    data, stages, tensor, experts = shapes[int(rng.integers(len(shapes)))]
    chunks = 2 if stages > 1 and experts == 1 and rng.random() < 0.25 else 1
    job = Job(
        data, stages, tensor, experts, microbatches=8, chunks=chunks,
        steps=int(rng.integers(16, 25)), jitter=float(rng.uniform(0.005, 0.03)),
        drift=float(rng.uniform(0.002, 0.01)), last_stage=float(rng.uniform(1.0, 1.08)),
        between=float(rng.uniform(0, 0.01)),
    )  # fmt: skip
    drawn = draw(job, faults, rng)
    if SOURCES[source].cells:
        drawn = [replace(each, rank=each.rank // tensor * tensor) for each in drawn]
    return Episode(seed, job, source, tuple(drawn))


def _faults(rng: np.random.Generator, source: str) -> list[Fault]:
    blamed = [each for each in sorted(_BLAMED) if _tells(source, each)]
    kind = rng.random()
    if kind < _HEALTHY:
        return []
    if kind < _HEALTHY + _NOBODY:
        return [Fault(rng.choice(sorted(NOBODY)))]
    first = Fault(rng.choice(blamed))
    if rng.random() >= _TWO:
        return [first]
    others = [each for each in sorted(_SECOND) if each in blamed or each in NOBODY]
    return [first, Fault(rng.choice(others))]


def _tells(source: str, fault: Fault) -> bool:
    """Return whether a source can tell a fault.

    A trace does not say who is in a ring, and its times begin anew with each step.
    """
    return source != "trace" or fault not in {Fault.RING, Fault.LOSSY}


def _fits(shape: tuple[int, int, int, int], faults: Sequence[Fault]) -> bool:
    _, stages, tensor, experts = shape
    if Fault.EXPERTS in faults and experts == 1:
        return False
    # What is slow of a network is told by what is like it: no ring is unlike the only other one.
    if Fault.RING in faults and stages * tensor < FEWEST_ALIKE:
        return False
    pipelined = {Fault.LINK, Fault.LAST_STAGE, Fault.NIC, Fault.LOSSY}
    return stages > 1 or not pipelined & set(faults)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an episode, by rule."""

    seed: int
    faults: tuple[str, ...]
    source: str
    first: Mapping[str, bool]
    """Of a fault that somebody is to blame for: whether who was named first is to blame."""
    second: Mapping[str, bool]
    """Whether who was named first or second is."""
    every: bool
    """Whether all that are to blame were named, among the first two."""
    false: Mapping[str, bool]
    """Whether anybody was named who is not to blame, or the network without reason."""
    told: bool
    """Where nobody is to blame: whether it was told what holds the job up."""
    seconds: float
    verdict: str
    rows: int
    ranks: int = 0
    named: tuple[str, ...] = ()
    """Who was, first to last."""
    innocent: bool = True
    """Whether the network is."""
    version: str = ""
    """The commit that simulated and judged."""


def outcome(each: Episode) -> Outcome:
    """Try an episode."""
    rng = np.random.default_rng(each.seed + 1)
    made = run(each.job, harm(each.job, each.faults, rng), rng)
    log = log_of_run(made, SOURCES[each.source], rng)
    del made
    began_s = time.perf_counter()
    verdict = judge(log)
    assert verdict is not None
    took_s = time.perf_counter() - began_s
    said = {"netagent": verdict, **baselines.verdicts(log)}
    return Outcome(
        each.seed, tuple(fault.fault.value for fault in each.faults), each.source,
        {name: _right(each, one.culprits[:1]) for name, one in said.items()},
        {name: _right(each, one.culprits[:2]) for name, one in said.items()},
        _all(each, verdict), {name: _false(each, one) for name, one in said.items()},
        _told(each, verdict), took_s, verdict.holdup.value, len(log), each.job.world,
        tuple(_shown(culprit) for culprit in verdict.culprits), verdict.innocent,
    )  # fmt: skip


def _shown(culprit: Culprit) -> str:
    more = ", ..." if len(culprit.ranks) > _SHOWN else ""
    return f"{culprit.kind.value} {', '.join(map(str, culprit.ranks[:_SHOWN]))}{more}"


def matches(culprit: Culprit, fault: Fault, truth: Blame) -> bool:
    """Return whether a culprit is who is to blame: all of them, and nobody else.

    A slow uplink shows on its rank's edges alone where a log has no groups: one of them is right.
    """
    if fault is Fault.NIC and culprit.kind is Who.EDGE:
        return truth.ranks <= frozenset(culprit.ranks)
    return frozenset(culprit.ranks) == truth.ranks


def _right(each: Episode, culprits: Sequence[Culprit]) -> bool:
    return any(
        matches(culprit, fault, truth) for culprit in culprits for fault, truth in each.truth
    )


def _all(each: Episode, verdict: Verdict) -> bool:
    named = verdict.culprits[:2]
    return all(
        any(matches(culprit, fault, truth) for culprit in named) for fault, truth in each.truth
    )


def _false(each: Episode, verdict: Verdict) -> bool:
    """Return whether anybody healthy was named, or the network while it was well."""
    network = any(fault in NETWORK for fault, _ in each.truth)
    stray = any(
        not any(is_to_blame(culprit, fault, truth) for fault, truth in each.truth)
        for culprit in verdict.culprits
    )
    return stray or (not verdict.innocent and not network)


def is_to_blame(culprit: Culprit, fault: Fault, truth: Blame) -> bool:
    """Return whether all of a culprit is at fault, if not all that is.

    Of a slow host one rank is, and of a slow stage; an edge's end is not, nor a ring's, nor who
    shares a group with a slow rank.
    """
    part = fault not in NETWORK and culprit.kind is not Who.EDGE
    is_part = part and frozenset(culprit.ranks) <= truth.ranks
    at_uplink = fault is Fault.LOSSY and matches(culprit, Fault.NIC, truth)
    return is_part or at_uplink or matches(culprit, fault, truth)


def _told(each: Episode, verdict: Verdict) -> bool:
    if not each.faults:
        return verdict.holdup is Holdup.NOTHING
    return not verdict.culprits and verdict.holdup in EXPECTED.get(each.faults[0].fault, set())


def log_of(each: Episode) -> Log:
    """Return an episode's log, as it was judged."""
    rng = np.random.default_rng(each.seed + 1)
    return log_of_run(
        run(each.job, harm(each.job, each.faults, rng), rng), SOURCES[each.source], rng
    )
