# SPDX-License-Identifier: Apache-2.0
"""Tunnels: by the kernel, which gets the outer header, or by Open vSwitch, which builds it.

Follows `tnl_port_send()`, `native_tunnel_output()` and `netdev-native-tnl.c`.
"""

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from ovs_checks.openflow.addresses import either_or_zero, text_of
from ovs_checks.openflow.describe import hex_text
from ovs_checks.openflow.notation import (
    TUN_FLAGS,
    format_flags,
    format_ipv4,
    format_ipv6,
    format_mac,
    integer,
    ipv4,
    ipv6,
    mac,
    or_zero,
)
from ovs_checks.openflow.packet import (
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    ICMPV6,
    SLOTS,
    TUN_CSUM,
    TUN_DF,
    TUN_KEY,
    TUN_METADATA_LANE,
    TUN_OAM,
    TUNNEL,
    UDP,
    is_ip,
)
from ovs_checks.switch.snapshot import Bridge, Port, Route, Tunnel
from ovs_checks.translate import datapath
from ovs_checks.translate.commit import commit, commit_tunnel
from ovs_checks.translate.context import Context
from ovs_checks.translate.ends import Quote
from ovs_checks.translate.origins import TUN_DST, TUN_DST6, TUN_ID

_S = SLOTS
_SRC4, _DST4, _SRC6, _DST6 = (
    _S[name] for name in ("tun_src", "tun_dst", "tun_ipv6_src", "tun_ipv6_dst")
)
_FLAGS, _TOS, _TTL = _S["tun_flags"], _S["tun_tos"], _S["tun_ttl"]
_TP_SRC, _TP_DST = _S["tun_tp_src"], _S["tun_tp_dst"]
_NW_TOS, _NW_TTL, _MARK = _S["nw_tos"], _S["nw_ttl"], _S["pkt_mark"]
_PACKET_TYPE = _S["packet_type"]

Through = Callable[[Context, Port, bool], None]
"""`patch.through`: go on in the bridge that the outer packet leaves by."""


@dataclass(frozen=True, slots=True)
class _Outer:
    """The outer header that Open vSwitch builds."""

    device: str
    bridge: Bridge
    port: Port
    source: str
    hop: str
    smac: int
    dmac: int


def into_tunnel(
    x: Context, port: Port, tunnel: Tunnel, through: Through, *, last: bool, truncate: bool
) -> None:
    """Send the packet into a tunnel, whose metadata it has afterwards only if that is refused."""
    saved = [x.flow[slot] for slot in TUNNEL]
    _address(x, tunnel)
    by_flow = tunnel.remote_ip == "flow"
    nowhere = not (x.flow[_DST4] or x.flow[_DST6])
    if (x.flow[_DST4], x.flow[_DST6]) == x.arrived_at:  # both may be nowhere
        x.tell("warn", "Not tunneling to our own address")
        address = text_of(x.flow[_DST4], x.flow[_DST6])
        reason = f"{address} is the address at which it came in by a tunnel"
        nothing = f"no tunnel destination is set for {port.name}"
        x.excuse(nothing if nowhere else reason, port.name)
        return
    if x.features.tunnel_push_pop:
        x.tell("detail", "output to native tunnel")
        commit(x)
        sent = _native(x, port, tunnel, through, last=last, truncate=truncate)
    else:
        x.tell("detail", "output to kernel tunnel")
        _kernel(x, port, tunnel)
        sent = True
    if nowhere:
        x.excuse(f"no tunnel destination is set for {port.name}", port.name)
    elif sent:
        _note(x, port, tunnel, by_flow=by_flow)
    for slot, value in zip(TUNNEL, saved, strict=True):
        x.flow[slot] = value


def _kernel(x: Context, port: Port, tunnel: Tunnel) -> None:
    """Tell the kernel the outer header and hand it the packet."""
    if x.flow[_DST4] or x.flow[_DST6]:
        commit_tunnel(x, _spell(x, tunnel))
    commit(x)
    x.steps.append(datapath.output(port.datapath, port.name))


