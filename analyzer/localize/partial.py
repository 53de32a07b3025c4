# SPDX-License-Identifier: Apache-2.0
"""Which part of the traffic a fault hits: only the largest packets, or only some flows of a pair.

A verdict is about the component; this says how it fails, as far as the window's own counts bear it
out. Nothing is said that a single flow contradicts, nor what chance makes: flows of a pair lose
differently much anyway.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from math import comb, log

from analyzer.detect.flows import FlowView, between
from analyzer.localize.case import Case, Explained, OrderedPair, pair_of, unordered, way_of
from analyzer.localize.topology import LearnedTopology
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.path import Component
from netagent.model.verdict import Symptom, Verdict

BY_CHANCE = 1e-4
"""Probability that losses which hit all flows alike fall on so few of them. Chosen: an incident in
ten thousand says so wrongly."""
LEAST_FLOWS = 2
"""Least flows that lose, and that do not. Chosen: one may have a reason of its own."""
MOST_BITS = 3
"""Most bits of a source port that a mask looks at. Chosen: eight ways; more bits fit anything."""
MOST_PORTS = 512
"""Most source ports that are held against masks. Chosen: bounds the work; more tell no more."""
PORT_BITS = 16
MASKED_BY_CHANCE = 1e-3
"""Probability that a mask tells ports that have nothing in common. Chosen: it only adds a detail
to what is said anyway."""
MOST_GROUPS = sum(comb(PORT_BITS, bits) << bits for bits in range(1, MOST_BITS + 1))
"""Choices of ports that masks can tell, at most."""


def told(found: Explained, case: Case, topology: LearnedTopology) -> Explained:
    """Return a verdict on losses with what tells which part of the traffic they hit."""
    verdict = found.verdict
    if verdict.symptom not in (Symptom.LOSS, Symptom.UNCONNECTIVITY) or not verdict.failing:
        return found
    pairs = {(pair.source, pair.target) for pair in verdict.failing}
    both = set(map(unordered, pairs))
    views = [view for _, view in between(both, case.flows) if pair_of(view.flow) in pairs]
    evidence = [_sized(each, found.flows, case) for each in verdict.evidence]
    if (some := _some_ports(views, verdict, case, topology)) is not None:
        evidence.append(some)
    return replace(found, verdict=replace(verdict, evidence=tuple(evidence)))


def _sized(evidence: Evidence | str, flows: Sequence[FlowView], case: Case) -> Evidence | str:
    """Return evidence that only the largest packets are lost, with their size and the counts."""
    if not isinstance(evidence, Evidence) or evidence.kind is not EvidenceKind.LARGE_ONLY:
        return evidence
    lossy = [view for view in flows if view.lost]
    ends = [
        case.endpoints[view.flow.source] for view in lossy if view.flow.source in case.endpoints
    ]
    lost, lost_large = sum(v.lost for v in lossy), sum(v.lost_large for v in lossy)
    if not lossy or lost != lost_large or len(ends) < len(lossy) or any(e.rdma for e in ends):
        return evidence  # an RDMA device has an MTU of its own, and cuts its packets to it
    sent, large = sum(v.sent for v in lossy), sum(v.sent_large for v in lossy)
    values = {"bytes": min(e.mtu for e in ends), "lost": lost, "sent": large, "small": sent - large}
    return replace(evidence, values=values)


def _some_ports(
    views: Iterable[FlowView], verdict: Verdict, case: Case, topology: LearnedTopology
) -> Evidence | None:
    lossy, clean = divided(views)
    if not is_some(lossy, clean):
        return None
    mask, value = mask_of(
        {view.flow.source_port for view in lossy}, {view.flow.source_port for view in clean}
    )
    crossed = _crossed_by_all(lossy, clean, verdict.component, case, topology)
    values = {
        "flows": len(lossy), "lost": sum(v.lost for v in lossy), "sent": sum(v.sent for v in lossy),
        "pairs": len({pair_of(view.flow) for view in lossy}),
        "clean": len(clean), "clean_sent": sum(v.sent for v in clean),
        "mask": mask, "value": value, "component": str(verdict.component) if crossed else "",
    }  # fmt: skip
    return Evidence(EvidenceKind.SOME_PORTS, values)


def divided(views: Iterable[FlowView]) -> tuple[list[FlowView], list[FlowView]]:
    """Return the flows that lose and those that do not, of pairs that have both."""
    by_pair: dict[OrderedPair, list[FlowView]] = {}
    for view in views:
        by_pair.setdefault(pair_of(view.flow), []).append(view)
    both = [
        flows
        for flows in by_pair.values()
        if any(v.lost for v in flows) and not all(v.lost for v in flows)
    ]
    every = [view for flows in both for view in flows]
    return [v for v in every if v.lost], [v for v in every if not v.lost]


def is_some(lossy: Sequence[FlowView], clean: Sequence[FlowView]) -> bool:
    """Return whether losses that hit all of these flows alike would not fall on so few.

    Of all choices of as many flows, each has to take all losses: a union bound.
    """
    if min(len(lossy), len(clean)) < LEAST_FLOWS:
        return False
    count, some = len(lossy) + len(clean), len(lossy)
    sent = sorted(view.sent for view in (*lossy, *clean))
    share = sum(sent[-some:]) / sum(sent)  # of the choice that losses hit most easily
    lost = sum(view.lost for view in lossy)
    return log(comb(count, some)) + lost * log(share) < log(BY_CHANCE)


def mask_of(lossy: Collection[int], clean: Collection[int]) -> tuple[int, int]:
    """Return the mask, of the fewest bits, and the value under it of exactly the ports that lose.

    (0, 0) where none tells them, or where some mask would tell as many ports of any choice.
    """
    ports = sorted({*lossy, *clean})
    if not lossy or not clean or set(lossy) & set(clean) or len(ports) > MOST_PORTS:
        return 0, 0
    first = min(lossy)
    differ = 0
    for port in lossy:
        differ |= port ^ first
    for mask in _masks():
        if mask & differ or any(port & mask == first & mask for port in clean):
            continue
        return (mask, first & mask) if _telling(ports, len(set(lossy))) else (0, 0)
    return 0, 0


def _telling(ports: Sequence[int], some: int) -> bool:
    """Return whether few choices of so many ports could be told by a mask."""
    choices = comb(len(ports), some)
    if choices * MASKED_BY_CHANCE > MOST_GROUPS:
        return True
    reachable: set[frozenset[int]] = set()
    for mask in _masks():
        groups: dict[int, set[int]] = {}
        for port in ports:
            groups.setdefault(port & mask, set()).add(port)
        reachable.update(frozenset(group) for group in groups.values() if len(group) == some)
    return len(reachable) < choices * MASKED_BY_CHANCE


def _masks() -> Iterable[int]:
    for bits in range(1, MOST_BITS + 1):
        for chosen in combinations(range(PORT_BITS), bits):
            yield sum(1 << bit for bit in chosen)


def _crossed_by_all(
    lossy: Sequence[FlowView],
    clean: Sequence[FlowView],
    component: Component | None,
    case: Case,
    topology: LearnedTopology,
) -> bool:
    """Return whether exactly the flows that lose cross the component, all ways being known."""
    if component is None:
        return False
    ways = [(way_of(view, case, topology), bool(view.lost)) for view in [*lossy, *clean]]
    return all(way.whole and (component in way.certain) is lost for way, lost in ways)
