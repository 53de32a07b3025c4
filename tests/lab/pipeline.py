# SPDX-License-Identifier: Apache-2.0
"""The OpenFlow pipeline of an integration bridge, from the desired state. Pure.

===== ================= ====================================================================
table what              result
===== ================= ====================================================================
0     classify          reg0 = VNI, reg1 = rail; reg3 = 1 if the packet came from a tunnel
10    admission         a container sends from its own addresses only
20    ARP responder     answers for every container of the tenant and rail, local or remote; what
                        asks for a neighbour by IPv6 goes to that one, by its multicast address
30    destination       by (VNI, rail, MAC): local goes to 50 with reg2 = port, remote to 40
40    tunnel selection  by (VNI, rail, MAC): tun_id, tun_dst, out of the rail's VXLAN port
50    delivery          reg2 = port number goes out of that port
===== ================= ====================================================================

What a table does not match is dropped. Packets from a tunnel never go back into one (reg3).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv6Address

from netagent.model.address import is_six
from tests.lab.shape import Shape, tunnel_ofport
from tests.lab.workload import Container, Endpoint


class Table(IntEnum):
    """The tables of the pipeline."""

    CLASSIFY = 0
    ADMISSION = 10
    ARP = 20
    DESTINATION = 30
    TUNNEL = 40
    DELIVERY = 50


_COOKIE_BASE = 0x6E610000


@dataclass(frozen=True, slots=True)
class Flow:
    """One OpenFlow rule as `ovs-ofctl` spells it."""

    table: Table
    priority: int
    match: str
    actions: str
    cookie: int

    def text(self) -> str:
        """Return the line for `ovs-ofctl add-flows`."""
        head = f"cookie={self.cookie:#x},table={int(self.table)},priority={self.priority}"
        return ",".join(part for part in (head, self.match, f"actions={self.actions}") if part)


def cookie(table: Table) -> int:
    """Return the cookie of a flow family; each table holds one family."""
    return _COOKIE_BASE | int(table)


def host_flows(shape: Shape, host: int, containers: Iterable[Container]) -> tuple[Flow, ...]:
    """Return every flow of a host's integration bridge.

    `containers` are all that run in the lab, on any host and of any tenant.
    """
    flows = [_from_tunnel(rail) for rail in range(shape.rails)]
    flows.append(_flow(Table.ADMISSION, 0, "", "drop"))
    for container in sorted(containers):
        for rail in range(shape.rails):
            endpoint = container.endpoint(rail)
            if not is_six(endpoint.address):
                flows.append(_arp_responder(endpoint))
            flows += _local(endpoint) if container.host == host else _remote(endpoint)
    return tuple(flows)


def destination_match(endpoint: Endpoint) -> str:
    """Return the match on (tenant, rail, hardware address) that tables 30 and 40 use."""
    vni = endpoint.container.vni
    return f"reg0={vni:#x},reg1={endpoint.rail:#x},dl_dst={endpoint.mac}"


def tunnel_flow(endpoint: Endpoint, *, remote: str | None = None, vni: int | None = None) -> Flow:
    """Return the flow of table 40 towards `endpoint`; a fault gives a wrong remote or VNI."""
    return _flow(
        Table.TUNNEL, 100, destination_match(endpoint), _through_tunnel(endpoint, remote, vni)
    )


def _through_tunnel(endpoint: Endpoint, remote: str | None = None, vni: int | None = None) -> str:
    to = remote or endpoint.vtep
    return (
        f"set_field:{endpoint.container.vni if vni is None else vni:#x}->tun_id,"
        f"set_field:{to}->{'tun_ipv6_dst' if is_six(to) else 'tun_dst'},"
        f"output:{tunnel_ofport(endpoint.rail)}"
    )


def _flow(table: Table, priority: int, match: str, actions: str) -> Flow:
    return Flow(table, priority, match, actions, cookie(table))


def _from_tunnel(rail: int) -> Flow:
    return _flow(
        Table.CLASSIFY,
        100,
        f"in_port={tunnel_ofport(rail)}",
        "move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[],"
        f"set_field:{rail:#x}->reg1,set_field:0x1->reg3,resubmit(,{int(Table.DESTINATION)})",
    )


def _local(endpoint: Endpoint) -> Iterator[Flow]:
    """Yield the flows of an endpoint on its own host."""
    port, vni = endpoint.ofport, endpoint.container.vni
    yield _flow(
        Table.CLASSIFY,
        100,
        f"in_port={port}",
        f"set_field:{vni:#x}->reg0,set_field:{endpoint.rail:#x}->reg1,"
        f"resubmit(,{int(Table.ADMISSION)})",
    )
    onward = f"resubmit(,{int(Table.DESTINATION)})"
    for match, actions in _admitted(endpoint):
        sender = f"in_port={port},dl_src={endpoint.mac}"
        yield _flow(Table.ADMISSION, 100, f"{sender},{match}", actions or onward)
    for match in _destinations(endpoint):
        delivery = f"set_field:{port:#x}->reg2,resubmit(,{int(Table.DELIVERY)})"
        yield _flow(Table.DESTINATION, 100, match, delivery)
    yield _flow(Table.DELIVERY, 100, f"reg2={port:#x}", f"output:{port}")


def _admitted(endpoint: Endpoint) -> Iterator[tuple[str, str]]:
    """Yield what a container may send, and what is done with it if it is not sent onward."""
    if is_six(endpoint.address):
        yield f"ipv6,ipv6_src={endpoint.address}", ""
        # The kernel asks again from an address that holds on the link alone.
        yield f"icmp6,icmp_type=135,icmp_code=0,nd_sll={endpoint.mac}", ""
    else:
        own = f"arp,arp_sha={endpoint.mac},arp_spa={endpoint.address}"
        yield own, f"resubmit(,{int(Table.ARP)})"
        yield f"ip,nw_src={endpoint.address}", ""


def _destinations(endpoint: Endpoint) -> Iterator[str]:
    """Yield the matches on what is for an endpoint: also who asks for it by IPv6 (RFC 4861)."""
    match = destination_match(endpoint)
    yield match
    if is_six(endpoint.address):
        # RFC 4291, section 2.7.1, and RFC 2464, section 7: no other endpoint of the rail has it.
        last = IPv6Address(endpoint.address).packed[-3:].hex(":")
        asked = match.replace(endpoint.mac, f"33:33:ff:{last}")
        yield f"{asked},icmp6,icmp_type=135"


def _remote(endpoint: Endpoint) -> Iterator[Flow]:
    """Yield the flows towards an endpoint of another host."""
    match, *asked = _destinations(endpoint)
    to_tunnel = f"resubmit(,{int(Table.TUNNEL)})"
    yield _flow(Table.DESTINATION, 100, f"{match},reg3=0", to_tunnel)
    yield tunnel_flow(endpoint)
    for each in asked:
        yield _flow(Table.DESTINATION, 100, f"{each},reg3=0", to_tunnel)
        yield _flow(Table.TUNNEL, 100, each, _through_tunnel(endpoint))


def _arp_responder(endpoint: Endpoint) -> Flow:
    vni, mac, address = endpoint.container.vni, endpoint.mac, endpoint.address
    return _flow(
        Table.ARP,
        100,
        f"arp,reg0={vni:#x},reg1={endpoint.rail:#x},arp_op=1,arp_tpa={address}",
        "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],"
        f"set_field:{mac}->eth_src,"
        "set_field:2->arp_op,"
        "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],"
        "move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],"
        f"set_field:{mac}->arp_sha,"
        f"set_field:{address}->arp_spa,"
        "in_port",
    )