def _note(x: Context, port: Port, tunnel: Tunnel, *, by_flow: bool) -> None:
    """Note that a copy left by a tunnel, and where its address and key come from."""
    if x.copying:
        return
    remote, local = text_of(x.flow[_DST4], x.flow[_DST6]), text_of(x.flow[_SRC4], x.flow[_SRC6])
    tun_id = x.flow[TUN_ID]
    key_by = x.origins.get(TUN_ID)
    dst_by = x.origins.get(TUN_DST if x.flow[_DST4] else TUN_DST6)
    bridge = x.bridge.name
    end = x.end(
        "tunnelled",
        f"out by {port.name} to {remote}, key {tun_id}",
        port.name,
        tun_id=tun_id,
        tun_src=local,
        tun_dst=remote,
        options=geneve_options(x) if tunnel.kind == "geneve" else "",
        tun_id_by=Quote.of(bridge, key_by) if key_by and tunnel.out_key == "flow" else None,
        tun_dst_by=Quote.of(bridge, dst_by) if dst_by and by_flow else None,
    )
    x.finish(end)


def _address(x: Context, tunnel: Tunnel) -> None:
    """Put the port's settings on the packet (`tnl_port_send`)."""
    flow = x.flow
    if tunnel.local_ip != "flow":
        flow[_SRC4], flow[_SRC6] = either_or_zero(tunnel.local_ip)
    if tunnel.remote_ip != "flow":
        flow[_DST4], flow[_DST6] = either_or_zero(tunnel.remote_ip)
    flow[_TP_DST] = tunnel.dst_port
    if x.snapshot.release >= (3, 5):
        flow[_TP_SRC] = 0
    if tunnel.out_key != "flow":
        flow[TUN_ID] = or_zero(integer, tunnel.out_key) & (1 << 64) - 1
    ip = is_ip(flow)
    ttl, tos = tunnel.option("ttl", "64"), tunnel.option("tos", "0")
    if ttl == "inherit" and ip:
        x.looked[_NW_TTL] = 0xFF
        flow[_TTL] = flow[_NW_TTL]
    else:
        flow[_TTL] = or_zero(integer, ttl) if ttl != "inherit" else 64
    if tos == "inherit" and ip:
        x.looked[_NW_TOS] |= 0xFC
        flow[_TOS] = flow[_NW_TOS] & 0xFC
    else:
        flow[_TOS] = or_zero(integer, tos) if tos != "inherit" else 0
    if ip:  # the outer header always gets ECN, but never "congestion experienced"
        x.looked[_NW_TOS] |= 3
        ecn = flow[_NW_TOS] & 3
        flow[_TOS] |= 2 if ecn == 3 else ecn
    flow[_FLAGS] &= TUN_OAM
    flow[_FLAGS] |= TUN_DF if tunnel.option("df_default", "true") != "false" else 0
    flow[_FLAGS] |= TUN_CSUM if _checksums(x, tunnel) else 0
    flow[_FLAGS] |= TUN_KEY if tunnel.out_key else 0
    if tunnel.kind in {"erspan", "ip6erspan"}:
        _mirrored(x, tunnel)
    mark = tunnel.option("egress_pkt_mark")
    if mark:
        flow[_MARK] = or_zero(integer, mark)
        x.looked[_MARK] = 0xFFFFFFFF


def _mirrored(x: Context, tunnel: Tunnel) -> None:
    """Put the settings of ERSPAN on the packet, except those that flows have set."""
    for name, base in (("ver", 10), ("idx", 16), ("dir", 10), ("hwid", 16)):
        option = f"erspan_{name}"
        if "flow" not in {tunnel.option(option), tunnel.option("erspan_ver")}:
            value = or_zero(partial(int, base=base), tunnel.option(option))
            x.flow[_S[f"tun_{option}"]] = value


def _checksums(x: Context, tunnel: Tunnel) -> bool:
    default = tunnel.kind == "stt"
    if tunnel.kind in {"vxlan", "geneve"} and x.snapshot.release >= (3, 4):
        default = not x.flow[_DST4]
    return {"true": True, "false": False}.get(tunnel.option("csum"), default)


