# SPDX-License-Identifier: Apache-2.0
"""Overlay reachability of failing pairs: which questions to ask which agents, and what follows.

Both directions of a pair are walked, since a probe needs both. The walk starts at the source's
host; where it ends in a tunnel, the far host is asked to go on with the very header. An answer
that ends in "cannot tell" blames nobody.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from analyzer.detect.loss import FlowView
from analyzer.localize.evidence import OrderedPair, pair_of, pairs_quoted
from analyzer.localize.facts import Explained
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.path import Component
from netagent.model.verdict import Symptom, Verdict
from netagent.wire.messages import EgressQuestion, IngressQuestion
from ovs_checks.reach import Destination, Reach, compose
from ovs_checks.vni import infer_vni
from ovs_checks.walk import End, LocalWalk

MAX_PAIRS = 32
"""Unordered pairs walked for one window; more fail for the same few reasons."""
PAIRS_PER_GROUP = 2
SIBLINGS = 2
"""Healthy destinations walked beside a failing one: what the source otherwise does."""

ROCE_PORT = 4791
"""UDP destination port of RoCE v2 (IBTA, annex A17)."""

Endpoints = Mapping[EndpointId, Endpoint]
Walks = Mapping[OrderedPair, LocalWalk]


def choose(pairs: Iterable[OrderedPair], endpoints: Endpoints) -> list[OrderedPair]:
    """Return the ordered pairs to walk, both directions of each, spread over host pairs."""
    groups: dict[object, list[OrderedPair]] = defaultdict(list)
    for a, b in sorted({(min(pair), max(pair)) for pair in pairs}):
        groups[_group(a, b, endpoints)].append((a, b))
    chosen = [pair for group in groups.values() for pair in group[:PAIRS_PER_GROUP]]
    return [way for a, b in chosen[:MAX_PAIRS] for way in ((a, b), (b, a))]


def siblings(pairs: Iterable[OrderedPair], flows: Iterable[FlowView]) -> list[OrderedPair]:
    """Return healthy pairs of the same sources, to learn which VNI each source uses."""
    wanted = {source for source, _ in pairs}
    found: dict[EndpointId, list[OrderedPair]] = defaultdict(list)
    for view in flows:
        pair = pair_of(view.flow)
        mine = found[pair[0]]
        if pair[0] in wanted and not view.lost and pair not in mine and len(mine) < SIBLINGS:
            mine.append(pair)
    return [pair for mine in found.values() for pair in mine]


def egress_question(pair: OrderedPair, endpoints: Endpoints, *, port: int) -> EgressQuestion:
    """Return what to ask the source's host."""
    target = endpoints[pair[1]]
    return EgressQuestion(
        source=pair[0],
        target_address=target.address,
        target_mac=target.mac,
        destination_port=probed_port(target, port),
    )


def probed_port(target: Endpoint, port: int) -> int:
    """Return the UDP destination port of probes to `target`; `port` is that of UDP probes."""
    return ROCE_PORT if target.rdma else port


def ingress_question(
    pair: OrderedPair, end: End, endpoints: Endpoints, *, port: int
) -> IngressQuestion:
    """Return what to ask the host that the walk of `pair` tunnels to."""
    source, target = endpoints[pair[0]], endpoints[pair[1]]
    return IngressQuestion(
        rail=target.id.rail,
        tun_src=end.tun_src or source.underlay,
        tun_dst=end.tun_dst,
        tun_id=end.tun_id,
        source_address=source.address,
        source_mac=source.mac,
        target_address=target.address,
        target_mac=target.mac,
        destination_port=probed_port(target, port),
    )


def judge(
    pairs: Sequence[OrderedPair], egress: Walks, ingress: Walks, endpoints: Endpoints
) -> dict[OrderedPair, Reach]:
    """Return whether each walked pair arrives, and the entry that stops it."""
    reaches: dict[OrderedPair, Reach] = {}
    for pair in pairs:
        if pair in egress:
            target = endpoints[pair[1]]
            there = Destination(target.host, target.port, target.underlay)
            reaches[pair] = compose(egress[pair], ingress.get(pair), there)
    for pair, reach in list(reaches.items()):
        back = (pair[1], pair[0])
        if reach.outcome in {"missed", "dropped", "wrong_port"} and back in egress:
            reaches[pair] = _with_vni(pair, reach, egress, ingress, endpoints, reaches.get(back))
    return reaches


def _with_vni(
    pair: OrderedPair,
    reach: Reach,
    egress: Walks,
    ingress: Walks,
    endpoints: Endpoints,
    reverse: Reach | None,
) -> Reach:
    # The far end misses what comes with a wrong VNI, and would be blamed for it.
    back = (pair[1], pair[0])
    opinion = infer_vni(
        egress[pair],
        egress[back],
        forward_siblings=[w for p, w in egress.items() if p[0] == pair[0] and p != pair],
        reverse_siblings=[w for p, w in egress.items() if p[0] == pair[1] and p != back],
        forward_delivered=False,
        reverse_delivered=reverse is not None and reverse.outcome == "delivered",
    )
    if opinion.wrong != "source":
        return reach
    target = endpoints[pair[1]]
    there = Destination(target.host, target.port, target.underlay)
    return compose(egress[pair], ingress.get(pair), there, expected_vni=opinion.expected)


def explain(
    reaches: Mapping[OrderedPair, Reach], failing: Sequence[FlowView], endpoints: Endpoints
) -> tuple[list[Explained], list[str]]:
    """Return a verdict per faulty entry, with the failing flows it accounts for, and what is
    missing where a walk could not tell.
    """  # noqa: D205 - one sentence
    faults: dict[str, list[OrderedPair]] = defaultdict(list)
    missing: list[str] = []
    for pair, reach in reaches.items():
        if reach.outcome == "cannot_tell":
            missing.append(f"overlay walk {pair[0]} -> {pair[1]}: {reach.reason}")
        elif reach.outcome != "delivered" and reach.component:
            faults[reach.component].append(pair)
    explained: list[Explained] = []
    for component, pairs in faults.items():
        groups = {_group(*pair, endpoints) for pair in pairs}
        flows = tuple(
            v for v in failing if _group(v.flow.source, v.flow.target, endpoints) in groups
        )
        explained.append(Explained(_verdict(component, pairs, reaches, flows), flows))
    return explained, missing


def _group(a: EndpointId, b: EndpointId, endpoints: Endpoints) -> object:
    hosts = frozenset((endpoints[a].host, endpoints[b].host))
    return hosts, endpoints[a].task, a.rail


def _verdict(
    component: str,
    pairs: Sequence[OrderedPair],
    reaches: Mapping[OrderedPair, Reach],
    flows: tuple[FlowView, ...],
) -> Verdict:
    reach = reaches[pairs[0]]
    evidence: list[str] = []
    if reach.flow is not None:
        evidence.append(f"flow: {reach.flow.text}")
    if reach.nearest is not None:
        evidence.append(f"nearest flow: {reach.nearest.text}")
    if reach.shadowed is not None:
        evidence.append(f"shadowed flow: {reach.shadowed.text}")
    evidence += [f"walk {pairs[0][0]} -> {pairs[0][1]}:", *reach.tree().splitlines()]
    named = Component.parse(component)
    return Verdict(
        named,
        named.layer,
        Symptom.UNCONNECTIVITY,
        0.97,
        f"{reach.outcome.replace('_', ' ')}: {reach.reason}",
        failing=pairs_quoted(flows),
        evidence=tuple(evidence),
    )
