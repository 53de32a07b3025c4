# SPDX-License-Identifier: Apache-2.0
"""From one endpoint to another over the tunnel: two hosts' walks joined into one verdict.

Each host walks its own tables (`walk_egress`, `walk_ingress`) and sends the walk; whoever has both
joins them (`compose`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from netagent.model.path import Component, flow_table, tunnel, vswitch
from ovs_checks.datapath.key import DatapathKey, mapped, parse_options
from ovs_checks.openflow.addresses import canonical, destination, outer, text_of
from ovs_checks.openflow.notation import format_mac, integer, or_zero
from ovs_checks.openflow.packet import BRIDGE_LOCAL, Header, limit_tags
from ovs_checks.switch.snapshot import Port, Snapshot, Tunnel
from ovs_checks.translate.ends import End, Quote

from .host import walk
from .values import LocalWalk, Step

Outcome = Literal[
    "delivered",
    "dropped",
    "missed",
    "loop",
    "wrong_tunnel",
    "wrong_vni",
    "wrong_port",
    "wrong_mac",
    "wrong_address",
    "no_underlay",
    "cannot_tell",
]


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a packet ought to arrive."""

    host: str
    port: str
    """Name of the OVS port of the destination's container."""

    vtep: str
    """The address at which that host receives the tunnel of this rail."""

    mac: int | None = None
    """Hardware address of the destination; None where it is not known."""

    address: str = ""
    """Its IP address as Open vSwitch writes it; empty where it is not known."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a packet arrives; if not, the one entry that stops it."""

    outcome: Outcome
    component: Component | None
    """The flow table, tunnel or virtual switch at fault; None if delivered."""

    reason: str
    flow: Quote | None = None
    nearest: Quote | None = None
    """For a miss: the flow that came nearest to matching."""

    shadowed: Quote | None = None
    """The flow that would have taken the packet on, had `flow` not matched all that it does."""

    tunnel: Component | None = None
    """The tunnel by which the packet left the source; None if it did not get there."""

    steps: tuple[Step, ...] = ()

    def tree(self) -> str:
        """Return the walk for humans: one line per step, indented, then the verdict."""
        return "\n".join("  " * level + text for level, text in self.outline)

    @property
    def outline(self) -> list[tuple[int, str]]:
        """The walk's lines with how deep each stands: the steps, the verdict, what explains it."""
        steps = [
            (step.level, (f"{step.where}: " if step.where else "-> ") + step.text)
            for step in self.steps
        ]
        return [*steps, (0, self.verdict), *((1, quote) for quote in self.quotes)]

    @property
    def quotes(self) -> list[str]:
        """Flows beside the packet's way that explain the verdict, a line each."""
        beside = {"nearest": self.nearest, "hidden": self.shadowed}
        return [f"{what} {one.place}: {one.text}" for what, one in beside.items() if one]

    @property
    def verdict(self) -> str:
        """The outcome, its reason and the component, in one line."""
        said = f"{self.outcome}: {self.reason}"
        return f"{said} [{self.component}]" if self.component else said


# --- one host ------------------------------------------------------------------------------------


def walk_egress(
    snapshot: Snapshot, in_port: str, header: Header, connection: str = ""
) -> LocalWalk:
    """Carry a packet that a container sends by the OVS port `in_port`; see `walk`."""
    entered = egress_entry(snapshot, in_port, header)
    if entered is None:
        return _refused(snapshot, "", f"there is no port {in_port}")
    return walk(snapshot, *entered, connection)


def egress_entry(snapshot: Snapshot, in_port: str, header: Header) -> tuple[str, Header] | None:
    """Return the bridge that the packet enters, and the packet there; None without the port."""
    port = snapshot.port(in_port)
    if port is None or port.ofport < 0:
        return None
    return port.bridge, header._replace(in_port=port.ofport, **BRIDGE_LOCAL)


