# SPDX-License-Identifier: Apache-2.0
"""Where in the virtual switches a pair's packets end, from traces that their hosts made.

Flow tables show what should happen, a trace shows what did. It is requested where the tables
deliver a pair's packets and its probes are lost all the same, and where a vote named a part of a
host, to find the stage.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from analyzer.detect.flows import FlowView
from analyzer.localize.case import Endpoints, Explained, OrderedPair, pairs_quoted
from analyzer.localize.walks import ROCE_PORT, probed_port
from bpf.trace import journey
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, rnic, tunnel, vswitch
from netagent.model.verdict import Symptom, Verdict
from netagent.wire.trace import TraceReply, TraceRequest

DURATION_S = 3.0
"""Seconds that a trace counts packets. Chosen: some twenty probes of a pair pass meanwhile; see
`probe.rate_per_endpoint`."""
CONFIDENCE = 0.98
"""Confidence of a verdict that a trace settles. Chosen: above a vote's 0.975, since a trace is a
fact, and below a host's own finding."""
MAX_FLOW, MAX_STAGES = 500, 32
"""Most characters of a flow, and most stages of a host, that are kept. Chosen: more than there are;
bounds what a host says."""
MANY, MANY_SHARE = 3, 0.05
"""Least packets, and least share of those that entered a stage, whose loss there is no chance.
Chosen: a stray loss or two stay below."""

_ROCE_STAGES = {"rxe_transmit", "rxe_receive"}
_TUNNEL_PLACES = {
    journey.PLACES["uplink_receive", "decapsulate"],
    journey.PLACES["decapsulate", "tunnel_receive"],
}
_UPLINK_PLACE = journey.PLACES["encapsulate", "uplink_transmit"]
_CONTAINER_PLACES = {
    journey.PLACES["rxe_transmit", "port_receive"],
    journey.PLACES["port_transmit", "rxe_receive"],
}


@dataclass(frozen=True, slots=True)
class Traced:
    """The result of the traces of one direction of a pair."""

    pair: OrderedPair
    verdict: journey.Verdict
    counts: tuple[str, ...]
    """Packets by stage, for a human; one line a host."""
    replies: tuple[tuple[str, TraceReply], ...] = ()
    """(``sender`` or ``receiver``, what its host saw)."""


def questions(
    pair: OrderedPair, endpoints: Endpoints, *, port: int, vni: int = 0
) -> tuple[TraceRequest, TraceRequest]:
    """Return the requests to the sender's and the receiver's host about packets of `pair`.

    `port` is the UDP probes' port. A `vni` of 0 means unknown: then tenants with the same addresses
    are counted together, except at the sender's own port.
    """
    source, target = endpoints[pair[0]], endpoints[pair[1]]
    six = ":" in target.address
    words = ("udp6", "ipv6_src", "ipv6_dst") if six else ("udp", "nw_src", "nw_dst")
    flow = f"{words[0]},{words[1]}={source.address},{words[2]}={target.address}"
    if target.rdma is not None:
        flow += f",tp_dst={probed_port(target, port)}"
    if vni:
        flow += f",tun_id={vni}"
    sent = f"{flow},in_port={source.port}" if source.port else flow
    return (
        TraceRequest(kind="drops", flow=sent, duration_s=DURATION_S),
        TraceRequest(kind="drops", flow=flow, duration_s=DURATION_S),
    )


def judge(
    pair: OrderedPair,
    sender: TraceReply | None,
    receiver: TraceReply | None,
    *,
    by_roce: bool = True,
) -> Traced:
    """Return where packets of `pair` ended; a trace that failed is None.

    `by_roce`: they are RoCE. Others never come to Soft-RoCE's stages, whatever a sender says.
    """
    views = [_view(reply, by_roce=by_roce) for reply in (sender, receiver)]
    verdict = journey.diagnose(sender=views[0], receiver=views[1])
    if verdict.host == "underlay" and views[1] is not None and any(views[1].packets.values()):
        # The two traces did not begin at the same time: only what each host lost is comparable.
        alone = (journey.diagnose(sender=views[0]), journey.diagnose(receiver=views[1]))
        verdict = next((each for each in alone if each.where), journey.Verdict(None))
    ends = (("sender", sender), ("receiver", receiver))
    replies = tuple((name, reply) for name, reply in ends if reply is not None)
    counts = [
        f"{name}: " + ", ".join(f"{row.stage} {row.packets}" for row in reply.stages if row.packets)
        for name, reply in replies
    ]
    return Traced(pair, verdict, tuple(counts), replies)


