# SPDX-License-Identifier: Apache-2.0
"""Snapshots to ask questions of: small bridges from text, and hosts with the lab's pipeline."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from ipaddress import IPv6Address

from netagent.model.path import Component
from ovs_checks.openflow.packet import Header
from ovs_checks.openflow.parse import parse_dump, parse_header
from ovs_checks.switch.shows import parse_fdb
from ovs_checks.switch.snapshot import Bridge, Port, Snapshot
from tests.lab.pipeline import host_flows
from tests.lab.shape import Shape, tunnel, tunnel_ofport, vtep
from tests.lab.workload import Container, Endpoint

SHAPE = Shape()
TASKS = ("train-a", "train-b")
CONTAINERS = tuple(Container(task, host) for task in TASKS for host in range(SHAPE.hosts))
A0, A1, A2 = (Container("train-a", host).endpoint(0) for host in range(3))


def bridge(name: str, flows: str, *, ports: Iterable[Port] = (), fdb: str = "") -> Bridge:
    """Return a bridge with the flows of a dump; none of its lines may be malformed."""
    dump = parse_dump(flows)
    assert not dump.problems, dump.problems
    return Bridge(name, dump.flows, tuple(ports), parse_fdb(fdb))


def plain_ports(name: str, *numbers: int) -> tuple[Port, ...]:
    """Return ports p1, p2, ... of those numbers."""
    return tuple(Port(f"p{number}", number, name) for number in numbers)


def host(number: int, change: Callable[[list[str]], list[str]] = list) -> Snapshot:
    """Return host `number` of the lab; `change` may disturb the flows of its bridge."""
    flows = change([flow.text() for flow in host_flows(SHAPE, number, CONTAINERS)])
    ports = [
        Port(endpoint.port, endpoint.ofport, "br-int")
        for container in CONTAINERS
        if container.host == number
        for endpoint in map(container.endpoint, range(SHAPE.rails))
    ]
    ports += [_vxlan(number, rail) for rail in range(SHAPE.rails)]
    return Snapshot(f"h{number}", (bridge("br-int", "\n".join(flows), ports=ports),))


def _vxlan(number: int, rail: int) -> Port:
    options = (("key", "flow"), ("local_ip", vtep(number, rail)), ("remote_ip", "flow"))
    return Port(tunnel(rail), tunnel_ofport(rail), "br-int", "vxlan", options)


def probe(source: Endpoint, destination: Endpoint) -> Header:
    """Return the UDP packet that one endpoint sends to another."""
    return parse_header(
        f"udp,dl_src={source.mac},dl_dst={destination.mac},nw_src={source.address},"
        f"nw_dst={destination.address},nw_ttl=64,udp_src=40000,udp_dst=4791"
    )


_FAMILIES = (
    (r"\bip,", "ipv6,"),
    (r"\budp,", "udp6,"),
    (r"\bnw_(src|dst)=", r"ipv6_\1="),
    (r"->ip_dst\b", "->ipv6_dst"),
    (r"\btun_(src|dst)\b", r"tun_ipv6_\1"),
)
_NETWORKS = {"10.0": "fd00", "172.30": "fd30"}


def six(text: str) -> str:
    """Return what flows, packets and addresses of the lab are by IPv6; ARP stays as it is."""
    if "arp" in text:
        return text
    for pattern, other in _FAMILIES:
        text = re.sub(pattern, other, text)
    return re.sub(r"\b(10\.0|172\.30)\.(\d+)\.(\d+)\b", _address6, text)


def _address6(found: re.Match[str]) -> str:
    network, rail, host = found.groups()
    return str(IPv6Address(f"{_NETWORKS[network]}::{rail}:{host}"))


def host6(number: int, change: Callable[[list[str]], list[str]] = list) -> Snapshot:
    """Return host `number` of a lab that has IPv6 only; `change` disturbs its flows."""
    snapshot = host(number, lambda flows: change([six(flow) for flow in flows]))
    bridges = [
        replace(
            one,
            ports=tuple(
                replace(port, options=tuple((key, six(value)) for key, value in port.options))
                for port in one.ports
            ),
        )
        for one in snapshot.bridges
    ]
    return replace(snapshot, bridges=tuple(bridges))


def probe6(source: Endpoint, destination: Endpoint) -> Header:
    """Return the UDP packet that one endpoint sends to another by IPv6."""
    return parse_header(
        f"udp6,dl_src={source.mac},dl_dst={destination.mac},ipv6_src={six(source.address)},"
        f"ipv6_dst={six(destination.address)},nw_ttl=64,udp_src=40000,udp_dst=4791"
    )


def name_of(component: Component | None) -> str:
    """Return how a component is printed; nothing for none."""
    return str(component) if component else ""


def without(match: str, table: int) -> Callable[[list[str]], list[str]]:
    """Return the change that takes flows with these words in a table out."""
    return lambda flows: [f for f in flows if not (match in f and f"table={table}," in f)]


def adding(*lines: str) -> Callable[[list[str]], list[str]]:
    """Return the change that adds flows."""
    return lambda flows: [*flows, *lines]