def _spell(x: Context, tunnel: Tunnel) -> str:
    """Return the tunnel key in the datapath's words (`tun_key_to_attr`)."""
    flow, parts = x.flow, []
    if flow[TUN_ID] or flow[_FLAGS] & TUN_KEY:
        parts.append(f"tun_id={hex_text(flow[TUN_ID])}")
    for slot, name in ((_SRC4, "src"), (_DST4, "dst")):
        if flow[slot]:
            parts.append(f"{name}={format_ipv4(flow[slot])}")
    for slot, name in ((_SRC6, "ipv6_src"), (_DST6, "ipv6_dst")):
        if flow[slot]:
            parts.append(f"{name}={format_ipv6(flow[slot])}")
    if flow[_TOS]:
        parts.append(f"tos={flow[_TOS]:#x}")
    parts.append(f"ttl={flow[_TTL]}")
    if flow[_TP_SRC]:
        parts.append(f"tp_src={flow[_TP_SRC]}")
    if flow[_TP_DST]:
        parts.append(f"tp_dst={flow[_TP_DST]}")
    parts += _extensions(x, tunnel)
    parts.append(f"flags({format_flags(flow[_FLAGS] & 0xF, TUN_FLAGS)})")
    return ",".join(parts)


def _extensions(x: Context, tunnel: Tunnel) -> list[str]:
    header = x.header
    if tunnel.kind == "vxlan" and (header.tun_gbp_id or header.tun_gbp_flags):
        flags = f",flags={header.tun_gbp_flags:#x}" if header.tun_gbp_flags else ",flags=0"
        return [f"vxlan(gbp(id={header.tun_gbp_id}{flags}))"]
    if tunnel.kind == "geneve" and (options := geneve_options(x)):
        return [f"geneve({options})"]
    if tunnel.kind in {"erspan", "ip6erspan"} and header.tun_erspan_ver == 1:
        return [f"erspan(ver=1,idx={header.tun_erspan_idx:#x})"]
    if tunnel.kind in {"erspan", "ip6erspan"} and header.tun_erspan_ver == 2:
        hardware = header.tun_erspan_hwid & 0xF  # the datapath shows its lower half only
        return [f"erspan(ver=2,dir={header.tun_erspan_dir},hwid={hardware:#x})"]
    if tunnel.kind == "gtpu" and header.tun_gtpu_flags and header.tun_gtpu_msgtype:
        return [f"gtpu(flags={header.tun_gtpu_flags:#x},msgtype={header.tun_gtpu_msgtype})"]
    return []


def geneve_options(x: Context) -> str:
    """Return the options that the bridge's mapping makes of the packet's tunnel metadata."""
    header, lane = x.header, (1 << TUN_METADATA_LANE) - 1
    said = []
    for option in x.bridge.options:
        if header.tun_present >> option.index & 1:
            value = header.tun_metadata >> option.index * TUN_METADATA_LANE & lane
            digits = f"{value:x}" if value else ("0" if option.length else "")
            data = f",0x{digits}" if option.length else ""
            said.append(
                f"{{class={hex_text(option.option_class)},type={hex_text(option.type)},"
                f"len={option.length}{data}}}"
            )
    return "".join(said)


# --- by Open vSwitch itself ----------------------------------------------------------------------


def best_route(routes: Iterable[Route], address: str, mark: int = 0) -> Route | None:
    """Return the route to an address (`ovs_router_lookup`)."""
    target = ipaddress.ip_address(address)
    fitting = [
        (network.prefixlen + (64 if route.local else 32 * route.priority), n, route)
        for n, route in enumerate(routes)
        for network in [ipaddress.ip_network(route.prefix, strict=False)]
        if network.version == target.version and target in network and route.mark in {0, mark}
    ]
    return max(fitting)[2] if fitting else None


def is_own(routes: Iterable[Route], address: str, mark: int) -> bool:
    """Tell whether a tunnel may have this address as its source (`ovs_router_lookup`)."""
    route = best_route(routes, address, mark)
    return route is not None and route.local


