# SPDX-License-Identifier: Apache-2.0
"""What simpler methods say of the same messages: fixed thresholds, and MaxCount or 007 upon them.

A flow is anomalous in a window if it loses more than LOSS of its probes, or if its mean round trip
exceeds RTT_NS. Anomalous flows are put to SkeletonHunter's Algorithm 1 (MaxCount), whose counters
stay, and to 007, on the ways that agents traced; components are RNICs, links, switches and hosts,
and of several that as many flows cross, the first in this order is meant.
What the methods blame at an episode's end is scored: with as many failures as they were not told.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from analyzer.intake.flows import FlowNumbers, paths_of
from analyzer.localize.tomography import maxcount, seven
from analyzer.localize.tomography.observations import Builder, Observations
from analyzer.localize.tomography.ranking import Ranking
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, Kind, link, rnic, switch
from netagent.wire.messages import Summary

LOSS = 0.01
"""Share of a flow's probes. Chosen: of some three probes in a window, any loss."""
RTT_NS = 50_000.0
"""Mean round trip. Chosen: twice what is normal on RoCE (below 20 us), and some more."""
MOST = 8
"""Blamed components kept of an episode."""

ORDER = (Kind.RNIC, Kind.LINK, Kind.SWITCH, Kind.HOST)

Rank = Callable[[Observations[str], Sequence[bool]], Ranking[str]]
METHODS: Mapping[str, Rank] = {"MaxCount": maxcount.rank, "007": seven.rank}


@dataclass
class Baselines:
    """Reads the messages of an episode."""

    endpoints: Mapping[EndpointId, Endpoint]
    alarms: int = 0
    """Windows with an anomalous flow."""
    _numbers: FlowNumbers = field(default_factory=FlowNumbers)
    _ways: dict[tuple[FlowId, bool], tuple[str, ...]] = field(default_factory=dict)
    _seen: Builder[str] = field(default_factory=Builder)

    def window(self, summaries: Sequence[Summary]) -> None:
        """Take the messages of a window."""
        found = False
        for summary in summaries:
            for path in paths_of(summary):
                self._ways[path.flow, path.reply] = path.hops
        for summary in summaries:
            rows = self._numbers.decode(summary)
            slow = (rows.count > 0) & (np.exp(rows.mean_ln) > RTT_NS)
            lossy = rows.lost > LOSS * rows.sent
            for n in np.flatnonzero(slow | lossy).tolist():
                flow = self._numbers.flow(int(rows.flow[n]))
                # Both methods count flows, however many probes of them are lost.
                self._seen.flow([self._leg(flow, reply=r) for r in (False, True)], 1, 1)
                found = True
        self.alarms += found

    def blamed(self) -> dict[str, tuple[str, ...]]:
        """Return what each method blames, best first, by its name."""
        seen = self._seen.build()
        if not seen.flows:
            return dict.fromkeys(METHODS, ())
        every = [True] * len(seen.components)
        return {
            name: tuple(e.component[1:] for e in rank(seen, every).ranked if e.blamed)[:MOST]
            for name, rank in METHODS.items()
        }

    def _leg(self, flow: FlowId, *, reply: bool) -> int:
        ends = [self.endpoints[each] for each in (flow.source, flow.target)]
        own: list[Component] = []
        for end in ends:
            own += [Component(Kind.HOST, end.host), rnic(end.host, end.rnic)]
        hops = self._ways.get((flow, reply), ())
        way = [switch(hop) for hop in hops if hop]
        way += [link(a, b) for a, b in pairwise(hops) if a and b]
        return self._seen.leg([[f"{ORDER.index(each.kind)}{each}" for each in (*own, *way)]])
