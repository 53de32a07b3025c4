# SPDX-License-Identifier: Apache-2.0
"""Which VNI a pair of endpoints ought to use, when its two directions use different ones.

And whether what else the two directions say in their outer headers, Geneve's options, agrees.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from netagent.model.path import Component
from ovs_checks.datapath.key import parse_options
from ovs_checks.openflow.fields import FIELDS
from ovs_checks.openflow.packet import ETH_IPV6, Header, dl_type
from ovs_checks.switch.snapshot import Snapshot
from ovs_checks.translate.ends import End

from .reach import setter, walk_egress
from .values import LocalWalk

MAX_SIBLINGS = 64
"""Other destinations of a port that are walked. Chosen: far more than a majority needs, and it
bounds the time."""


@dataclass(frozen=True, slots=True)
class VniOpinion:
    """What the two directions of a pair say about its VNI."""

    expected: int | None
    """The VNI to expect of the pair; None where it is not known."""

    wrong: Literal["none", "source", "destination", "unknown"]
    """The side that sends with another VNI than `expected`."""

    components: tuple[Component, ...]
    """The flows (or tunnels) that set the wrong VNI; both sides' if the wrong side is not known."""

    reason: str


def infer_vni(
    forward: LocalWalk,
    reverse: LocalWalk,
    *,
    forward_siblings: Iterable[LocalWalk] = (),
    reverse_siblings: Iterable[LocalWalk] = (),
    forward_delivered: bool | None = None,
    reverse_delivered: bool | None = None,
) -> VniOpinion:
    """Compare the VNI of source to destination with that of destination to source.

    If they differ, the side is wrong whose other destinations (`siblings`, walks from the same
    port) mostly use the other side's VNI; failing that, the side whose packets do not arrive while
    the other's do; failing that, it is unknown.
    """
    there, back = forward.tunnelled, reverse.tunnelled
    if there is None or back is None:
        return VniOpinion(None, "unknown", (), "a direction does not reach its tunnel")
    if there.tun_id == back.tun_id:
        reason = f"both directions use VNI {there.tun_id}"
        return VniOpinion(there.tun_id, "none", (), reason)
    if reason := may_differ(there, back):
        return VniOpinion(None, "none", (), reason)
    source = setter(forward.host, there, there.tun_id_by)
    destination = setter(reverse.host, back, back.tun_id_by)
    differ = f"{forward.host} sends with VNI {there.tun_id}, {reverse.host} with {back.tun_id}"
    source_agrees = _majority(forward_siblings) == back.tun_id
    destination_agrees = _majority(reverse_siblings) == there.tun_id
    if source_agrees == destination_agrees:
        source_agrees = reverse_delivered is True and forward_delivered is False
        destination_agrees = forward_delivered is True and reverse_delivered is False
    if source_agrees and not destination_agrees:
        return VniOpinion(back.tun_id, "source", (source,), differ)
    if destination_agrees and not source_agrees:
        return VniOpinion(there.tun_id, "destination", (destination,), differ)
    reason = f"{differ}; nothing tells which is right"
    return VniOpinion(None, "unknown", (source, destination), reason)


_NETWORK_BITS = 12
"""Lower bits of OVN's VNIs by VXLAN, of the network; those above are of the port that a packet is
sent to (ovn-architecture(7), "Tunnel Encapsulations")."""


def may_differ(there: End, back: End) -> str:
    """Return why the VNIs of both directions rightly differ; "" where nothing speaks for that."""
    if there.eth_dst_by or back.eth_dst_by:
        return "a router is between, and each network has its own VNI"
    if there.options or back.options:
        return ""
    (port, network), (other, same) = (
        divmod(each.tun_id, 1 << _NETWORK_BITS) for each in (there, back)
    )
    is_ovn = network == same and port > 0 and other > 0
    return "the VNIs name the network, and the port that is sent to" if is_ovn else ""


_LOGICAL_PORTS = (0x102, 0x80, 4)
"""OVN's option: class, type, bytes. Its value is the logical ingress port's number, then the egress
port's (ovn-architecture(7), "Tunnel Encapsulations")."""


def options_agree(forward: LocalWalk, reverse: LocalWalk | None) -> bool:
    """Return whether the options of both directions bear each other out.

    They do where there are none, and where OVN's name the same two logical ports the other way
    round. Of others nobody knows what they mean.
    """
    there = forward.tunnelled
    back = reverse.tunnelled if reverse is not None else None
    if there is None or not there.options:
        return True
    if back is None:
        return False
    sent, returned = (_logical_ports(end.options) for end in (there, back))
    return sent is not None and returned is not None and sent == returned[::-1]


def _logical_ports(options: str) -> tuple[int, int] | None:
    found = list(parse_options(options))
    if len(found) != 1 or found[0][:3] != _LOGICAL_PORTS:
        return None
    return found[0][3] >> 16 & 0x7FFF, found[0][3] & 0xFFFF


def _majority(walks: Iterable[LocalWalk]) -> int | None:
    """Return the VNI that more than half of the walks that reach a tunnel use."""
    used = Counter(end.tun_id for walked in walks if (end := walked.tunnelled))
    if not used:
        return None
    vni, count = used.most_common(1)[0]
    return vni if 2 * count > used.total() else None


def walk_siblings(snapshot: Snapshot, in_port: str, header: Header) -> list[LocalWalk]:
    """Walk the same packet to the other destinations that the tables know, at most 64 of them.

    A destination is what some flow of the bridge matches exactly as `nw_dst` (of an IPv6 packet,
    `ipv6_dst`) or `dl_dst`. Walks that reach their tunnel by the same flows as an earlier one, or
    as the packet itself, are no evidence of their own and left out.
    """
    port = snapshot.port(in_port)
    if port is None:
        return []
    headers = {
        other: None
        for flow in snapshot.by_name[port.bridge].flows
        if (other := _redirected(flow.match.tests, header)) != header
    }
    seen = {_evidence(walk_egress(snapshot, in_port, header)), None}
    found = []
    for other in list(headers)[:MAX_SIBLINGS]:
        walked = walk_egress(snapshot, in_port, other)
        if (evidence := _evidence(walked)) not in seen:
            seen.add(evidence)
            found.append(walked)
    return found


def _evidence(walked: LocalWalk) -> object:
    end = walked.tunnelled
    return (end.tun_dst, end.tun_dst_by, end.tun_id_by) if end else None


_DESTINATIONS = {
    part.slot: (name, FIELDS[name].bits)
    for name in ("nw_dst", "ipv6_dst", "eth_dst")
    for part in FIELDS[name].parts
}


def _redirected(tests: Iterable[tuple[int, int, int]], header: Header) -> Header:
    """Return the packet with the destination that `tests` fix, the same packet if they fix none."""
    of_another_family = "nw_dst" if dl_type(header) == ETH_IPV6 else "ipv6_dst"
    found = {
        name: value
        for slot, value, mask in tests
        for name, bits in [_DESTINATIONS.get(slot, ("", 0))]
        if name not in {"", of_another_family} and mask == bits
    }
    return header._replace(**found)