def _native(
    x: Context, port: Port, tunnel: Tunnel, through: Through, *, last: bool, truncate: bool
) -> bool:
    outer = _outer(x, port)
    if outer is None or port.datapath is None:
        return False
    header = _header(x, tunnel, outer)
    push = datapath.Step(
        f"tnl_push(tnl_port({port.datapath}),{header},out_port({outer.port.datapath}))",
        120,
        "tunnel",
    )
    if truncate:
        x.steps.append(datapath.clone([push, datapath.recirculate(0)]))
        return True
    flow, base, looked, steps = list(x.flow), list(x.base), x.looked, x.steps
    ends = x.ends
    _wrap(x, outer, tunnel)
    x.looked, x.steps, x.ends = [0] * len(looked), [], []
    through(x, outer.port, last)
    inner, outer_ends = x.steps, x.ends
    x.looked, x.steps, x.ends = looked, steps, ends
    x.flow[:], x.base[:] = flow, base
    if inner:
        x.steps.append(datapath.clone([push, *inner]))
        return True
    x.ends += outer_ends
    return False


def _outer(x: Context, port: Port) -> _Outer | None:
    """Find the way of the outer packet; None, with a line that says why, where there is none."""
    destination = text_of(x.flow[_DST4], x.flow[_DST6])
    source, routes = text_of(x.flow[_SRC4], x.flow[_SRC6]), x.snapshot.routes
    if source and not is_own(routes, source, x.flow[_MARK]):
        x.tell("warn", "native tunnel routing failed")
        x.excuse(f"{source}, from which it is to be sent, is no address of this host", port.name)
        return None
    route = best_route(routes, destination, x.flow[_MARK]) if destination else None
    found = _device(x, route.device) if route else None
    if route is None or found is None:
        x.tell("warn", "native tunnel routing failed")
        if destination:
            x.excuse(f"there is no route to {destination}", port.name)
        return None
    hop = route.gateway if route.gateway not in {"", "0.0.0.0", "::"} else destination
    x.tell("detail", f"tunneling to {hop} via {route.device}")
    bridge, out = found
    near = next(
        (one for one in x.snapshot.neighbours if (one.bridge, one.address) == (bridge.name, hop)),
        None,
    )
    if near is None:
        asked = "ND" if ":" in hop else "ARP"
        x.tell("detail", f"neighbor cache miss for {hop} on bridge {bridge.name}, "
                         f"sending {asked} request")  # fmt: skip
        x.excuse(f"the address of {hop} on {bridge.name} is not known", port.name)  # fmt: skip
        return None
    source = text_of(x.flow[_SRC4], x.flow[_SRC6]) or route.source
    x.tell("detail", f"tunneling from {out.mac} {source} to {near.mac} {hop}")
    return _Outer(route.device, bridge, out, source, hop, or_zero(mac, out.mac), mac(near.mac))


def _device(x: Context, device: str) -> tuple[Bridge, Port] | None:
    """Return the port of that name: a bridge's own one before any other."""
    for bridge in x.snapshot.bridges:
        if bridge.name == device and device in bridge.by_name:
            return bridge, bridge.by_name[device]
    port = x.snapshot.port(device)
    return (x.snapshot.by_name[port.bridge], port) if port else None


_NUMBERS = {"gre": (3, 109), "ip6gre": (3, 109), "vxlan": (4, 4), "geneve": (5, 5),
            "erspan": (107, 108), "ip6erspan": (107, 108), "gtpu": (110, 110)}  # fmt: skip
"""What the datapath calls tunnels, over IPv4 and over IPv6 (`enum ovs_vport_type`)."""

_OVER_GRE = frozenset({"gre", "ip6gre", "erspan", "ip6erspan"})


