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
from typing import Any

import numpy as np

from analyzer.diagnosis.learning import Learned
from analyzer.intake.columns import column, columns
from analyzer.intake.paths import PathTable, paths_of
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


class _Ways:
    """The paths that one host traced, looked up by flow: most are never asked for."""

    def __init__(self, paths: PathTable) -> None:
        self.paths = paths
        self._endpoint = {each: n for n, each in enumerate(paths.endpoints)}
        source, target, port, reply = (each.astype(np.int64) for each in paths.key[:4])
        key = _key(source, target, port, reply)
        self._order = np.argsort(key, kind="stable")
        self._key = key[self._order]

    def hops(self, flow: FlowId, *, reply: bool) -> tuple[str, ...]:
        """Return the routers of a direction of a flow; none where it was not traced."""
        source, target = self._endpoint.get(flow.source), self._endpoint.get(flow.target)
        if source is None or target is None:
            return ()
        key = _key(source, target, flow.source_port, reply)
        place = int(np.searchsorted(self._key, key))
        if place == len(self._key) or self._key[place] != key:
            return ()
        return self.paths.routes[int(self.paths.route[self._order[place]])]


def _key(source: Any, target: Any, port: Any, reply: Any) -> Any:
    return ((source << 16 | target) << 16 | port) << 1 | reply


@dataclass
class Baselines:
    """Reads the messages of an episode."""

    said: Learned = field(default_factory=Learned)
    """What hosts said of their paths before."""
    alarms: int = 0
    """Windows with an anomalous flow."""
    _endpoints: dict[EndpointId, Endpoint] = field(default_factory=dict)
    _newest: dict[str, PathTable] = field(default_factory=dict)
    """Host -> what it traced by its newest message."""
    _ways: dict[str, _Ways] = field(default_factory=dict)
    _legs: dict[tuple[FlowId, bool, tuple[str, ...]], int] = field(default_factory=dict)
    _seen: Builder[str] = field(default_factory=Builder)

    def know(self, endpoints: Sequence[Endpoint]) -> None:
        """Take the endpoints that there are."""
        self._endpoints.update((each.id, each) for each in endpoints)

    def window(self, summaries: Sequence[Summary]) -> None:
        """Take the messages of a window."""
        found = False
        for each in summaries:
            paths = self.said.all_of(each.host, paths_of(each), wall_ns=each.start_ns)
            self._newest[each.host] = paths
        for summary in summaries:
            for flow in _anomalous(summary):
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
        hops = self._hops(flow, reply=reply)
        known = self._legs.get((flow, reply, hops))
        if known is None:
            known = self._legs[flow, reply, hops] = self._new_leg(flow, hops)
        return known

    def _new_leg(self, flow: FlowId, hops: tuple[str, ...]) -> int:
        ends = [self._endpoints[each] for each in (flow.source, flow.target)]
        own: list[Component] = []
        for end in ends:
            own += [Component(Kind.HOST, end.host), rnic(end.host, end.rnic)]
        way = [switch(hop) for hop in hops if hop]
        way += [link(a, b) for a, b in pairwise(hops) if a and b]
        return self._seen.leg([[f"{ORDER.index(each.kind)}{each}" for each in (*own, *way)]])

    def _hops(self, flow: FlowId, *, reply: bool) -> tuple[str, ...]:
        """Return what the host that sends a probe, or its reply, traced of it last."""
        host = self._endpoints[flow.target if reply else flow.source].host
        newest = self._newest.get(host)
        if newest is None:
            return ()
        if host not in self._ways or self._ways[host].paths is not newest:
            self._ways[host] = _Ways(newest)
        return self._ways[host].hops(flow, reply=reply)


def _anomalous(summary: Summary) -> list[FlowId]:
    """Return the flows of a message that pass a threshold."""
    flows = summary.flows
    names = ("source", "target", "sent", "lost", "count", "mean_ln")
    port = column(flows, "source_port")
    source, target, sent, lost, count, mean_ln = columns(flows, names, len(port)).values()
    slow = (count > 0) & (np.exp(mean_ln) > RTT_NS)
    rows = np.flatnonzero(slow | (lost > LOSS * sent)).tolist()
    return [
        FlowId(summary.endpoints[source[n]], summary.endpoints[target[n]], int(port[n]))
        for n in rows
    ]
