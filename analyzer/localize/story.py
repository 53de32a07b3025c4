# SPDX-License-Identifier: Apache-2.0
"""A diagnosis of one pair, as a tree of sentences."""

from collections.abc import Iterable, Mapping, Sequence

from analyzer.detect.flows import FlowView
from analyzer.localize.case import OrderedPair
from analyzer.localize.sentences import sentences
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.validating.judge import Compared
from netagent.model.ids import EndpointId
from netagent.model.path import Component
from netagent.model.verdict import Incident
from ovs_checks.walk.reach import Reach

Tree = dict[str, object]
"""One node of the tree: its `text`, and its `children`."""


def tell(
    pairs: Sequence[OrderedPair],
    reaches: Mapping[OrderedPair, Reach],
    missing: Sequence[str],
    flows: Iterable[FlowView],
    topology: LearnedTopology,
    incidents: Iterable[Incident],
    compared: Sequence[Compared] = (),
    bare: Sequence[EndpointId] = (),
) -> dict[str, object]:
    """Return what both directions' walks, the newest probes and open incidents say of a pair.

    Where hosts compared the copies of their flow tables, also what that showed. `bare` are the ends
    that no virtual switch carries.
    """
    children = [_overlay(pair, reaches.get(pair), missing) for pair in pairs]
    lines = [_leaf(_flow_line(view, topology)) for view in flows]
    why = f" (not traced: no virtual switch carries {' and '.join(map(str, bare))})" if bare else ""
    children.append({"text": f"underlay, newest window{why}", "children": lines})
    children += [_comparison(each) for each in compared]
    outcome, component, text = _conclusion(pairs[0], reaches, missing, incidents, compared)
    return {
        "source": str(pairs[0][0]),
        "target": str(pairs[0][1]),
        "outcome": outcome,
        "component": str(component) if component else None,
        "layer": component.layer if component else None,
        "text": text,
        "tree": children,
    }


def untold(pair: OrderedPair, why: str) -> dict[str, object]:
    """Return what `tell` would of a pair that could not be looked at."""
    nothing: dict[str, object] = {"component": None, "layer": None, "tree": [], "observations": []}
    ends = {"source": str(pair[0]), "target": str(pair[1])}
    return {**ends, "outcome": "cannot_tell", "text": why, **nothing}


def _conclusion(
    pair: OrderedPair,
    reaches: Mapping[OrderedPair, Reach],
    missing: Sequence[str],
    incidents: Iterable[Incident],
    compared: Sequence[Compared],
) -> tuple[str, Component | None, str]:
    for reach in reaches.values():
        if reach.outcome != "delivered":
            return reach.outcome, reach.component, reach.reason
    for each in compared:
        if each.accused is not None:
            found = each.accused.finding
            return "inconsistent", each.accused.component, f"{found.check}: {found.text}"
    for incident in incidents:
        concerned = any({p.source, p.target} == set(pair) for p in incident.verdict.failing)
        if incident.recovered_ns is None and concerned and incident.verdict.component:
            return "incident", incident.verdict.component, incident.verdict.summary
    if missing or not reaches:
        return "cannot_tell", None, "; ".join(missing)
    return "delivered", None, "the overlay delivers both ways"


def _overlay(pair: OrderedPair, reach: Reach | None, missing: Sequence[str]) -> Tree:
    outline = reach.outline if reach else [(0, "not walked: " + "; ".join(missing))]
    return {"text": f"{pair[0]} -> {pair[1]} (overlay)", "children": _nested(outline)}


def _comparison(compared: Compared) -> Tree:
    lines = sentences([compared.said]) if compared.said else []
    lines += [f"not compared: {compared.why}"] if compared.why else []
    text = f"flow tables, datapath and RNIC of {compared.host}"
    return {"text": text, "children": [_leaf(line) for line in lines]}


def _nested(outline: Sequence[tuple[int, str]]) -> list[Tree]:
    """Return lines with their depths as a tree; a line stands below the last one less deep."""
    roots: list[Tree] = []
    open_: list[tuple[int, list[Tree]]] = [(-1, roots)]
    for level, text in outline:
        while open_[-1][0] >= level:
            open_.pop()
        children: list[Tree] = []
        open_[-1][1].append({"text": text, "children": children})
        open_.append((level, children))
    return roots


def _leaf(text: str) -> Tree:
    return {"text": text, "children": []}


def _flow_line(view: FlowView, topology: LearnedTopology) -> str:
    hops = topology.hops(view.flow, reply=False)
    way = " > ".join(hop or "?" for hop in hops) if hops else "not traced"
    return f"port {view.flow.source_port}: {view.lost}/{view.sent} lost, {way}"
