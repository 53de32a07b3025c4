# SPDX-License-Identifier: Apache-2.0
"""The likelihood of what flows lost, summed over every way that each may have taken."""

import math
from collections import Counter
from collections.abc import Mapping
from itertools import product

from analyzer.localize.tomography.observations import NO_LEG, Observations


def log_likelihood(
    seen: Observations[str], background: float, hazards: Mapping[int, float]
) -> float:
    """Return nats; `hazards` is component row -> hazard of one crossing."""
    return math.fsum(
        _of_flow(seen, row, background, hazards) for row in range(seen.flows) if seen.sent[row]
    )


def _of_flow(
    seen: Observations[str], row: int, background: float, hazards: Mapping[int, float]
) -> float:
    legs = [int(leg) for leg in seen.legs[row] if leg != NO_LEG]
    k, n = int(seen.lost[row]), int(seen.sent[row])
    rate, free = k / n, float(seen.free[row])
    total = free * rate**k * (1 - rate) ** (n - k)
    for ways in product(*(seen.alternatives(leg) for leg in legs)):
        crossed = Counter(int(c) for way in ways for c in seen.crossed(way))
        hazard = sum((background + hazards.get(c, 0.0)) * times for c, times in crossed.items())
        weight = math.prod(float(seen.weight[way]) for way in ways)
        total += (1 - free) * weight * (1 - math.exp(-hazard)) ** k * math.exp(-hazard * (n - k))
    return math.log(total)


def crossing_probability(seen: Observations[str], row: int, component: int) -> float:
    """Return the probability that a flow crosses a component, whatever it lost."""
    missed = 1.0
    for leg in seen.legs[row]:
        if leg != NO_LEG:
            missed *= 1.0 - sum(
                float(seen.weight[way])
                for way in seen.alternatives(int(leg))
                if component in seen.crossed(way)
            )
    return 1.0 - missed