def is_roce(request: TraceRequest) -> bool:
    """Return whether a question is about RoCE."""
    return f"tp_dst={ROCE_PORT}" in request.flow.split(",")


def _view(reply: TraceReply | None, *, by_roce: bool) -> journey.HostView | None:
    if reply is None:
        return None
    rows = [row for row in reply.stages if by_roce or row.stage not in _ROCE_STAGES]
    return journey.HostView(
        packets={row.stage: row.packets for row in rows},
        foreign={row.stage: row.foreign for row in rows},
        drops=tuple(
            journey.Dropped(row.reason, row.location, row.after, row.device, row.packets)
            for row in reply.drops
        ),
        failed_upcalls={
            row.result: row.packets
            for row in reply.upcalls
            if row.command == "miss" and row.result != "ok"
        },
        output_devices=frozenset(row.device for row in reply.ports if row.stage == "output"),
        vnis=frozenset(row.vni for row in reply.ports if row.vni),
    )


def component(
    traced: Traced, endpoints: Endpoints, tunnels: Mapping[EndpointId, str]
) -> Component | None:
    """Return the part of a host at which the packets ended; None where no part of a host is.

    `tunnels` names the tunnel port by which each endpoint's packets leave, where it is known.
    """
    where, host = traced.verdict.where, traced.verdict.host
    if where is None or host not in {"sender", "receiver"}:
        return None
    end = endpoints[traced.pair[0] if host == "sender" else traced.pair[1]]
    if where == journey.TUNNEL_PORT:
        return None  # whoever sends with another VNI, and says nothing of it, has it seen there
    if where == _UPLINK_PLACE:
        return rnic(end.host, end.rnic)
    from_tunnel = host == "receiver" and where == journey.PLACES["actions", "output"]
    if where in _TUNNEL_PLACES or from_tunnel:
        return tunnel(end.host, tunnels.get(end.id, end.underlay))
    if where in _CONTAINER_PLACES:
        return Component(Kind.ENDPOINT, str(end.id))
    return vswitch(end.host)


def many(traced: Traced) -> bool:
    """Return whether more packets vanished than a stray loss explains."""
    verdict = traced.verdict
    return verdict.lost >= MANY and verdict.lost >= MANY_SHARE * verdict.entered


def evidence(traced: Traced) -> Evidence:
    """Return the trace as evidence."""
    a, b = traced.pair
    verdict = traced.verdict
    values = {"source": str(a), "target": str(b), "text": str(verdict)}
    counted = {
        "lines": [*verdict.evidence, *traced.counts],
        "flows": [
            [end, reply.flow, DURATION_S]
            for end, reply in traced.replies
            if 0 < len(reply.flow) <= MAX_FLOW and reply.flow.isprintable()
        ],
        "stages": [
            [end, row.stage, row.packets, row.p50_ns or 0]
            for end, reply in traced.replies
            for row in reply.stages[:MAX_STAGES]
        ],
    }
    return Evidence(EvidenceKind.TRACE, values | counted)


def explain(
    traced: Traced,
    flows: tuple[FlowView, ...],
    endpoints: Endpoints,
    tunnels: Mapping[EndpointId, str],
) -> Explained | None:
    """Return the verdict that a trace settles over `flows`; None where it settles nothing."""
    named = component(traced, endpoints, tunnels)
    if named is None:
        return None
    where = traced.verdict.where
    verdict = Verdict(
        named,
        named.layer,
        Symptom.UNCONNECTIVITY,
        CONFIDENCE,
        f"packets vanish: {where}",
        failing=pairs_quoted(flows),
        evidence=(evidence(traced),),
    )
    return Explained(verdict, flows)


def with_trace(explained: Explained, traced: Traced) -> Explained:
    """Return a voted verdict with the trace's evidence added."""
    verdict = explained.verdict
    more = replace(verdict, evidence=(evidence(traced), *verdict.evidence))
    return Explained(more, explained.flows)
