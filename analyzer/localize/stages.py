# SPDX-License-Identifier: Apache-2.0
"""Where in the virtual switches a pair's packets end, from traces that their hosts made.

Flow tables say what should happen; a trace says what did. It is asked for where the tables deliver
and the probes are lost all the same, and to name the stage where a vote named a host's part.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from analyzer.detect.loss import FlowView
from analyzer.localize.evidence import OrderedPair, pairs_quoted
from analyzer.localize.facts import Explained
from analyzer.localize.overlay import probed_port
from bpf import journey
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, rnic
from netagent.model.verdict import Symptom, Verdict
from netagent.wire.tracing import TraceReply, TraceRequest

DURATION_S = 3.0
"""Long enough for some twenty probes of a pair; see `probe.rate_per_endpoint`."""
CONFIDENCE = 0.95
MANY, MANY_SHARE = 3, 0.05
"""Packets, and share of those that entered a stage, whose loss there is no chance."""

_TUNNEL_PLACES = {
    journey.TUNNEL_PORT,
    journey.PLACES["uplink_receive", "decapsulate"],
    journey.PLACES["decapsulate", "tunnel_receive"],
}
_UPLINK_PLACE = journey.PLACES["encapsulate", "uplink_transmit"]
_CONTAINER_PLACES = {
    journey.PLACES["rxe_transmit", "port_receive"],
    journey.PLACES["port_transmit", "rxe_receive"],
}

Endpoints = Mapping[EndpointId, Endpoint]


@dataclass(frozen=True, slots=True)
class Traced:
    """What the traces of one direction of a pair say."""

    pair: OrderedPair
    verdict: journey.Verdict
    counts: tuple[str, ...]
    """Packets by stage, for a human; one line a host."""


def questions(
    pair: OrderedPair, endpoints: Endpoints, *, port: int, vni: int = 0
) -> tuple[TraceRequest, TraceRequest]:
    """Return what to ask the sender's and the receiver's host of packets of `pair`, in its order.

    `port` is that of UDP probes. A `vni` of 0 is not known: tenants with the same addresses are
    then counted together, but for the sender's own port.
    """
    source, target = endpoints[pair[0]], endpoints[pair[1]]
    flow = f"udp,nw_src={source.address},nw_dst={target.address}"
    if target.rdma is not None:
        flow += f",tp_dst={probed_port(target, port)}"
    if vni:
        flow += f",tun_id={vni}"
    sent = f"{flow},in_port={source.port}" if source.port else flow
    return (
        TraceRequest(kind="drops", flow=sent, duration_s=DURATION_S),
        TraceRequest(kind="drops", flow=flow, duration_s=DURATION_S),
    )


def judge(pair: OrderedPair, sender: TraceReply | None, receiver: TraceReply | None) -> Traced:
    """Return where packets of `pair` ended; traces that could not be had are None."""
    views = [_view(reply) for reply in (sender, receiver)]
    verdict = journey.diagnose(sender=views[0], receiver=views[1])
    if verdict.host == "underlay" and views[1] is not None and any(views[1].packets.values()):
        # The two traces did not begin at the same time: only what each host lost is comparable.
        alone = (journey.diagnose(sender=views[0]), journey.diagnose(receiver=views[1]))
        verdict = next((each for each in alone if each.where), journey.Verdict(None))
    counts = [
        f"{name}: " + ", ".join(f"{row.stage} {row.packets}" for row in reply.stages if row.packets)
        for name, reply in (("sender", sender), ("receiver", receiver))
        if reply is not None
    ]
    return Traced(pair, verdict, tuple(counts))


def _view(reply: TraceReply | None) -> journey.HostView | None:
    if reply is None:
        return None
    return journey.HostView(
        packets={row.stage: row.packets for row in reply.stages},
        foreign={row.stage: row.foreign for row in reply.stages},
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
    """Return the part of a host at which the packets ended; None where that is none of a host's.

    `tunnels` names the tunnel port that each endpoint's packets leave by, as far as it is known.
    """
    where, host = traced.verdict.where, traced.verdict.host
    if where is None or host not in {"sender", "receiver"}:
        return None
    end = endpoints[traced.pair[0] if host == "sender" else traced.pair[1]]
    if where == _UPLINK_PLACE:
        return rnic(end.host, end.rnic)
    from_tunnel = host == "receiver" and where == journey.PLACES["actions", "output"]
    if where in _TUNNEL_PLACES or from_tunnel:
        return Component(Kind.TUNNEL, f"{end.host}/{tunnels.get(end.id, end.underlay)}")
    if where in _CONTAINER_PLACES:
        return Component(Kind.ENDPOINT, str(end.id))
    return Component(Kind.VSWITCH, end.host)


def many(traced: Traced) -> bool:
    """Tell whether more packets vanished than a stray loss explains."""
    verdict = traced.verdict
    return verdict.lost >= MANY and verdict.lost >= MANY_SHARE * verdict.entered


def lines(traced: Traced) -> tuple[str, ...]:
    """Return the trace as evidence."""
    a, b = traced.pair
    verdict = traced.verdict
    return (f"trace {a} -> {b}: {verdict}", *verdict.evidence, *traced.counts)


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
        evidence=lines(traced),
    )
    return Explained(verdict, flows)


def told(explained: Explained, traced: Traced) -> Explained:
    """Return a voted verdict with the trace's evidence added."""
    verdict = explained.verdict
    more = replace(verdict, evidence=(*lines(traced), *verdict.evidence))
    return Explained(more, explained.flows)
