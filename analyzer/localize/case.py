# SPDX-License-Identifier: Apache-2.0
"""One closed window as localisers see it: what was observed, and what is explained so far."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from heapq import nsmallest

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.flows import Flows, FlowView
from analyzer.detect.held import JobVerdict
from analyzer.intake.flows import FlowNumbers
from analyzer.intent.differences.contract import Difference
from analyzer.localize.own import parts_of_host
from analyzer.localize.routes import NO_ROUTE
from analyzer.localize.topology import LearnedTopology, Way
from analyzer.questions import Failed
from analyzer.roster.registry import Awaited
from netagent.model.anomaly import Subject
from netagent.model.endpoint import Endpoint
from netagent.model.finding import Finding
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component
from netagent.model.verdict import Pair, Symptom, Verdict
from netagent.model.window import Window

OrderedPair = tuple[EndpointId, EndpointId]
Endpoints = Mapping[EndpointId, Endpoint]
Shift = tuple[float, float]
"""A slow flow's round trip (ns) in healthy windows, and now."""
OF_ONE = {Symptom.SILENCE, Symptom.DELAY, Symptom.MISSING, Symptom.MASKED, Symptom.HELD_UP}
"""Symptoms of a component, and of no pair."""
MAX_PAIRS_QUOTED = 64
"""Most pairs that one verdict quotes. Chosen: enough to recognise an incident by, short enough to
store and read."""


@dataclass(frozen=True, slots=True)
class Explained:
    """A verdict and the flows that it accounts for, which may be none."""

    verdict: Verdict
    flows: tuple[FlowView, ...]


@dataclass(slots=True)
class Case:
    """A window's probes between active endpoints, what hosts said beside them, what is explained.

    Localisers take it one after the other; each sees in `rest` what those before it left.
    """

    window: Window
    endpoints: Endpoints
    """Active throughout the window."""
    flows: Flows
    findings: tuple[Finding, ...] = ()
    numbers: FlowNumbers | None = None
    """Those of the flows; None where they have none."""
    silent: Mapping[str, Failed | None] = field(default_factory=dict)
    """Host whose agent sent no summary -> how its RPC fails; None where it answers."""
    slow: Mapping[FlowId, Shift] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=dict)
    """Hosts that take long to send or to answer probes -> nanoseconds on average."""
    shared_silence: bool = False
    """Whether most hosts are silent at once, though their agents do not refuse."""
    clocks: Mapping[str, int] = field(default_factory=dict)
    """Silent hosts that answer with a wrong clock -> nanoseconds that it is ahead, at least."""
    absent: tuple[Awaited, ...] = ()
    """Declared containers that never came."""
    now_ns: int = 0
    """When the window was closed, Unix nanoseconds."""
    standing: frozenset[Component] = frozenset()
    """Components with an open incident."""
    mute: AbstractSet[str] = frozenset()
    """Hosts whose agents could not answer probes in all of the window: what is lost proves
    nothing."""
    tired: AbstractSet[str] = frozenset()
    """Hosts too busy to be asked for a trace."""
    healing: AbstractSet[OrderedPair] = frozenset()
    """Unordered pairs whose losses were explained a window ago, or two, where they were dead since.
    """
    differences: tuple[Difference, ...] = ()
    """Where hosts have not what their controllers want."""
    jobs: tuple[JobVerdict, ...] = ()
    """What jobs say of themselves."""
    is_driven: bool = False
    """Whether what a controller wants can be asked for."""
    dead: frozenset[Component] = frozenset()
    """Components that lose all that crosses them, by the vote on losses."""
    excused: set[OrderedPair] = field(default_factory=set)
    """Unordered pairs that a policy keeps apart, or what changes just now: nobody is at fault."""
    explained: list[Explained] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Evidence that could not be had."""
    rest: Flows = field(init=False)
    """Flows that no verdict accounts for."""
    _parts: dict[EndpointId, frozenset[Component]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.rest = self.flows

    def explain(self, found: Iterable[Explained]) -> None:
        """Take these flows out of what is left."""
        found = list(found)
        self.explained += found
        taken = {view.flow for each in found for view in each.flows}
        if taken:
            self.rest = self.rest.without(taken)

    def cover(self, numbers: NDArray[np.int64]) -> None:
        """Take the flows of these numbers, in `flows.numbers`, out of what is left."""
        self.rest = self.rest.only(~np.isin(self.rest.number, numbers))

    def amend(self, given: Explained, now: Explained | None) -> None:
        """Put a verdict in the place of one that was given; None takes it away."""
        kept = [now if each is given else each for each in self.explained]
        self.explained = [each for each in kept if each is not None]

    def votable(self) -> Flows:
        """Return the flows whose losses say something of what they cross.

        What was explained a window ago and is no more has just been healed, and the rest of its
        losses are in this window. A mute agent could not answer.
        """
        rest = self.rest
        if self.mute:
            mute = [key for key, end in self.endpoints.items() if end.host in self.mute]
            rest = rest.only(~rest.of_any(mute))
        return rest.outside(self.healing)

    def own_parts(self, key: EndpointId) -> frozenset[Component]:
        """Return what all packets of an endpoint cross on its own host."""
        parts = self._parts.get(key)
        if parts is None:
            parts = self._parts[key] = parts_of_host(self.endpoints[key])
        return parts

    def of_hosts(self, hosts: AbstractSet[str]) -> tuple[FlowView, ...]:
        """Return the flows that begin or end on any of these hosts."""
        ends = [key for key, end in self.endpoints.items() if end.host in hosts]
        return tuple(self.flows.where(self.flows.of_any(ends)))

    def hosts(self, pair: OrderedPair) -> set[str]:
        """Return the hosts of a pair's ends, as far as they are known."""
        return {self.endpoints[key].host for key in pair if key in self.endpoints}


