# SPDX-License-Identifier: Apache-2.0
"""Queues of tasks' own bursts: for a part of each iteration, some links are late for all probes.

A task's replicas exchange gradients at the same time, and ECMP puts more of them on some links than
on others. Nobody is at fault.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analyzer.simulate.clos import Clos, Ints
from analyzer.simulate.failures import SECOND
from analyzer.simulate.measured import Floats

PERIOD_S = (20.0, 40.0)
"""Seconds of an iteration. SkeletonHunter, section 1: typically some thirty."""
DUTY = (0.15, 0.5)
"""Share of it in which a task bursts. Chosen: Figure 7 has a twentieth at full rate, and a plateau
of half the iteration."""
HOT = 0.3
"""Share of the directions of links, among those that a task uses, on which its bursts queue.
Chosen: ECMP is uneven."""
DELAY_NS = (2_000.0, 10_000.0)
"""What a queue adds at each crossing, in the median. Chosen: below where the reference sees harm,
ten microseconds."""
SPREAD = 0.4
"""Standard deviation of the logarithm of that. Chosen: a queue is never twice as long."""


@dataclass(frozen=True)
class _Iteration:
    period_ns: int
    phase_ns: int
    burst_ns: int
    delay_ns: dict[tuple[str, str], float]
    """Direction of a link -> median of what the queue adds."""


class Bursts:
    """When and where the tasks of a fabric queue."""

    def __init__(self, clos: Clos, seed: int) -> None:
        self._clos, self._seed = clos, seed
        self._iterations: dict[str, _Iteration] = {}
        self._by_route: dict[str, Floats] = {}

    def added_ns(self, at_ns: Ints, there: Ints, back: Ints, rng: np.random.Generator) -> Floats:
        """Return what probes wait that take these routes at these instants."""
        added = np.zeros(len(at_ns))
        for task in self._clos.tasks:
            each = self._iteration(task)
            bursts = (at_ns + each.phase_ns) % each.period_ns < each.burst_ns
            of_route = self._of_routes(task, each)
            added[bursts] += of_route[there[bursts]] + of_route[back[bursts]]
        made: Floats = added * rng.lognormal(0.0, SPREAD, len(added))
        return made

    def _iteration(self, task: str) -> _Iteration:
        known = self._iterations.get(task)
        if known is None:
            rng = np.random.default_rng([self._seed, 6, *task.encode()])
            period_ns = int(rng.uniform(*PERIOD_S) * SECOND)
            used = sorted(
                {step for route in self._clos.routes_of(task) for step in pairwise(route)}
            )
            hot = rng.random(len(used)) < HOT
            delay_ns = rng.uniform(*DELAY_NS, len(used))
            known = self._iterations[task] = _Iteration(
                period_ns,
                int(rng.integers(period_ns)),
                int(rng.uniform(*DUTY) * period_ns),
                {step: d for step, d, h in zip(used, delay_ns.tolist(), hot, strict=True) if h},
            )
        return known

    def _of_routes(self, task: str, of: _Iteration) -> Floats:
        routes, known = self._clos.routes, self._by_route.get(task)
        if known is None or len(known) < len(routes):
            known = self._by_route[task] = np.asarray(
                [sum(of.delay_ns.get(step, 0.0) for step in pairwise(route)) for route in routes]
            )
        return known
