# SPDX-License-Identifier: Apache-2.0
"""Pairs of endpoints over several hosts' snapshots: both directions, tunnel and underlay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from netagent.model.ids import EndpointId
from netagent.model.path import vswitch
from ovs_checks.openflow.addresses import udp_between
from ovs_checks.openflow.packet import Header
from ovs_checks.switch.snapshot import Snapshot
from ovs_checks.switch.underlay import Underlay

from .reach import Destination, Reach, compose, walk_egress, walk_ingress
from .values import LocalWalk
from .vni import infer_vni, options_agree, walk_siblings


@dataclass(frozen=True, slots=True)
class Attached:
    """An endpoint, where its host's switch has it."""

    port: str
    address: str
    mac: str
    mtu: int
    """Bytes of an IP packet that it may send."""

    task: str = ""


@dataclass(frozen=True)
class Site:
    """A host: its switch, its endpoints and its routes."""

    snapshot: Snapshot
    endpoints: Mapping[EndpointId, Attached]
    underlay: Underlay

    @property
    def vteps(self) -> frozenset[str]:
        """Addresses at which tunnels may reach the host; empty if they are not known."""
        ports = [port for bridge in self.snapshot.bridges for port in bridge.ports]
        local = {port.tunnel.local_ip for port in ports if port.tunnel}
        anywhere = local & {"", "flow"}
        return frozenset(local - anywhere) | (self.underlay.addresses if anywhere else frozenset())

    @property
    def uplinks(self) -> Mapping[str, list[str]]:
        """Devices by which what leaves by a bridge leaves the host."""
        return {
            bridge.name: [port.name for port in bridge.ports if port.type == ""]
            for bridge in self.snapshot.bridges
        }


@dataclass(frozen=True, slots=True)
class PairReach:
    """Whether packets of a pair arrive, there and back."""

    source: EndpointId
    target: EndpointId
    there: Reach
    back: Reach

    @property
    def delivered(self) -> bool:
        """Whether both directions arrive: a probe needs both."""
        return self.there.outcome == self.back.outcome == "delivered"


@dataclass(frozen=True, slots=True)
class _Way:
    """A walked direction of a pair."""

    near: Site
    far: Site
    sender: Attached
    header: Header
    expected: Destination
    egress: LocalWalk
    ingress: LocalWalk | None


def check_pair(
    sites: Sequence[Site],
    source: EndpointId,
    target: EndpointId,
    *,
    source_port: int = 40000,
    port: int = 4791,
) -> PairReach:
    """Walk a pair's UDP packets there and back over the hosts that have its ends.

    Raises
    ------
    LookupError
        If no host has one of the endpoints.
    TwoFamilies
        If one has an IPv4 address and one an IPv6 one.
    """
    ports = (source_port, port)
    there, back = _walk(sites, source, target, ports), _walk(sites, target, source, ports)
    one, other = _composed(there, back), _composed(back, there)
    return PairReach(
        source, target, _settled(there, back, one, other), _settled(back, there, other, one)
    )


def _composed(way: _Way, other: _Way) -> Reach:
    end = way.egress.tunnelled
    if end is not None and not way.far.vteps:
        host = way.far.snapshot.host
        reason = f"tunnelled to {end.tun_dst}; nothing tells the addresses of {host}"
        return Reach("cannot_tell", vswitch(host), reason)
    trusts = options_agree(way.egress, other.egress)
    return compose(way.egress, way.ingress, way.expected, trusts_options=trusts)


def _settled(way: _Way, other: _Way, reach: Reach, reverse: Reach) -> Reach:
    """Return what a direction comes to, seen with the other and with the underlay."""
    if reach.outcome in {"missed", "dropped", "wrong_port"}:
        return _with_vni(way, other, reach, reverse)
    return _with_underlay(way, reach) if reach.outcome == "delivered" else reach


def _site(sites: Sequence[Site], endpoint: EndpointId) -> Site:
    found = next((site for site in sites if endpoint in site.endpoints), None)
    if found is None:
        raise LookupError(f"no host here has {endpoint}")
    return found


def _walk(
    sites: Sequence[Site], source: EndpointId, target: EndpointId, ports: tuple[int, int]
) -> _Way:
    near, far = _site(sites, source), _site(sites, target)
    sender, receiver = near.endpoints[source], far.endpoints[target]
    header = udp_between(
        (sender.mac, sender.address),
        (receiver.mac, receiver.address),
        source_port=ports[0],
        destination_port=ports[1],
    )
    egress = walk_egress(near.snapshot, sender.port, header)
    ingress, vtep = None, min(far.vteps, default="")
    end = egress.tunnelled_to(far.vteps)
    if end is not None and end.tun_dst in far.vteps:
        vtep = end.tun_dst
        ingress = walk_ingress(
            far.snapshot,
            tun_dst=end.tun_dst,
            tun_src=end.tun_src,
            tun_id=end.tun_id,
            options=end.options,
            header=end.header,
        )
    expected = Destination(far.snapshot.host, receiver.port, vtep, header.eth_dst)
    return _Way(near, far, sender, header, expected, egress, ingress)


def _with_vni(way: _Way, other: _Way, reach: Reach, reverse: Reach) -> Reach:
    """Blame the sender for what the far end misses, if it is the sender's VNI that is wrong."""
    opinion = infer_vni(
        way.egress,
        other.egress,
        forward_siblings=walk_siblings(way.near.snapshot, way.sender.port, way.header),
        reverse_siblings=walk_siblings(other.near.snapshot, other.sender.port, other.header),
        forward_delivered=False,
        reverse_delivered=reverse.outcome == "delivered",
    )
    if opinion.wrong != "source":
        return reach
    trusts = options_agree(way.egress, other.egress)
    return compose(
        way.egress, way.ingress, way.expected, expected_vni=opinion.expected, trusts_options=trusts
    )


def _with_underlay(way: _Way, reach: Reach) -> Reach:
    """Look at what carries the tunnel, where the flow tables deliver."""
    end = way.egress.tunnelled_to({way.expected.vtep})
    port = way.near.snapshot.port(end.port) if end else None
    if end is None or port is None:
        return reach
    near, mtu = way.near, way.sender.mtu
    said = near.underlay.fault(end.tun_dst, kind=port.type, mtu=mtu, uplinks=near.uplinks)
    if not said:
        return reach
    reason = f"the flow tables deliver, but {said}"
    return replace(reach, outcome="no_underlay", component=reach.tunnel, reason=reason)
