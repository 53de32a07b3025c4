# SPDX-License-Identifier: Apache-2.0
"""Fabrics that spray: each packet takes a way of its own, so no flow has one path.

A trace of a flow shows, hop by hop, the routers of different packets. Beyond two tiers they need
not be beside each other.
"""

from collections.abc import Sequence

import numpy as np

from analyzer.simulate.clos import PORTS, Clos, Ints, Route

RETRACED = 12
"""Windows in which each flow is traced once more. Chosen: an agent traces five hundred flows in a
minute."""


class Spray:
    """The ways of each flow, of which each packet takes one."""

    def __init__(self, clos: Clos, seed: int) -> None:
        self._clos = clos
        self._rng = np.random.default_rng([seed, 7])
        self._traces: dict[tuple[int, bool], Route] = {}
        self._window = 0
        self.lay()

    def lay(self, without: frozenset[str] = frozenset()) -> None:
        """Find the ways anew: flows changed, or what routers avoid."""
        clos = self._clos
        self._without = without
        self._traces.clear()
        leaves = np.asarray([clos.leaf_number(n) for n in range(clos.shape.rnics)])
        ends = [leaves[each] for each in (clos.source, clos.target)]
        key = np.stack([ends[0] * clos.shape.rnics + ends[1], ends[1] * clos.shape.rnics + ends[0]])
        _, sample, row = np.unique(key, return_index=True, return_inverse=True)
        ways = [self._rows(int(place)) for place in sample]
        self._rows_of_ways = np.asarray([each for way in ways for each in way], np.int64)
        counts = np.asarray([len(way) for way in ways], np.int64)
        self._count = counts[row].reshape(2, -1)
        self._first = (np.cumsum(counts) - counts)[row].reshape(2, -1)

    def drawn(self, flow: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Return the rows of the routes that probes of these flows and their replies take."""
        pair, made = flow // PORTS, []
        for first, count in zip(self._first, self._count, strict=True):
            picked = (rng.random(len(flow)) * count[pair]).astype(np.int64)
            made.append(self._rows_of_ways[first[pair] + picked])
        return made[0], made[1]

    def traces(self, flows: Ints, *, reply: bool) -> list[Route]:
        """Return what each flow's newest trace shows."""
        made = []
        for flow in flows.tolist():
            known = self._traces.get((flow, reply))
            if known is None or flow % RETRACED == self._window % RETRACED:
                known = self._traces[flow, reply] = self.mixed(self._ways(flow, reply=reply))
            made.append(known)
        return made

    def turn(self) -> None:
        """Let a window pass."""
        self._window += 1

    def mixed(self, ways: Sequence[Route]) -> Route:
        """Return the routers that packets with growing time to live meet, each on its own way."""
        picked = self._rng.integers(len(ways), size=len(ways[0])).tolist()
        return tuple(ways[n][hop] for hop, n in enumerate(picked))

    def _ways(self, flow: int, *, reply: bool) -> list[Route]:
        return self._clos.ways(flow, reply=reply, without=self._without)

    def _rows(self, place: int) -> list[int]:
        reply, pair = divmod(place, len(self._clos.source))
        ways = self._ways(PORTS * pair, reply=bool(reply))
        return [self._clos.row(way) for way in ways]
