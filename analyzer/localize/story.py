# SPDX-License-Identifier: Apache-2.0
"""A diagnosis of one pair, told as a tree."""

from collections.abc import Iterable, Mapping, Sequence

from analyzer.detect.loss import FlowView
from analyzer.localize.evidence import OrderedPair
from analyzer.localize.topology import LearnedTopology
from netagent.model.path import Component
from netagent.model.verdict import Incident
from ovs_checks.reach import Reach

Tree = dict[str, object]
"""`text` and `children`."""


def tell(
    pairs: Sequence[OrderedPair],
    reaches: Mapping[OrderedPair, Reach],
    missing: Sequence[str],
    flows: Iterable[FlowView],
    topology: LearnedTopology,
    incidents: Iterable[Incident],
) -> dict[str, object]:
    """Return what both directions' walks, the newest probes and open incidents say of a pair."""
    children = [_overlay(pair, reaches.get(pair), missing) for pair in pairs]
    lines = [_leaf(_flow_line(view, topology)) for view in flows]
    children.append({"text": "underlay, newest window", "children": lines})
    outcome, component, text = _conclusion(pairs[0], reaches, missing, incidents)
    return {
        "source": str(pairs[0][0]),
        "target": str(pairs[0][1]),
        "outcome": outcome,
        "component": component or None,
        "layer": Component.parse(component).layer if component else None,
        "text": text,
        "tree": children,
    }


def _conclusion(
    pair: OrderedPair,
    reaches: Mapping[OrderedPair, Reach],
    missing: Sequence[str],
    incidents: Iterable[Incident],
) -> tuple[str, str, str]:
    for reach in reaches.values():
        if reach.outcome != "delivered":
            return reach.outcome, reach.component, reach.reason
    for incident in incidents:
        concerned = any({p.source, p.target} == set(pair) for p in incident.verdict.failing)
        if incident.recovered_ns is None and concerned and incident.verdict.component:
            return "incident", str(incident.verdict.component), incident.verdict.summary
    if missing or not reaches:
        return "cannot_tell", "", "; ".join(missing)
    return "delivered", "", "the overlay delivers both ways"


def _overlay(pair: OrderedPair, reach: Reach | None, missing: Sequence[str]) -> Tree:
    text = reach.tree() if reach else "not walked: " + "; ".join(missing)
    lines = [_leaf(line) for line in text.splitlines()]
    return {"text": f"{pair[0]} -> {pair[1]} (overlay)", "children": lines}


def _leaf(text: str) -> Tree:
    return {"text": text, "children": []}


def _flow_line(view: FlowView, topology: LearnedTopology) -> str:
    hops = topology.hops(view.flow, reply=False)
    way = " > ".join(hop or "?" for hop in hops) if hops else "not traced"
    return f"port {view.flow.source_port}: {view.lost}/{view.sent} lost, {way}"
