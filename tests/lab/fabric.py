# SPDX-License-Identifier: Apache-2.0
"""Build the fabric: namespaces of routers and hosts, cables, routes, management network."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pyroute2 import IPRoute

from tests.lab import namespaces
from tests.lab.commands import run
from tests.lab.errors import LabError
from tests.lab.routing import Hop, host_routes, router_routes
from tests.lab.shape import (
    ADDRESS_LENGTH,
    ANALYZER_ADDRESS,
    CENTRAL,
    CENTRAL_ADDRESS,
    MANAGEMENT_BRIDGE,
    MANAGEMENT_PREFIX_LENGTH,
    PREFIX,
    VTEP_PREFIX_LENGTH,
    Controller,
    Shape,
    management_address,
    namespace,
    rnic,
    underlay_bridge,
)

_IPV6: dict[str, int | str] = {
    # Addresses are there at once, and stay when an interface is down, as those of IPv4.
    "ipv6/conf/all/accept_dad": 0,
    "ipv6/conf/default/accept_dad": 0,
    "ipv6/conf/all/keep_addr_on_down": 1,
    "ipv6/conf/default/keep_addr_on_down": 1,
    "ipv6/conf/default/accept_ra": 0,
    "ipv6/conf/default/router_solicitations": 0,
}


def endpoint_sysctls(version: int) -> dict[str, int | str]:
    """Return the settings of a namespace with interfaces of one version of IP."""
    off = int(version == 4)  # no router solicitations through the virtual switches
    return {
        **_IPV6,
        "ipv6/conf/all/disable_ipv6": off,
        "ipv6/conf/default/disable_ipv6": off,
        "ipv4/conf/all/rp_filter": 0,
        "ipv4/conf/default/rp_filter": 0,
    }


_HOST_SYSCTLS: dict[str, int | str] = {
    "ipv6/conf/default/disable_ipv6": 1,  # RNICs have no address of their own
    # With the userspace datapath the kernel sees what arrives at an RNIC, too. It must not answer
    # ARP there for the address of the bridge, with the wrong hardware address.
    "ipv4/conf/all/arp_ignore": 1,
}

_ROUTER_SYSCTLS: dict[str, int | str] = {
    "ipv4/ip_forward": 1,
    "ipv6/conf/all/forwarding": 1,
    "ipv4/conf/all/send_redirects": 0,
    "ipv4/conf/default/send_redirects": 0,
    # Policy 1 would hash with the sending socket's txhash on veth; 3 hashes the packet:
    # 55 = source | destination | protocol | source port | destination port.
    "ipv4/fib_multipath_hash_policy": 3,
    "ipv4/fib_multipath_hash_fields": 55,
    "ipv6/fib_multipath_hash_policy": 3,
    "ipv6/fib_multipath_hash_fields": 55 + 8,  # and the flow label (RFC 6438)
    # A leaf must not hide a dead spine by leaving it out within milliseconds.
    "ipv4/conf/all/ignore_routes_with_linkdown": 0,
    "ipv4/conf/default/ignore_routes_with_linkdown": 0,
    "ipv4/icmp_ratelimit": 0,  # else TTL-exceeded comes once a second
    "ipv4/icmp_ratemask": 0,
    "ipv6/icmp/ratelimit": 0,
    "ipv6/icmp/ratemask": 0,  # type 0, which is none: else a thousand a second for all together
}


def build(shape: Shape) -> None:
    """Create all namespaces, cables and router addresses; hosts get theirs with their bridges."""
    common = endpoint_sysctls(shape.ip.underlay)
    for router in shape.router_names:
        namespaces.create(namespace(router), {**common, **_ROUTER_SYSCTLS})
    for name in shape.host_names:
        namespaces.create(namespace(name), {**common, **_HOST_SYSCTLS})
    namespaces.connect(shape.wires())
    for host in range(shape.hosts):
        plug_in(shape, host)
    for router in shape.router_names:
        configure_router(shape, router)
    build_management(shape)


_NOWHERE, _NOWHERE_END = "nowhere", "nowhere-end"
"""Interfaces of a router for what it would send over a link that is cut, and loses. As the other
one stays down, nothing arrives."""


def configure_router(shape: Shape, router: str, *, cut: Collection[str] = ()) -> None:
    """Give a router its address, links and routes; the interfaces in `cut` are down.

    As routing does not react, the routes over these lead nowhere: without any, the kernel would not
    look at the hops that are left to a packet, and answer the first one a second of all that come
    from a host.
    """
    routes, version = router_routes(shape, router), shape.ip.underlay

    def configure(ip: IPRoute) -> None:
        own, gateway = shape.router_address(router), shape.gateway(router)
        namespaces.add_address(ip, "lo", own, ADDRESS_LENGTH[version])
        if cut:
            _lead_nowhere(ip)
        for link in ip.get_links():
            interface = link.get_attr("IFLA_IFNAME")
            if interface in (_NOWHERE, _NOWHERE_END):
                continue
            ip.link("set", index=link["index"], state="down" if interface in cut else "up")
            _drop_what_has_no_neighbour(interface, version)
            if gateway != own and interface != "lo":
                namespaces.add_address(ip, interface, gateway, VTEP_PREFIX_LENGTH[version])
        # The kernel took the routes over a link that went down, and takes no new ones.
        lost = (Hop(_NOWHERE),)
        namespaces.replace_routes(
            ip,
            [replace(r, hops=lost) if {h.device for h in r.hops} & set(cut) else r for r in routes],
        )
        if not cut:
            for index in ip.link_lookup(ifname=_NOWHERE):
                ip.link("del", index=index)

    namespaces.inside(namespace(router), configure)


def _lead_nowhere(ip: IPRoute) -> None:
    if not ip.link_lookup(ifname=_NOWHERE):
        ip.link("add", ifname=_NOWHERE, kind="veth", peer={"ifname": _NOWHERE_END})
    index = namespaces.index_of(ip, _NOWHERE)
    ip.link("set", index=index, arp=False)  # else it would tell senders that nobody is there
    ip.link("set", index=index, state="up")


def _drop_what_has_no_neighbour(interface: str, version: int) -> None:
    """Let a router drop at a dead port, as a switch does, and ask again soon.

    The kernel would keep packets until the port is back and ARP answered: a flapping port would
    delay them by a second, and lose none.
    """
    neighbours = Path(f"/proc/sys/net/ipv{version}/neigh", interface)
    (neighbours / "unres_qlen_bytes").write_text("0")  # the kernel still keeps one packet
    (neighbours / "retrans_time_ms").write_text("100")


def plug_in(shape: Shape, host: int) -> None:
    """Bring a host's RNICs up."""

    def configure(ip: IPRoute) -> None:
        for rail in range(shape.rails):
            ip.link("set", index=namespaces.index_of(ip, rnic(rail)), state="up")

    namespaces.inside(namespace(f"h{host}"), configure)


