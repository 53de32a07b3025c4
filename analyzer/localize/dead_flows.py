# SPDX-License-Identifier: Apache-2.0
"""Overlay reachability of dead flows whose pair still talks: an entry that drops some ports only.

Most such flows die with a link or switch of the underlay, and there are thousands of them at once.
So a few are walked, with their own ports, each time others. Where the tables deliver them, those
that were dead already are walked later and later; what dies anew is walked at once.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from analyzer.detect.flows import Flows, FlowView, unconnected_pairs
from analyzer.localize import walks
from analyzer.localize.case import (
    Case,
    Endpoints,
    Explained,
    OrderedPair,
    is_switched,
    pair_of,
    unordered,
)
from analyzer.localize.contract import Context
from analyzer.localize.overlay import verdict_of
from analyzer.localize.walks import Question
from analyzer.questions import Asking
from netagent.model.ids import FlowId
from netagent.model.path import Component
from ovs_checks.openflow.addresses import canonical
from ovs_checks.walk.reach import Reach, compose

MAX_FLOWS = 8
"""Most dead flows walked in one window. Chosen: what drops some ports of one pair drops them each
window, and every flow costs four questions."""
REST_NS = 5_000_000_000
MOST_REST_NS = 60_000_000_000
"""Nanoseconds until flows are walked again after the tables delivered all that were: a window, then
twice as long each time, a minute at most. Chosen: the underlay is then what is at fault."""


Lane = tuple[OrderedPair, int, int]
"""Packets of one flow one way: from where to where, and their UDP source and destination port."""


class DeadFlows:
    """Walks dead flows of pairs that still talk by other ports."""

    settles = True

    def __init__(self, context: Context) -> None:
        self._context = context
        self._walked_ns: dict[FlowId, int] = {}
        """Dead flow -> when it was last walked."""
        self._rest_ns = 0
        self._until_ns = 0

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return a verdict per entry that stops packets of some ports."""
        dead = [
            view
            for view in partly_dead(case.votable())
            if is_switched(pair_of(view.flow), case.endpoints)
        ]
        known = self._walked_ns
        self._walked_ns = {v.flow: known.get(v.flow, 0) for v in dead}
        if not dead:
            self._rest_ns = self._until_ns = 0
        rests = case.now_ns < self._until_ns
        chosen = self._choose([v for v in dead if not rests or v.flow not in known], case.endpoints)
        if not chosen:
            return []
        self._walked_ns |= {view.flow: case.now_ns for view in chosen}
        reaches = yield from self._reaches([view.flow for view in chosen], case)
        explained = explain(reaches, dead)
        if not rests or explained:
            self._rest_ns = 0 if explained else min(max(REST_NS, 2 * self._rest_ns), MOST_REST_NS)
            self._until_ns = case.now_ns + self._rest_ns
        return explained

    def _reaches(self, flows: Iterable[FlowId], case: Case) -> Asking[dict[Lane, Reach]]:
        """Return where probes of `flows`, and replies to them, end."""
        endpoints, roster = case.endpoints, self._context.roster
        lanes = [lane for flow in flows for lane in self._lanes(flow, endpoints)]
        asked: dict[Lane, tuple[str, Question]] = {}
        for lane in lanes:
            pair, source_port, port = lane
            asked[lane] = (
                endpoints[pair[0]].host,
                walks.egress_question(pair, endpoints, port=port, source_port=source_port),
            )
        missing: list[str] = []
        egress = yield from walks.batched(asked, missing)
        asked = {}
        for lane, walk in egress.items():
            pair, source_port, port = lane
            end = walk.tunnelled_to({canonical(endpoints[pair[1]].underlay)})
            far = roster.host_of_underlay(end.tun_dst) if end else None
            if end is not None and far is not None:
                question = walks.ingress_question(
                    pair, end, endpoints, port=port, source_port=source_port
                )
                asked[lane] = (far[0], question)
        ingress = yield from walks.batched(asked, missing)
        reaches = {
            lane: compose(walk, ingress.get(lane), walks.expected(endpoints[lane[0][1]]))
            for lane, walk in egress.items()
        }
        untold = [
            f"overlay walk {pair[0]} -> {pair[1]}: {reach.reason}"
            for (pair, _, _), reach in reaches.items()
            if reach.outcome == "cannot_tell"
        ]
        case.missing += dict.fromkeys([*missing, *(untold if not missing else [])])
        return reaches

    def _lanes(self, flow: FlowId, endpoints: Endpoints) -> list[Lane]:
        """Return a flow's probes and, where their ports are known, the replies to them."""
        port = self._context.probe_port
        there, back = pair_of(flow), (flow.target, flow.source)
        if endpoints[flow.source].rdma or endpoints[flow.target].rdma:
            return [(there, flow.source_port, port)]  # who replies chooses another source port
        return [(there, flow.source_port, port), (back, port, flow.source_port)]

    def _choose(self, dead: Iterable[FlowView], endpoints: Endpoints) -> list[FlowView]:
        """Return those longest not walked, of as many pairs of hosts as there are."""
        groups: dict[object, list[FlowView]] = defaultdict(list)
        for view in sorted(dead, key=lambda v: (self._walked_ns[v.flow], -v.run, v.flow.order)):
            groups[frozenset(endpoints[end].host for end in pair_of(view.flow))].append(view)
        chosen: list[FlowView] = []
        turns = sorted(groups.values(), key=lambda views: self._walked_ns[views[0].flow])
        while len(chosen) < MAX_FLOWS and any(turns):
            chosen += [views.pop(0) for views in turns if views]
        return chosen[:MAX_FLOWS]


def partly_dead(flows: Flows) -> list[FlowView]:
    """Return the dead flows of pairs that are not dead."""
    dead = flows.where(flows.unconnected)
    if not dead:
        return []
    pairs = unconnected_pairs(flows)
    return [view for view in dead if pair_of(view.flow) not in pairs]


def explain(reaches: Mapping[Lane, Reach], dead: Iterable[FlowView]) -> list[Explained]:
    """Return a verdict per entry that stops packets, with the dead flows between its endpoints."""
    faults: dict[Component, dict[OrderedPair, Reach]] = defaultdict(dict)
    for (pair, _, _), reach in reaches.items():
        if reach.outcome not in {"delivered", "cannot_tell"} and reach.component:
            faults[reach.component][pair] = reach
    explained = []
    for component, by_pair in faults.items():
        ends = {unordered(pair) for pair in by_pair}
        flows = tuple(v for v in dead if unordered(pair_of(v.flow)) in ends)
        explained.append(Explained(verdict_of(component, list(by_pair), by_pair, flows), flows))
    return explained