def walk_ingress(
    snapshot: Snapshot,
    *,
    tun_dst: str,
    tun_src: str,
    tun_id: int,
    header: Header,
    options: str = "",
    connection: str = "",
) -> LocalWalk:
    """Carry a packet that arrives by a tunnel from address `tun_src` at address `tun_dst`.

    An empty `tun_src` stands for an address that the sender's routing chose; `options` are
    Geneve's, as the datapath prints them. Raises ValueError where they are none.
    """
    entered = ingress_entry(
        snapshot, tun_dst=tun_dst, tun_src=tun_src, tun_id=tun_id, options=options, header=header
    )
    if entered is None:
        ports = [port for bridge in snapshot.bridges for port in bridge.ports if port.is_tunnel]
        at = canonical(tun_dst)
        here = next((p.name for p in ports if p.tunnel and p.tunnel.local_ip == at), "")
        reason = f"no tunnel port takes what {tun_src} sends to {tun_dst} with key {tun_id}"
        return _refused(snapshot, here, reason)
    return walk(snapshot, *entered, connection)


def ingress_entry(
    snapshot: Snapshot,
    *,
    tun_dst: str,
    tun_src: str,
    tun_id: int,
    header: Header,
    options: str = "",
) -> tuple[str, Header] | None:
    """Return the bridge that the packet enters, and the packet there; None without a tunnel."""
    ports = [port for bridge in snapshot.bridges for port in bridge.ports if port.is_tunnel]
    port = taker(ports, canonical(tun_dst), canonical(tun_src), tun_id)
    if port is None:
        return None
    present, metadata = mapped(parse_options(options), snapshot.by_name[port.bridge].options)
    came = {"tun_id": tun_id, "tun_present": present, "tun_metadata": metadata}
    came |= outer(tun_dst, tun_src)
    return port.bridge, header._replace(in_port=port.ofport, **{**BRIDGE_LOCAL, **came})


def entry(snapshot: Snapshot, key: DatapathKey) -> tuple[str, Header]:
    """Return the bridge that a packet of the datapath enters, and the packet as it sees it.

    Raises
    ------
    LookupError
        If no port, or none of several tunnels that share a port of the datapath, would take it.
    """
    packet = key.header(0)
    if packet.recirc_id:
        reason = f"what recirculation {packet.recirc_id:#x} stands for is Open vSwitch's alone"
        raise LookupError(f"{reason}; trace the packet as it came in")
    ports = [port for bridge in snapshot.bridges for port in bridge.ports if port.ofport >= 0]
    found = [p for p in ports if key.in_port and key.in_port in {p.name, str(p.datapath)}]
    if not found:
        raise LookupError(f"the datapath has no port {key.in_port or '(in_port is missing)'}")
    tunnels = [port for port in found if port.is_tunnel]
    to = text_of(packet.tun_dst, packet.tun_ipv6_dst) or "0.0.0.0"
    by = text_of(packet.tun_src, packet.tun_ipv6_src) or "0.0.0.0"
    port = taker(tunnels, to, by, packet.tun_id) if tunnels else found[0]
    if port is None:
        raise LookupError(f"no tunnel takes what {by} sends to {to}")
    header = key.header(port.ofport, snapshot.by_name[port.bridge].options)
    return port.bridge, limit_tags(header, snapshot.max_tags)


def taker(ports: Iterable[Port], tun_dst: str, tun_src: str, tun_id: int | None) -> Port | None:
    """Return the tunnel that takes what arrives, the most particular of several.

    Addresses are as Open vSwitch writes them. An empty `tun_src`, and None for `tun_id`, stand for
    any.
    """
    takers = [
        (_specificity(tunnel), port)
        for port in ports
        if port.ofport >= 0 and (tunnel := port.tunnel) and _takes(tunnel, tun_dst, tun_src, tun_id)
    ]
    return min(takers, key=lambda taker: taker[0])[1] if takers else None


def _takes(tunnel: Tunnel, tun_dst: str, tun_src: str, tun_id: int | None) -> bool:
    key = tunnel.in_key
    return (
        tunnel.local_ip in {"", "flow", tun_dst}
        and (tunnel.remote_ip in {"flow", tun_src} or not tun_src)
        and (tun_id is None or key == "flow" or or_zero(integer, key) == tun_id)
    )


def _specificity(tunnel: Tunnel) -> tuple[bool, bool, int]:
    """Return what Open vSwitch sorts candidates by: key, remote, then local address."""
    local = 2 if tunnel.local_ip == "flow" else int(not tunnel.local_ip)
    return tunnel.in_key == "flow", tunnel.remote_ip == "flow", local


def _refused(snapshot: Snapshot, port: str, reason: str) -> LocalWalk:
    """Return the walk of a packet that no port takes; `port` is the tunnel port that should."""
    end = End("missed", "", -1, reason, port=port)
    return LocalWalk(snapshot.host, "", port, (end,), (Step(0, "", f"missed: {reason}"),))