def is_switched(pair: OrderedPair, endpoints: Endpoints) -> bool:
    """Whether virtual switches carry both ends of a pair: else there are no tables to ask."""
    return all(endpoints[key].bridge for key in pair if key in endpoints)


def pair_of(flow: FlowId) -> OrderedPair:
    """Return the ordered pair of a flow."""
    return flow.source, flow.target


def unordered(pair: OrderedPair) -> OrderedPair:
    """Return the pair, smaller endpoint first."""
    return (pair[0], pair[1]) if pair[0] <= pair[1] else (pair[1], pair[0])


def subjects_of(verdict: Verdict) -> frozenset[Subject]:
    """Return what deviates by a verdict: failing pairs, or a part silent, late, missing, masked."""
    if verdict.symptom in OF_ONE and verdict.component is not None:
        return frozenset({verdict.component})  # what its peers lost meanwhile is not it
    return frozenset(unordered((pair.source, pair.target)) for pair in verdict.failing)


def way_of(view: FlowView, case: Case, topology: LearnedTopology) -> Way:
    """Return what a flow's probes and replies crossed in the window, host to host and back."""
    flow = view.flow
    ends = (case.endpoints[flow.source], case.endpoints[flow.target])
    way = topology.way(flow, ends, at_ns=case.window.start_ns, lost=view.lost > 0)
    own = case.own_parts(flow.source) | case.own_parts(flow.target)
    return Way(way.certain | own, way.maybe, way.unseen, way.legs)


def ways_of(flows: Flows, case: Case, topology: LearnedTopology) -> Iterator[Way]:
    """Yield `way_of` of each of some flows."""
    at_ns, end = case.window.start_ns, flows.numbers.endpoint
    there, back = topology.unmoved(flows.number, flows.numbers, flows.lost > 0, at_ns=at_ns)
    rows = zip(there.tolist(), back.tolist(), flows.ends.T.tolist(), strict=True)
    for view, (go, come, (source, target)) in zip(flows, rows, strict=True):
        if go == NO_ROUTE:
            yield way_of(view, case, topology)
            continue
        way = topology.way_on(go, come)
        own = case.own_parts(end(source)) | case.own_parts(end(target))
        yield Way(way.certain | own, way.maybe, way.unseen, way.legs)


def pairs_quoted(flows: Iterable[FlowView]) -> tuple[Pair, ...]:
    """Return the flows summed by ordered pair, at most MAX_PAIRS_QUOTED: most losses first."""
    sums: dict[OrderedPair, list[int]] = defaultdict(lambda: [0, 0])
    for view in flows:
        tally = sums[pair_of(view.flow)]
        tally[0] += view.sent
        tally[1] += view.lost
    most = nsmallest(
        MAX_PAIRS_QUOTED, sums.items(), key=lambda item: (-item[1][1], item[1][0], item[0])
    )
    return tuple(Pair(*pair, sent, lost) for pair, (sent, lost) in most)
