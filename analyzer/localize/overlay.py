# SPDX-License-Identifier: Apache-2.0
"""Overlay reachability of failing pairs: which questions to ask which agents, and what follows.

Both directions of a pair are walked, since a probe needs both. The walk starts at the source's
host; where it ends in a tunnel, the far host is asked to go on with the very header. An answer
that ends in "cannot tell" blames nobody.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from analyzer.detect.flows import Flows, FlowView, unconnected_pairs
from analyzer.localize import intended, walks
from analyzer.localize.case import (
    Case,
    Endpoints,
    Explained,
    OrderedPair,
    is_switched,
    pair_of,
    pairs_quoted,
    unordered,
)
from analyzer.localize.contract import Context
from analyzer.localize.tracing.doubts import Walked
from analyzer.questions import Asking
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind
from netagent.model.verdict import Symptom, Verdict
from ovs_checks.openflow.addresses import canonical, destination
from ovs_checks.translate.ends import Quote
from ovs_checks.walk.hops import hops
from ovs_checks.walk.reach import Reach, compose
from ovs_checks.walk.values import LocalWalk
from ovs_checks.walk.vni import infer_vni, may_differ, options_agree

MAX_PAIRS = 32
"""Most unordered pairs walked in one window. Chosen: bounds the load on hosts; more pairs fail for
the same few reasons."""
PAIRS_PER_GROUP = 2
"""Most unordered pairs walked per task, rail and pair of hosts. Chosen: one may be an exception,
and a third adds little."""
SIBLINGS = 2
"""Most healthy destinations walked beside each failing source. Chosen: they show the VNI that the
source otherwise uses; two show whether it is always the same."""

UNTOLD = "whether the controller wants this: it could not be asked in time"
UNTOLD_CONFIDENCE = 0.9
"""Confidence in an entry of which its controller says nothing. Chosen: less than a fact's, since a
policy may intend it; what is known later revises it."""

Walks = Mapping[OrderedPair, LocalWalk]
_ANY: walks.Ports = {}


class Overlay:
    """Walks pairs that cannot talk through both hosts' flow tables."""

    settles = True

    def __init__(self, context: Context) -> None:
        self._context = context
        self._apart = intended.Apart()

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return a verdict per entry that stops packets; `case.missing` gets what was not read."""
        doubts = self._context.doubts
        flows = doubts.walkable(case, case.rest)
        dead = [pair for pair in unconnected_pairs(flows) if is_switched(pair, case.endpoints)]
        pairs = choose(dead, case.endpoints)
        if not pairs:
            doubts.walked = Walked()
            return []
        beside = [
            pair
            for pair in siblings(pairs, flows)
            if pair not in pairs and is_switched(pair, case.endpoints)
        ]
        reaches, egress, ingress, missing = yield from reaches_of(
            pairs, beside, case.endpoints, self._context, source_ports_of([*pairs, *beside], flows)
        )
        doubtful: set[OrderedPair] = set()
        if case.is_driven:
            reaches, doubtful = yield from self._intended(case, pairs, reaches, egress, ingress)
        failing = flows.where(flows.lost > 0)
        explained, untold = explain(reaches, failing, case.endpoints, doubtful)
        case.missing += [*missing, *untold]
        doubts.walked = Walked(reaches, egress)
        return explained

    def _intended(
        self,
        case: Case,
        pairs: Iterable[OrderedPair],
        reaches: Mapping[OrderedPair, Reach],
        egress: Walks,
        ingress: Walks,
    ) -> Asking[tuple[dict[OrderedPair, Reach], set[OrderedPair]]]:
        """Return what is at fault by the controller too; who is refused is out of the case.

        And the pairs of which it did not say whether it wants that.
        """
        read, said = yield from intended.read(reaches, egress, ingress, case.missing)
        still = self._apart.saw(pairs, read, said, case.window.start_ns)
        refused = still | {unordered(pair) for pair, reach in read.items() if reach is None}
        if refused:
            case.cover(case.rest.only(case.rest.between(refused)).number)
            case.excused |= refused
        stays = {
            pair: reach
            for pair, reach in read.items()
            if reach is not None and unordered(pair) not in still
        }
        untold = {pair for pair, meaning in said.items() if meaning == intended.UNTOLD}
        return intended.astray(stays, case.endpoints, case.differences), untold


def reaches_of(
    pairs: Sequence[OrderedPair],
    beside: Sequence[OrderedPair],
    endpoints: Endpoints,
    context: Context,
    source_ports: walks.Ports = _ANY,
    packets: walks.Packets = walks.PROBES,
) -> Asking[tuple[dict[OrderedPair, Reach], Walks, Walks, list[str]]]:
    """Ask for the walks of `pairs`, of those `beside` for comparison; judge what arrives.

    Pairs that no virtual switches carry are not asked about.

    Returns where each walked pair ends, the walks through the sources' hosts and through the
    targets', and whose flow tables could not be read.
    """
    bare = sorted({key for pair in pairs for key in pair if not endpoints[key].bridge})
    missing = [f"flow tables: no virtual switch carries {key}" for key in bare]
    pairs = [pair for pair in pairs if is_switched(pair, endpoints)]
    port = context.probe_port
    egress = yield from walks.egress(
        [*pairs, *beside], endpoints, port, missing, source_ports, packets
    )
    roster = context.roster
    ingress = yield from walks.ingress(
        pairs, egress, endpoints, roster, port, missing, source_ports, packets
    )
    return judge(pairs, egress, ingress, endpoints), egress, ingress, missing


def choose(pairs: Iterable[OrderedPair], endpoints: Endpoints) -> list[OrderedPair]:
    """Return the ordered pairs to walk, both directions of each, spread over host pairs."""
    groups: dict[object, list[OrderedPair]] = defaultdict(list)
    for a, b in sorted({(min(pair), max(pair)) for pair in pairs}):
        groups[_group(a, b, endpoints)].append((a, b))
    chosen = [pair for group in groups.values() for pair in group[:PAIRS_PER_GROUP]]
    return [way for a, b in chosen[:MAX_PAIRS] for way in ((a, b), (b, a))]


def source_ports_of(pairs: Collection[OrderedPair], flows: Flows) -> dict[OrderedPair, int]:
    """Return a source port for each of these pairs: that of a dead flow, if it has one."""
    mine = flows.where(flows.between(pairs, ordered=True))
    ordered = sorted(mine, key=lambda view: view.run)
    return {pair_of(view.flow): view.flow.source_port for view in ordered}


def siblings(pairs: Iterable[OrderedPair], flows: Flows) -> list[OrderedPair]:
    """Return healthy pairs of the same sources, to learn which VNI each source uses."""
    wanted = {source for source, _ in pairs}
    found: dict[EndpointId, list[OrderedPair]] = defaultdict(list)
    for view in flows.where(flows.of_any(wanted) & (flows.lost == 0)):
        source = view.flow.source
        if source not in wanted or len(found[source]) == SIBLINGS:
            continue
        if (pair := pair_of(view.flow)) not in found[source]:
            found[source].append(pair)
    return [pair for mine in found.values() for pair in mine]


def judge(
    pairs: Sequence[OrderedPair], egress: Walks, ingress: Walks, endpoints: Endpoints
) -> dict[OrderedPair, Reach]:
    """Return whether each walked pair arrives, and the entry that stops it."""
    reaches: dict[OrderedPair, Reach] = {}
    for pair in pairs:
        if pair in egress:
            there = walks.expected(endpoints[pair[1]])
            trusts = options_agree(egress[pair], egress.get((pair[1], pair[0])))
            reaches[pair] = compose(egress[pair], ingress.get(pair), there, trusts_options=trusts)
    for pair, reach in list(reaches.items()):
        back = (pair[1], pair[0])
        if reach.outcome in {"missed", "dropped", "wrong_port"} and back in egress:
            reaches[pair] = _with_vni(pair, reach, egress, ingress, endpoints, reaches.get(back))
        reaches[pair] = _borne_out(pair, reaches[pair], egress, endpoints)
    return reaches


def _borne_out(pair: OrderedPair, reach: Reach, egress: Walks, endpoints: Endpoints) -> Reach:
    """Blame the far end for no packet of which the source's host alone says what it is like.

    Any tables stop some packet, so whoever may make one up could have them blamed.
    """
    part, sender = reach.component, egress[pair].host
    is_far = part is not None and part.name.partition("/")[0] != sender
    if reach.tunnel is None or not is_far or reach.outcome == "cannot_tell":
        return reach
    doubt = _doubt(pair, egress, endpoints)
    if not doubt:
        return reach
    reason = f"{sender} sends it {doubt}, which nothing bears out; then {reach.reason}"
    return replace(reach, outcome="cannot_tell", reason=reason)


def _doubt(pair: OrderedPair, egress: Walks, endpoints: Endpoints) -> str:
    """Return what neither the way back nor what is registered says of a packet; "" for nothing."""
    source, there = endpoints[pair[0]], walks.expected(endpoints[pair[1]])
    end = egress[pair].tunnelled_to({there.vtep})
    at = canonical(source.underlay)
    reverse = egress.get((pair[1], pair[0]))
    back = reverse.tunnelled_to({at}) if reverse is not None else None
    if end is None or back is None:
        return "in a way of its own"
    if end.tun_src and canonical(end.tun_src) != at:
        return f"from {end.tun_src}"
    if end.nw_dst_by and there.address not in {"", destination(end.header)}:
        return f"to {destination(end.header)}"
    if bool(end.eth_dst_by) != bool(back.eth_dst_by):
        return "by a router"  # each way has one, or none
    if end.tun_id != back.tun_id and not may_differ(end, back):
        return f"with VNI {end.tun_id}"
    return ""


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
    there = walks.expected(endpoints[pair[1]])
    trusts = options_agree(egress[pair], egress[back])
    return compose(
        egress[pair], ingress.get(pair), there, expected_vni=opinion.expected, trusts_options=trusts
    )


def explain(
    reaches: Mapping[OrderedPair, Reach],
    failing: Sequence[FlowView],
    endpoints: Endpoints,
    doubtful: Collection[OrderedPair] = (),
) -> tuple[list[Explained], list[str]]:
    """Return a verdict per faulty entry, with the failing flows it accounts for, and what is
    missing where a walk could not tell.

    Of pairs that are `doubtful` it is not known whether a controller wants it so.
    """  # noqa: D205 - one sentence
    faults: dict[Component, list[OrderedPair]] = defaultdict(list)
    missing: list[str] = []
    for pair, reach in reaches.items():
        if reach.outcome == "cannot_tell":
            missing.append(f"overlay walk {pair[0]} -> {pair[1]}: {reach.reason}")
        elif reach.outcome != "delivered" and reach.component:
            faults[reach.component].append(pair)
    explained: list[Explained] = []
    for component, pairs in faults.items():
        groups = {_group(*pair, endpoints) for pair in pairs}
        shared = _sharing(component, pairs, endpoints)
        flows = tuple(
            v
            for v in failing
            if _group(v.flow.source, v.flow.target, endpoints) in groups
            or (v.run and shared.intersection(pair_of(v.flow)))
        )
        verdict = verdict_of(component, pairs, reaches, flows)
        if component.kind is not Kind.CONTROLLER and set(pairs) <= set(doubtful):
            verdict = replace(verdict, confidence=UNTOLD_CONFIDENCE, missing=(UNTOLD,))
        explained.append(Explained(verdict, flows))
    return explained, missing


def _sharing(
    component: Component, pairs: Iterable[OrderedPair], endpoints: Endpoints
) -> set[EndpointId]:
    """Return the endpoints all of whose packets pass what is at fault on their host.

    When a tunnel breaks as a window ends, some pairs that it carries are dead by then, and others
    have lost a probe or two. So it is where the controller has no record of a host, or of where its
    tunnels end.
    """
    if component.kind is Kind.CONTROLLER:
        host = component.name.removeprefix("tunnel ")
        return {key for key, end in endpoints.items() if end.host == host}
    if component.kind not in {Kind.TUNNEL, Kind.VSWITCH}:
        return set()
    host = component.name.partition("/")[0]
    rnics = {endpoints[end].rnic for pair in pairs for end in pair if endpoints[end].host == host}
    every = component.kind is Kind.VSWITCH
    return {
        key for key, end in endpoints.items() if end.host == host and (every or end.rnic in rnics)
    }


def _group(a: EndpointId, b: EndpointId, endpoints: Endpoints) -> object:
    hosts = frozenset((endpoints[a].host, endpoints[b].host))
    return hosts, endpoints[a].task, a.rail


def verdict_of(
    component: Component,
    pairs: Sequence[OrderedPair],
    reaches: Mapping[OrderedPair, Reach],
    flows: tuple[FlowView, ...],
) -> Verdict:
    """Return the verdict on an entry that stops packets of these pairs."""
    reach = reaches[pairs[0]]
    quoted = {"flow": reach.flow, "nearest flow": reach.nearest, "shadowed flow": reach.shadowed}
    evidence = [_flow(role, quote) for role, quote in quoted.items() if quote is not None]
    evidence.append(walk_evidence(pairs[0], reach))
    return Verdict(
        component,
        component.layer,
        Symptom.UNCONNECTIVITY,
        0.99,
        f"{reach.outcome.replace('_', ' ')}: {reach.reason}",
        failing=pairs_quoted(flows),
        evidence=tuple(evidence),
    )


def _flow(role: str, quote: Quote) -> Evidence:
    return Evidence(EvidenceKind.FLOW, {"role": role, "text": quote.text})


def walk_evidence(pair: OrderedPair, reach: Reach) -> Evidence:
    """Return a pair's walk as evidence."""
    steps = [[level, text] for level, text in reach.outline]
    met = [[hop.line, hop.host, str(hop.component), hop.action] for hop in hops(reach)]
    values = {"source": str(pair[0]), "target": str(pair[1]), "steps": steps, "hops": met}
    return Evidence(EvidenceKind.WALK, values)