# --- two hosts -----------------------------------------------------------------------------------


def compose(
    egress: LocalWalk,
    ingress: LocalWalk | None,
    expected: Destination,
    *,
    expected_vni: int | None = None,
    trusts_options: bool = False,
) -> Reach:
    """Join the source's walk and, if the packet gets there, the destination's.

    With `expected_vni`, what fails at the far end under another VNI is blamed on the flow that set
    it at the source; without, on the far end, which cannot know better. What fails there of a
    packet with options of Geneve is blamed on nobody, unless `trusts_options`: the options may be
    wrong as well as the tables that they are looked up in (`vni.options_agree` can tell).
    """
    end = _towards(egress, expected)
    if end.kind != "tunnelled":
        return _doubted(_judge(egress.host, end, expected, _steps(egress, 0)), egress)
    reach = _through_tunnel(egress, end, ingress, expected, expected_vni)
    if end.options and not trusts_options and reach.outcome in {"missed", "dropped", "wrong_port"}:
        reason = f"sent with options {end.options}, which nothing bears out; then {reach.reason}"
        at = vswitch(expected.host)
        reach = Reach("cannot_tell", at, reason, reach.flow, steps=reach.steps)
    reach = _doubted(reach, egress, *([ingress] if ingress else []))
    return replace(reach, tunnel=tunnel(egress.host, end.port))


def _doubted(reach: Reach, *walks: LocalWalk) -> Reach:
    """Blame nobody where the live switch does otherwise than its tables as dumped."""
    for one in walks:
        if one.opinion is not None and one.opinion.kind == "differs":
            reason = f"{one.host}: {one.opinion}"
            return Reach("cannot_tell", vswitch(one.host), reason, steps=reach.steps)
    return reach


def _through_tunnel(
    egress: LocalWalk,
    end: End,
    ingress: LocalWalk | None,
    expected: Destination,
    expected_vni: int | None,
) -> Reach:
    steps = _steps(egress, 0)
    if end.tun_dst != expected.vtep:
        reason = f"tunnelled to {end.tun_dst}, but {expected.host} is at {expected.vtep}"
        component = setter(egress.host, end, end.tun_dst_by)
        found = Reach("wrong_tunnel", component, reason, end.tun_dst_by, steps=steps)
        return _with_shadowed(found, end)
    if ingress is None:
        reason = f"tunnelled to {expected.host}, whose tables were not walked"
        return Reach("cannot_tell", vswitch(expected.host), reason, steps=steps)
    steps += _steps(ingress, 1)
    far = _towards(ingress, expected)
    reach = _judge(ingress.host, far, expected, steps)
    if (
        reach.outcome in {"missed", "dropped"}
        and end.eth_dst_by
        and _misses_mac(end, far, expected)
    ):
        reason = f"sent {_addresses(end, expected)}; then {reach.reason}"
        component = setter(egress.host, end, end.eth_dst_by)
        return Reach("wrong_mac", component, reason, end.eth_dst_by, steps=steps)
    if reach.outcome == "wrong_address" and not far.nw_dst_by and end.nw_dst_by:
        component = setter(egress.host, end, end.nw_dst_by)
        return replace(reach, component=component, flow=end.nw_dst_by)
    if reach.outcome == "delivered" or expected_vni in {None, end.tun_id}:
        return _bounced(reach, egress, end, ingress, far)
    reason = f"sent with VNI {end.tun_id}, but {expected_vni} is expected; then {reach.reason}"
    component = setter(egress.host, end, end.tun_id_by)
    return Reach("wrong_vni", component, reason, end.tun_id_by, steps=steps)


def _towards(walked: LocalWalk, expected: Destination) -> End:
    """Return the end that leads to the destination if one does, else the one that counts."""

    def leads_there(end: End) -> bool:
        if end.kind == "tunnelled":
            return end.tun_dst == expected.vtep
        return end.kind == "output" and (walked.host, end.port) == (expected.host, expected.port)

    return walked.towards(leads_there)