def _header(x: Context, tunnel: Tunnel, outer: _Outer) -> str:
    flow, v6 = x.flow, ":" in outer.source
    protocol = 47 if tunnel.kind in _OVER_GRE else UDP
    own, size = _own_header(x, tunnel, v6=v6)
    kind = ETH_IPV6 if v6 else ETH_IPV4
    ethernet = (
        f"eth(dst={format_mac(outer.dmac)},src={format_mac(outer.smac)},dl_type=0x{kind:04x})"
    )
    if v6:
        destination = format_ipv6(flow[_DST6])
        network = (
            f"ipv6(src={outer.source},dst={destination},label=0,proto={protocol},"
            f"tclass=0x{flow[_TOS]:x},hlimit={flow[_TTL]})"
        )
    else:
        fragment = 0x4000 if flow[_FLAGS] & TUN_DF else 0
        network = (
            f"ipv4(src={outer.source},dst={format_ipv4(flow[_DST4])},proto={protocol},"
            f"tos={hex_text(flow[_TOS])},ttl={flow[_TTL]},frag=0x{fragment:x})"
        )
    total = 14 + (40 if v6 else 20) + size
    number = _NUMBERS.get(tunnel.kind, (0, 0))[v6]
    return f"header(size={total},type={number},{ethernet},{network},{own})"


def _own_header(x: Context, tunnel: Tunnel, *, v6: bool) -> tuple[str, int]:
    """Return the tunnel's own header in words, and its size."""
    flow, key = x.flow, x.flow[TUN_ID]
    always = v6 and x.snapshot.release < (3, 4)
    checksum = 0xFFFF if always or flow[_FLAGS] & TUN_CSUM else 0
    udp = f"udp(src=0,dst={flow[_TP_DST]},csum=0x{checksum:x})"
    match tunnel.kind:
        case "vxlan":
            return f"{udp},vxlan(flags=0x{_vxlan_flags(x, tunnel):x},vni=0x{key & 0xFFFFFF:x})", 16
        case "geneve":
            own, size = _geneve(x)
            return f"{udp},{own}", 8 + size
        case "gtpu":
            own, size = _gtpu(x, tunnel)
            return f"{udp},{own}", 8 + size
        case "gre" | "ip6gre":
            return _gre(x, tunnel)
        case "erspan" | "ip6erspan":
            return _erspan(x)
        case _:
            raise x.give_up(f"tunnels of type {tunnel.kind}")


_GPE_PROTOCOLS = {ETH_IPV4: 1, ETH_IPV6: 2, 0x894F: 4}
"""Ethernet type -> next protocol of VXLAN-GPE (TUN_P_IPV4 and the like,
include/net/tun_proto.h)."""
_GPE_ETHERNET = 3
"""Next protocol of VXLAN-GPE for an Ethernet frame (`TUN_P_ETHERNET`, include/net/tun_proto.h)."""


def _vxlan_flags(x: Context, tunnel: Tunnel) -> int:
    """Return the first word of the header; with `exts=gpe` it says what is inside."""
    if "gpe" not in tunnel.option("exts").split(","):
        return 0x08000000
    inside = x.flow[_PACKET_TYPE]
    protocol = _GPE_PROTOCOLS.get(inside & 0xFFFF) if inside else _GPE_ETHERNET
    if protocol is None:
        raise x.give_up(f"VXLAN-GPE with packets of type 0x{inside & 0xFFFF:x}")
    return 0x0C000000 | protocol


def _geneve(x: Context) -> tuple[str, int]:
    carried = [one for one in x.bridge.options if x.header.tun_present >> one.index & 1]
    options = geneve_options(x)
    words = "oam," if x.flow[_FLAGS] & TUN_OAM else ""
    words += "crit," if any(one.type & 0x80 for one in carried) else ""
    tail = f",options({options})" if options else ""
    size = 8 + sum(4 + one.length for one in carried)
    return f"geneve({words}vni=0x{x.flow[TUN_ID] & 0xFFFFFF:x}{tail})", size


def _gtpu(x: Context, tunnel: Tunnel) -> tuple[str, int]:
    header = x.header
    numbered = tunnel.option("seq") == "true"
    flags = (header.tun_gtpu_flags or 0x30) | (2 if numbered else 0)
    kind = header.tun_gtpu_msgtype or 255
    own = f"gtpu(flags=0x{flags:x},msgtype={kind},teid=0x{x.flow[TUN_ID] & 0xFFFFFFFF:x})"
    return own, 12 if numbered else 8


