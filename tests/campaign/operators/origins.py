# SPDX-License-Identifier: Apache-2.0
"""Whose fault it is, over jobs of all shapes: one rank's, the last stage's, or nobody's.

`python -m tests.campaign.operators.origins` prints by kind how often exactly those were named.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzer.detect.operators.slow import judge
from analyzer.detect.operators.verdict import Holdup
from analyzer.operators.log import Log
from analyzer.simulate.operators.clockwork import run
from analyzer.simulate.operators.faults import Fault, Injected
from analyzer.simulate.operators.harm import Harm, harm
from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.logs import HOOKS, TRACE, Source, log_of_run
from analyzer.simulate.operators.sequences import packed, spread_out
from tests.campaign.score import wilson

JUDGING = 1_000_000
MOST_PASSES = 250_000
"""Most passes of a job, of all ranks and steps, so that an episode takes a second or two."""
SOURCES = {
    "trace": TRACE,
    "trace without places": replace(TRACE, places=False),
    "computing and collectives": Source(transfers=False),
    "of one rank a cell": Source(transfers=False, groups=False, cells=True, relative=True),
    "without places or transfers": Source(transfers=False, places=False, relative=True),
    "all": Source(),
    "hooks": HOOKS,
    "collectives": replace(HOOKS, transfers=False),
}
KINDS = ("healthy", "worker", "last stage", "sequences", "sequences beside a long last stage")


@dataclass(frozen=True, slots=True)
class Origin:
    """One job, and who makes it slow."""

    kind: str
    source: str
    job: Job
    harm: Harm
    truth: frozenset[int]
    said: str
    """How strong it is, for people."""


def origin(seed: int, kinds: Sequence[str], sources: Sequence[str]) -> Origin:
    """Return the episode of a seed."""
    rng = np.random.default_rng(seed)
    kind, source = kinds[int(rng.random() * len(kinds))], sources[int(rng.random() * len(sources))]
    job = _job(rng)
    ranks = np.arange(job.world).reshape(job.stages, job.data, job.tensor)
    logged = ranks[:, :, :1] if SOURCES[source].cells else ranks
    faults: list[Injected] = []
    truth, said = frozenset[int](), ""
    if kind == "worker":
        rank, strength = int(rng.choice(logged.ravel())), float(rng.uniform(1.2, 3.0))
        faults, truth = [Injected(Fault.SLOW_RANK, rank, strength)], frozenset({rank})
        said = f"rank {rank} {strength:.2f} times"
    elif kind == "last stage":
        strength = float(rng.uniform(1.3, 2.2))
        faults = [Injected(Fault.LAST_STAGE, 0, strength)]
        truth = frozenset(logged[-1].ravel().tolist())
        said = f"{strength:.2f} times"
    elif kind == "sequences beside a long last stage":
        job = replace(job, last_stage=float(rng.uniform(1.1, 1.3)))
    made = harm(job, faults, rng)
    if kind.startswith("sequences"):
        draw, low, high = (packed, 0.4, 0.9) if rng.random() < 0.5 else (spread_out, 0.3, 0.7)
        strength = float(rng.uniform(low, high))
        made.sequences = draw(job, strength, rng)
        said = f"{draw.__name__} {strength:.2f}"
    return Origin(kind, source, job, made, truth, said)


def _job(rng: np.random.Generator) -> Job:
    def some(low: int, high: int) -> int:
        return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))

    while True:
        job = Job(
            data=some(2, 32), stages=some(2, 16), tensor=int(rng.choice([1, 1, 2, 4, 8])),
            microbatches=some(4, 64), steps=some(5, 200), jitter=float(rng.uniform(0.01, 0.1)),
            drift=float(rng.uniform(0.0, 0.02)), last_stage=float(rng.uniform(1.0, 1.08)),
            between=float(rng.uniform(0, 0.01)), even_loss=bool(rng.random() < 0.5),
            forward_us=float(rng.uniform(2000, 20_000)),
        )  # fmt: skip
        if 2 * job.world * job.microbatches * job.steps <= MOST_PASSES:
            return job


def log_of(each: Origin, rng: np.random.Generator) -> Log:
    """Return the log of an episode."""
    return log_of_run(run(each.job, each.harm, rng), SOURCES[each.source], rng)


@dataclass(frozen=True, slots=True)
class Found:
    """What was said of an episode."""

    seed: int
    origin: Origin
    named: tuple[frozenset[int], ...]
    holdup: str

    @property
    def right(self) -> bool:
        """Whether exactly those are named who are to blame, and in one."""
        return list(self.named) == ([self.origin.truth] if self.origin.truth else [])

    @property
    def extra(self) -> bool:
        """Whether anybody is named who is not to blame."""
        return any(not each <= self.origin.truth for each in self.named)


def found(seed: int, kinds: Sequence[str] = KINDS, sources: Sequence[str] = (*SOURCES,)) -> Found:
    """Return what is said of the episode of a seed."""
    each = origin(seed, kinds, sources)
    verdict = judge(log_of(each, np.random.default_rng(seed + 1)))
    assert verdict is not None
    named = tuple(frozenset(one.ranks) for one in verdict.culprits)
    return Found(seed, each, named, verdict.holdup.value)


def table(all_: list[Found]) -> Iterator[str]:
    """Yield a line for each kind, and for each source."""
    by: dict[str, list[Found]] = defaultdict(list)
    for each in all_:
        by[each.origin.kind].append(each)
    for each in all_:
        by[f"  {each.origin.source}"].append(each)
    for name, some in by.items():
        right, extra = sum(each.right for each in some), sum(each.extra for each in some)
        low, high = wilson(right, len(some))
        unsure = sum(each.holdup == Holdup.INSUFFICIENT and not each.named for each in some)
        yield (
            f"{name:36} right {right:4}/{len(some):<4} {right / len(some):6.1%}  "
            f"{low:.1%} to {high:.1%}  cannot tell {unsure:3}  extra {extra:3}"
        )


def main() -> int:
    """Try seeds and print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.operators.origins")
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=JUDGING)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--source", choices=tuple(SOURCES), action="append")
    parser.add_argument("--verbose", action="store_true", help="tell of what was wrong")
    asked = parser.parse_args()
    kinds, sources = tuple(asked.kind or KINDS), tuple(asked.source or SOURCES)
    all_ = []
    for seed in range(asked.seed, asked.seed + asked.episodes):
        each = found(seed, kinds, sources)
        all_.append(each)
        if asked.verbose and not each.right:
            _tell(each)
    print("\n".join(table(all_)))
    return 0


def _tell(each: Found) -> None:
    job = each.origin.job
    shape = f"{job.data}x{job.stages}x{job.tensor} mb {job.microbatches} steps {job.steps}"
    named = [sorted(one)[:4] for one in each.named]
    print(
        f"{each.seed} {each.origin.kind} {each.origin.said} [{each.origin.source}] {shape} "
        f"jitter {job.jitter:.2f} last {job.last_stage:.2f}: {each.holdup} {named}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