def _judge(host: str, end: End, expected: Destination, steps: tuple[Step, ...]) -> Reach:
    """Judge an end that leads no further."""
    outcome: Outcome
    reason = end.reason
    match end.kind:
        case "output" if (host, end.port) == (expected.host, expected.port):
            return _delivered(host, end, expected, steps)
        case "output":
            outcome, reason = "wrong_port", f"sent out by {end.port} on {host}"
        case "tunnelled":
            outcome, reason = "wrong_tunnel", f"{host} tunnels it on to {end.tun_dst}"
        case "controller" | "cannot_tell":
            outcome = "cannot_tell"
        case "dropped" | "missed" | "loop":
            outcome = end.kind
    flow = _culprit(end.cycle) if end.cycle else end.flow
    component = _component(host, end, flow)
    found = Reach(outcome, component, _explained(end, reason), flow, end.nearest, steps=steps)
    return _with_shadowed(found, end)


def _delivered(host: str, end: End, expected: Destination, steps: tuple[Step, ...]) -> Reach:
    outcome: Outcome
    reason = f"delivered to {end.port} on {host}"
    if _misaddressed(end, expected):
        outcome, writer, addresses = "wrong_mac", end.eth_dst_by, _addresses(end, expected)
    elif expected.address not in {"", destination(end.header)}:
        outcome, writer, addresses = "wrong_address", end.nw_dst_by, _ip_addresses(end, expected)
    else:
        return Reach("delivered", None, reason, steps=steps)
    component = setter(host, end, writer) if writer else vswitch(host)
    return Reach(outcome, component, f"{reason} {addresses}", writer, steps=steps)


def _misaddressed(end: End, expected: Destination) -> bool:
    return expected.mac is not None and end.header.eth_dst != expected.mac


def _misses_mac(end: End, far: End, expected: Destination) -> bool:
    """Tell whether the far end knows the destination, but not the address that it was sent under.

    A router between the two may rewrite the address rightly: then the far end misses nothing.
    """
    return _misaddressed(end, expected) and "dl_dst" in far.field.split(",")


def _addresses(end: End, expected: Destination) -> str:
    is_at = f"but it is {format_mac(expected.mac or 0)}"
    return f"under the address {format_mac(end.header.eth_dst)}, {is_at}"


def _ip_addresses(end: End, expected: Destination) -> str:
    return f"under the address {destination(end.header)}, but it is {expected.address}"


def _with_shadowed(reach: Reach, end: End) -> Reach:
    """Say which flow never matches, if the one at fault is why."""
    if end.shadowed is None or reach.flow != end.flow:
        return reach
    hidden = end.shadowed
    reason = f"{reach.reason}; it covers a flow of priority {hidden.priority}, which never matches"
    return replace(reach, reason=reason, shadowed=hidden)


def _culprit(cycle: Sequence[Quote]) -> Quote:
    """Return the flow of a loop that sends the packet back: to a table not after its own."""
    following = [*cycle[1:], cycle[0]]
    back = [
        flow
        for flow, after in zip(cycle, following, strict=True)
        if flow.bridge == after.bridge and after.table <= flow.table
    ]
    return back[0] if back else cycle[-1]


def _component(host: str, end: End, flow: Quote | None) -> Component:
    if flow or end.kind == "tunnelled" or (end.table < 0 and end.port):
        return setter(host, end, flow)
    return flow_table(host, end.bridge, end.table) if end.bridge else vswitch(host)


def _explained(end: End, reason: str) -> str:
    if not end.nearest:
        return reason
    return f"{reason}; the nearest flow differs in {end.field}"


def setter(host: str, end: End, flow: Quote | None) -> Component:
    """Name the flow that set a tunnel's address or key, or the tunnel port if no flow did."""
    return flow_table(host, flow.bridge, flow.table) if flow else tunnel(host, end.port)


def _bounced(reach: Reach, egress: LocalWalk, end: End, ingress: LocalWalk, far: End) -> Reach:
    """Call it a loop if the far end tunnels the packet straight back to where it came from."""
    if far.kind != "tunnelled" or far.tun_dst != end.tun_src:
        return reach
    reason = f"{ingress.host} tunnels it back to {egress.host}"
    return Reach("loop", reach.component, reason, far.flow, steps=reach.steps)


def _steps(walked: LocalWalk, level: int) -> tuple[Step, ...]:
    host = walked.host
    head = Step(level, host, f"in by {walked.port}" if walked.port else "in", host)
    steps = [Step(level + 1 + step.level, step.where, step.text, host) for step in walked.steps]
    if walked.opinion is not None:
        steps.append(Step(level + 1, "", str(walked.opinion), host))
    return (head, *steps)
