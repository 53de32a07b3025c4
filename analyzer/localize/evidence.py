# SPDX-License-Identifier: Apache-2.0
"""What is known of one closed window, before anybody is blamed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from analyzer.detect.loss import FlowView
from analyzer.localize.topology import LearnedTopology
from netagent.model.endpoint import Endpoint
from netagent.model.finding import Finding
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, Kind, rnic
from netagent.model.verdict import Pair
from netagent.model.window import Window

OrderedPair = tuple[EndpointId, EndpointId]
MAX_PAIRS_QUOTED = 64


@dataclass(frozen=True, slots=True)
class Evidence:
    """A window's probes between active endpoints, and what hosts said beside them."""

    window: Window
    endpoints: Mapping[EndpointId, Endpoint]
    """Active throughout the window."""
    flows: tuple[FlowView, ...]
    findings: tuple[Finding, ...]
    silent: Mapping[str, str]
    """Host whose agent sent no summary -> how its RPC answers: `refused`, `timeout`, …."""
    slow: Mapping[FlowId, tuple[float, float]] = field(default_factory=dict)
    """Flow -> round trip in healthy windows and now, ns: of the mean or the least."""


def pair_of(flow: FlowId) -> OrderedPair:
    """Return the ordered pair of a flow."""
    return flow.source, flow.target


def unordered(pair: OrderedPair) -> OrderedPair:
    """Return the pair, smaller endpoint first."""
    return (pair[0], pair[1]) if pair[0] <= pair[1] else (pair[1], pair[0])


def components_of(
    flow: FlowId, endpoints: Mapping[EndpointId, Endpoint], topology: LearnedTopology
) -> frozenset[Component]:
    """Return what a flow's probes and replies cross, host to host and back."""
    crossed = set(topology.crossed(flow) or ())
    for key in (flow.source, flow.target):
        endpoint = endpoints[key]
        crossed.add(rnic(endpoint.host, endpoint.rnic))
        crossed.add(Component(Kind.HOST, endpoint.host))
        crossed.add(Component(Kind.CONTAINER, key.container))
        crossed.add(Component(Kind.ENDPOINT, str(key)))
    return frozenset(crossed)


def own_rnics(flow: FlowId, endpoints: Mapping[EndpointId, Endpoint]) -> frozenset[Component]:
    """Return the RDMA devices of a flow's two endpoints.

    No vote is held on them: probes cannot tell an endpoint from the only device it has. Their
    hosts' findings can.
    """
    ends = (endpoints[key] for key in (flow.source, flow.target))
    return frozenset(rnic(end.host, end.rdma.device) for end in ends if end.rdma)


def pairs_quoted(flows: Iterable[FlowView]) -> tuple[Pair, ...]:
    """Return the flows summed by ordered pair, worst first, at most MAX_PAIRS_QUOTED."""
    sums: dict[OrderedPair, list[int]] = defaultdict(lambda: [0, 0])
    for view in flows:
        tally = sums[pair_of(view.flow)]
        tally[0] += view.sent
        tally[1] += view.lost
    pairs = [Pair(*pair, sent, lost) for pair, (sent, lost) in sums.items()]
    pairs.sort(key=lambda p: (-p.lost / max(1, p.sent), p.source, p.target))
    return tuple(pairs[:MAX_PAIRS_QUOTED])