def _gre(x: Context, tunnel: Tunnel) -> tuple[str, int]:
    flags, size, tail = 0, 4, ""
    if x.flow[_FLAGS] & TUN_CSUM:
        flags, size, tail = flags | 0x8000, size + 4, ",csum=0x0"
    if tunnel.out_key:
        flags, size = flags | 0x2000, size + 4
        tail += f",key=0x{x.flow[TUN_ID] & 0xFFFFFFFF:x}"
    if tunnel.option("seq") == "true":
        flags, size, tail = flags | 0x1000, size + 4, f"{tail},seq=0x0"
    protocol = x.flow[_PACKET_TYPE] & 0xFFFF or _BRIDGED
    return f"gre((flags=0x{flags:x},proto=0x{protocol:x}){tail})", size


_BRIDGED = 0x6558
"""Ethernet type by which GRE names an Ethernet frame (`ETH_P_TEB`, linux/if_ether.h)."""


def _erspan(x: Context) -> tuple[str, int]:
    header, session = x.header, x.flow[TUN_ID]
    if session > 0x3FF or header.tun_erspan_ver not in {1, 2}:
        raise x.give_up(f"ERSPAN {header.tun_erspan_ver} with session {session}")
    said = f"erspan(ver={header.tun_erspan_ver},sid=0x{session:x}"
    if header.tun_erspan_ver == 1:
        return f"{said},idx=0x{header.tun_erspan_idx:x})", 16
    return f"{said},dir={header.tun_erspan_dir},hwid=0x{header.tun_erspan_hwid:x})", 20


def _wrap(x: Context, outer: _Outer, tunnel: Tunnel) -> None:
    """Make the packet what it is on the underlay (`propagate_tunnel_data_to_flow`)."""
    flow, v6 = x.flow, ":" in outer.source
    new = {
        "eth_dst": outer.dmac,
        "eth_src": outer.smac,
        "packet_type": 0,
        **dict.fromkeys(("vlan_tpid", "vlan_tci", "vlan_tpid1", "vlan_tci1"), 0),
        "nw_dst": flow[_DST4],
        "nw_src": flow[_SRC4] or (0 if v6 else or_zero(ipv4, outer.source)),
        "ipv6_dst": flow[_DST6],
        "ipv6_src": flow[_SRC6] or (or_zero(ipv6, outer.source) if v6 else 0),
        "nw_frag": 0,
        "nw_tos": flow[_TOS],
        "nw_ttl": flow[_TTL],
        "tp_dst": flow[_TP_DST],
        "tp_src": flow[_TP_SRC],
        "eth_type": ETH_IPV6 if v6 else ETH_IPV4,
        "nw_proto": 47 if tunnel.kind in _OVER_GRE else UDP,
    }
    for name, value in new.items():
        x.base[_S[name]] = flow[_S[name]] = value


def reached(x: Context, port: Port) -> int | None:
    """Return the tunnel port that takes what goes to `port`, if it is for a tunnel's address."""
    if not x.features.tunnel_push_pop or not x.snapshot.listeners:
        return None
    if not any(one.mac == port.mac for one in x.snapshot.listeners):
        return None
    header = x.header
    for slot in ("eth_dst", "nw_proto"):
        x.looked[_S[slot]] |= (1 << 48) - 1 if slot == "eth_dst" else 0xFF
    if header.eth_type == ETH_ARP or header.nw_proto == ICMPV6:
        return None
    for one in x.snapshot.listeners:
        v6 = ":" in one.address
        address = or_zero(ipv6 if v6 else ipv4, one.address)
        target = header.ipv6_dst if v6 else header.nw_dst
        kind = ETH_IPV6 if v6 else ETH_IPV4
        fits = (header.eth_type, header.eth_dst, header.nw_proto) == (
            kind,
            mac(one.mac),
            one.protocol,
        )
        if fits and target == address and (one.port == header.tp_dst or not one.port):
            return one.datapath
    return None
