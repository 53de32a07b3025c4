# SPDX-License-Identifier: Apache-2.0
"""Sending a packet out: to a port, through a patch into another bridge, into a tunnel."""

from ovs_checks.openflow.packet import CONNTRACK, ETH_TYPE, NO_TYPE, REGISTERS, SLOTS, TUNNEL, Slots
from ovs_checks.switch.bonds import Bond
from ovs_checks.switch.snapshot import UNKNOWN, Port
from ovs_checks.translate import datapath, lookup
from ovs_checks.translate.commit import commit
from ovs_checks.translate.context import ACTSET_OUTPUT, IN_PORT, METADATA, UNSET, Context
from ovs_checks.translate.freezing import wind_up

from .mirrors import mirror_packet
from .tunnels import into_tunnel, reached

_KEPT = tuple(
    SLOTS[name]
    for name in (
        *("vlan_tpid", "vlan_tci", "vlan_tpid1", "vlan_tci1", "nw_tos"),
        *("eth_dst", "eth_src", "packet_type", "eth_type"),
    )
)
_CT_TUPLE = tuple(
    SLOTS[name]
    for name in (
        *("ct_nw_proto", "ct_nw_src", "ct_nw_dst", "ct_ipv6_src", "ct_ipv6_dst"),
        *("ct_tp_src", "ct_tp_dst"),
    )
)
_ETH_DST, _PACKET_TYPE = SLOTS["eth_dst"], SLOTS["packet_type"]
_NW_TOS, _PRIORITY = SLOTS["nw_tos"], SLOTS["skb_priority"]
_STP, _LACP = 0x0180C2000000, 0x8809
"""Destination of spanning tree packets (IEEE 802.1D), and Ethernet type of LACP (IEEE 802.3, slow
protocols)."""


def clear_conntrack(flow: Slots) -> None:
    """Forget what connection tracking said."""
    for slot in (*CONNTRACK, *_CT_TUPLE):
        flow[slot] = 0


def compose_output(
    x: Context,
    number: int,
    *,
    last: bool,
    truncate: bool = False,
    bond: Bond | None = None,
    check_tree: bool = True,
) -> None:
    """Send to a port of the bridge (`compose_output_action__`)."""
    port = x.port(number)
    if port is None:
        x.tell("warn", "Nonexistent output port")
        x.excuse(f"port {number} does not exist")
        return
    if _refuses(x, port, check_tree=check_tree):
        return
    kept = [x.flow[slot] for slot in _KEPT]
    if port.layer == "L3" and not x.flow[_PACKET_TYPE]:
        x.flow[_PACKET_TYPE] = 1 << 16 | x.flow[ETH_TYPE]
    if port.type == "patch":
        _through_patch(x, port, last=last, truncate=truncate)
        return
    if port.queues:
        _mark(x, port)
    if tunnel := port.tunnel:
        into_tunnel(x, port, tunnel, through, last=last, truncate=truncate)
    else:
        _to_datapath(x, port, bond)
    lane = x.bridge.by_lane.get(number)
    if x.bridge.mirrors and lane is not None:
        mirror_packet(x, lane, arriving=False)
    for slot, value in zip(_KEPT, kept, strict=True):
        x.flow[slot] = value


def _refuses(x: Context, port: Port, *, check_tree: bool) -> bool:
    """Tell whether the port's settings forbid it, and say so."""
    lanes = x.bridge.by_lane
    from_lane, to_lane = lanes.get(x.in_port), lanes.get(port.ofport)
    if "NO_FWD" in port.config:
        x.tell("detail", "OFPPC_NO_FWD set, skipping output")
        reason = f"{port.name} is set not to forward"
    elif x.snaplen and port.type == "patch":
        x.tell("warn", "Mirror truncate to ODPP_NONE, skipping output")
        reason = f"{port.name} cannot take a truncated packet"
    elif from_lane and to_lane and from_lane.protected and to_lane.protected:
        x.tell("warn", "Flow is between protected ports, skipping output.")
        reason = f"it came in by a protected port, and {port.name} is one too"
    elif check_tree and not forwards(x, port):
        tree = x.bridge.spanning_tree
        x.tell("warn", f"{tree} not in forwarding state, skipping output")
        reason = f"{tree} does not let {port.name} forward: it is {port.tree}"
    elif x.flow[_PACKET_TYPE] and port.layer == "L2":
        what = "Trying to send non-Ethernet packet through legacy L2 port. Dropping packet."
        x.tell("warn", what)
        reason = f"{port.name} takes Ethernet frames only"
    else:
        return False
    x.excuse(reason, port.name)
    return True


def forwards(x: Context, port: Port) -> bool:
    """Tell whether the bridge's spanning tree lets the port forward."""
    if port.tree == UNKNOWN:
        raise x.give_up(f"whether {x.bridge.spanning_tree} lets {port.name} forward")
    return port.tree in {"", "forwarding"}


def queue_priority(x: Context, queue: int) -> int:
    """Return what the datapath calls a queue: the kernel's handles begin at 1:1."""
    return queue if x.bridge.datapath_type else 0x10001 + queue


def _mark(x: Context, port: Port) -> None:
    """Set the DSCP that the packet's queue at this port asks for (`dscp_from_skb_priority`)."""
    x.looked[_PRIORITY] = 0xFFFFFFFF
    for queue, dscp in port.queues:
        if queue_priority(x, queue) == x.flow[_PRIORITY]:
            x.looked[_NW_TOS] |= 0xFC
            x.flow[_NW_TOS] = x.flow[_NW_TOS] & 3 | dscp << 2 & 0xFC


