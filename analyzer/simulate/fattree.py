# SPDX-License-Identifier: Apache-2.0
"""Flows through a k-ary fat-tree with silent drops, and which links drop.

The tree is Al-Fares' (SIGCOMM '08): k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 core
switches, k/2 hosts an edge switch. Flow sizes are Pareto distributed and healthy links lose a
little, each another share: the setting of Flock (CoNEXT '23, section 6).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

Way = tuple[str, ...]
PARETO = 1.05
"""Shape of the distribution of flow sizes: Flock, section 6.2."""
LEAST_PACKETS, MOST_PACKETS = 100, 20_000
"""Packets of a flow. Chosen: from a short message to a bulk transfer within one window."""


@dataclass(frozen=True, slots=True)
class Silent:
    """What is wrong with a fat-tree."""

    links: int = 1
    """Links that drop."""
    least: float = 0.002
    """Smallest loss rate of a bad link."""
    most: float = 0.02
    """Largest loss rate of a bad link."""
    noise: float = 1e-4
    """Largest loss rate of a healthy link; the rates are uniform below it."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One flow: every way that it may have taken, and the one that it took."""

    source: str
    target: str
    ways: tuple[Way, ...]
    """Nodes of each way, from the source to the target."""
    taken: int
    """Row of `ways`."""
    sent: int
    lost: int


class FatTree:
    """A tree of k-port switches; k is even."""

    def __init__(self, k: int, silent: Silent, *, seed: int = 0) -> None:
        if k < 2 or k % 2:
            raise ValueError(f"a fat-tree of {k}-port switches: k must be even")
        self.k = k
        self._rng = np.random.default_rng(seed)
        half = k // 2
        self._hosts = [(p, e, h) for p in range(k) for e in range(half) for h in range(half)]
        links = sorted(self._links())
        chosen = self._rng.choice(len(links), silent.links, replace=False)
        rates = self._rng.uniform(silent.least, silent.most, silent.links)
        self.bad = {links[n]: float(rate) for n, rate in zip(chosen, rates, strict=True)}
        """(from, to) -> loss rate of the links that drop."""
        self._noise = silent.noise
        self._rates: dict[tuple[str, str], float] = dict(self.bad)

    def _links(self) -> Iterator[tuple[str, str]]:
        """Yield the links between switches, both directions of each."""
        half = self.k // 2
        for pod in range(self.k):
            for a in range(half):
                up = [(f"edge-{pod}-{e}", f"agg-{pod}-{a}") for e in range(half)]
                up += [(f"agg-{pod}-{a}", f"core-{a}-{c}") for c in range(half)]
                for low, high in up:
                    yield low, high
                    yield high, low

    def ways(self, source: tuple[int, int, int], target: tuple[int, int, int]) -> tuple[Way, ...]:
        """Return all shortest ways between two hosts, given as (pod, edge, host)."""
        ends = ("host-{}-{}-{}".format(*source), "host-{}-{}-{}".format(*target))
        edges = (f"edge-{source[0]}-{source[1]}", f"edge-{target[0]}-{target[1]}")
        half = range(self.k // 2)
        if edges[0] == edges[1]:
            middles: list[Way] = [(edges[0],)]
        elif source[0] == target[0]:
            middles = [(edges[0], f"agg-{source[0]}-{a}", edges[1]) for a in half]
        else:
            middles = [
                (
                    edges[0],
                    f"agg-{source[0]}-{a}",
                    f"core-{a}-{c}",
                    f"agg-{target[0]}-{a}",
                    edges[1],
                )
                for a in half
                for c in half
            ]
        return tuple((ends[0], *middle, ends[1]) for middle in middles)

    def flows(self, count: int) -> Iterator[Flow]:
        """Yield flows between random hosts, each on a random way."""
        for _ in range(count):
            a, b = self._rng.choice(len(self._hosts), 2, replace=False)
            ways = self.ways(self._hosts[a], self._hosts[b])
            taken = int(self._rng.integers(len(ways)))
            sent = int(min(MOST_PACKETS, LEAST_PACKETS * (1 + self._rng.pareto(PARETO))))
            way = ways[taken]
            survives = 1.0
            for ends in pairwise(way):
                survives *= 1.0 - self._rate(ends)
            lost = int(self._rng.binomial(sent, 1.0 - survives))
            yield Flow(way[0], way[-1], ways, taken, sent, lost)

    def _rate(self, ends: tuple[str, str]) -> float:
        if ends not in self._rates:
            self._rates[ends] = float(self._rng.uniform(0.0, self._noise))
        return self._rates[ends]