def configure_host(shape: Shape, host: int) -> None:
    """Give a host's underlay bridges their addresses and routes.

    They live in ports that the virtual switch creates, and vanish with it.
    """

    def configure(ip: IPRoute) -> None:
        for rail in range(shape.rails):
            bridge = underlay_bridge(rail)
            # The prefix is there for ovs-vswitchd, which wants to see a route's destination or
            # gateway in the prefix of the source address; the network itself is not on the link.
            address, length = shape.vtep(host, rail), VTEP_PREFIX_LENGTH[shape.ip.underlay]
            if shape.ip.underlay == 6:
                Path(f"/proc/sys/net/ipv6/conf/{bridge}/disable_ipv6").write_text("0")
            namespaces.add_address(ip, bridge, address, length, connected=False)
            ip.link("set", index=namespaces.index_of(ip, bridge), state="up")
        namespaces.replace_routes(ip, host_routes(shape, host))

    namespaces.inside(namespace(f"h{host}"), configure)


def warm_up(shape: Shape, host: int, *, limit_s: int = 10) -> None:
    """Resolve the next hop of each rail, which the first tunnelled packets would wait for.

    Raises `LabError` if a next hop does not answer within `limit_s`.
    """
    for rail in range(shape.rails):
        gateway = shape.router_address(shape.leaf_of(host, rail))
        ping = ("ping", "-q", "-i", "0.05", "-c", "1", "-w", str(limit_s), gateway)
        run("ip", "netns", "exec", namespace(f"h{host}"), *ping)


def meet_leaves(shape: Shape, spine: str, *, cut: Collection[str] = ()) -> None:
    """Resolve both ends of a spine's links but those in `cut`.

    A leaf that asked in vain while the link was down asks again after 100 ms, and drops until then.
    A leaf that some other fault keeps silent is left alone after a second.
    """
    for leaf in shape.leaf_names:
        if f"to-{leaf}" not in cut:
            ping = ("ping", "-q", "-i", "0.05", "-c", "1", "-w", "1", shape.router_address(leaf))
            with suppress(LabError):
                run("ip", "netns", "exec", namespace(spine), *ping)


def build_management(shape: Shape) -> None:
    """Join the root namespace, all hosts and what controls them by a bridge."""
    members = {f"h{host}": management_address(host) for host in range(shape.hosts)}
    if shape.controller is Controller.OVN:
        namespaces.create(namespace(CENTRAL), endpoint_sysctls(4))
        members[CENTRAL] = CENTRAL_ADDRESS
    with IPRoute() as ip:
        ip.link("add", ifname=MANAGEMENT_BRIDGE, kind="bridge")
        bridge = namespaces.index_of(ip, MANAGEMENT_BRIDGE)
        ip.link("set", index=bridge, state="up")
        ip.addr("add", index=bridge, address=ANALYZER_ADDRESS, prefixlen=MANAGEMENT_PREFIX_LENGTH)
        for name, address in members.items():
            _add_management_port(ip, bridge, name, address)


def management_port(name: str) -> str:
    """Return the interface that joins a host to the management network, in the root namespace."""
    return f"{PREFIX}m-{name}"


def _add_management_port(ip: IPRoute, bridge: int, name: str, address: str) -> None:
    port = management_port(name)
    with Path("/run/netns", namespace(name)).open("rb") as inner:
        peer = {"ifname": "mgmt0", "net_ns_fd": inner.fileno()}
        ip.link("add", ifname=port, kind="veth", peer=peer)
    ip.link("set", index=namespaces.index_of(ip, port), master=bridge, state="up")

    def configure(inner: IPRoute) -> None:
        namespaces.add_address(inner, "mgmt0", address, MANAGEMENT_PREFIX_LENGTH)
        inner.link("set", index=namespaces.index_of(inner, "mgmt0"), state="up")

    namespaces.inside(namespace(name), configure)