def _to_datapath(x: Context, port: Port, bond: Bond | None) -> None:
    commit(x)
    if bond is not None and bond.recirculation is not None:
        if bond.lb_output is not None:
            x.steps.append(datapath.Step(f"lb_output({bond.lb_output})"))
        else:
            number = bond.recirculation
            x.steps += [datapath.hash_step(0, bond.basis), datapath.recirculate(number)]
        x.finish(x.end("output", f"out by bond {port.bond}", port.name))
        return
    tunnel_port = reached(x, port)
    if tunnel_port is not None:
        x.steps.append(datapath.Step(f"tnl_pop({tunnel_port})"))
        x.finish(x.end("output", f"taken by tunnel port {tunnel_port}", port.name))
        return
    if 0 < x.snaplen < 0xFFFF:
        x.steps.append(datapath.Step(f"trunc({x.snaplen})"))
    x.steps.append(datapath.output(port.datapath, port.name, named=x.named))
    if not x.copying:
        x.finish(x.end("output", f"out by {port.name}", port.name))


def _through_patch(x: Context, port: Port, *, last: bool, truncate: bool) -> None:
    peer = x.snapshot.port(port.peer)
    if peer is None or peer.ofport < 0:
        reason = f"patch port {port.name} has no peer {port.peer!r}"
        x.excuse(reason, port.name)
        return
    if truncate:
        x.tell("error", "Cannot truncate output to patch port")
    through(x, peer, last)


def through(x: Context, peer: Port, last: bool) -> None:
    """Go on in another bridge; what happens there stays there (`patch_port_output`)."""
    outside = _Outside(x)
    node = x.tell("bridge", f'bridge("{peer.bridge}")')
    flow = x.flow
    flow[IN_PORT], flow[METADATA], flow[ACTSET_OUTPUT] = peer.ofport, 0, UNSET
    for slot in (*TUNNEL, *REGISTERS):
        flow[slot] = 0
    for slot in TUNNEL:
        x.looked[slot] = 0
    clear_conntrack(flow)
    x.conntracked, x.stack, x.action_set, x.origins = False, [], [], {}
    other = x.snapshot.by_name[peer.bridge]
    if other is not x.bridge:
        x.mirrors = frozenset()
    x.bridge = other
    with x.below(node):
        if not special(x, peer) and may_receive(x, peer):
            held = None if forwards(x, peer) else Held(x)
            lookup.enter(x, 0, peer.ofport, last=last, executor=lookup.clone)
            if held is None:
                wind_up(x)
            else:
                held.undo(x, peer)
    outside.restore(x)


def special(x: Context, port: Port | None) -> bool:
    """Tell whether the packet is for Open vSwitch itself, and take it if so (`process_special`)."""
    if port is None:
        return False
    lane = x.bridge.by_lane.get(port.ofport)
    bond = lane.bond if lane is not None else None
    if bond is not None and bond.lacp != "off" and x.flow[ETH_TYPE] == _LACP:
        return _take(x, "lacp", "LACP")
    if x.bridge.spanning_tree:
        x.looked[_ETH_DST] = (1 << 48) - 1
        if x.flow[_ETH_DST] == _STP and x.flow[ETH_TYPE] == NO_TYPE:
            return _take(x, "stp", x.bridge.spanning_tree)
    return False


def _take(x: Context, slow: str, what: str) -> bool:
    x.slow.add(slow)
    x.finish(x.end("dropped", f"taken by Open vSwitch for its {what}"))
    return True


class Held:
    """What to take back where a spanning tree lets tables see a packet, but not forward it."""

    def __init__(self, x: Context) -> None:
        self._base, self._steps = list(x.base), len(x.steps)
        self._ends, self._mirrors = len(x.ends), x.mirrors
        self._waiting, self._slow = len(x.recirculations), frozenset(x.slow)

    def undo(self, x: Context, port: Port) -> None:
        """Forget what the tables did."""
        x.base[:], x.mirrors = self._base, self._mirrors
        del x.steps[self._steps :], x.ends[self._ends :], x.recirculations[self._waiting :]
        x.cancel_freeze()
        x.action_set, x.slow = [], set(self._slow)
        tree = x.bridge.spanning_tree
        x.finish(x.end("dropped", f"{tree} does not let {port.name} forward: it is {port.tree}"))


class _Outside:
    """What a bridge behind a patch port does not change."""

    def __init__(self, x: Context) -> None:
        self._flow, self._bridge = list(x.flow), x.bridge
        self._tunnel = [x.looked[slot] for slot in TUNNEL]
        self._state = (x.conntracked, x.was_mpls, x.stack, x.action_set, x.mirrors, x.origins)

    def restore(self, x: Context) -> None:
        """Go back to how it was; what went wrong inside is no matter outside."""
        x.flow[:], x.bridge = self._flow, self._bridge
        for slot, mask in zip(TUNNEL, self._tunnel, strict=True):
            x.looked[slot] = mask
        (x.conntracked, x.was_mpls, x.stack, x.action_set, x.mirrors, x.origins) = self._state
        x.exit, x.error = False, ""


def may_receive(x: Context, port: Port) -> bool:
    """Tell whether the port's settings let packets in, and say so."""
    setting = "NO_RECV_STP" if x.flow[_ETH_DST] == _STP else "NO_RECV"
    if setting not in port.config:
        return True
    x.excuse(f"{port.name} is set not to receive", port.name)
    return False


def flood(x: Context, *, every: bool, last: bool) -> None:
    """Send to all ports but the one it came in by (`flood_packets`)."""
    numbers = [
        number
        for number in x.bridge.flood_order
        if number != x.in_port and (every or "NO_FLOOD" not in x.bridge.by_number[number].config)
    ]
    for n, number in enumerate(numbers):
        compose_output(x, number, last=last and n == len(numbers) - 1, check_tree=not every)
