# SPDX-License-Identifier: Apache-2.0
"""Flow tables of any size for benchmarks: the lab's pipeline, with filters as a cloud has them.

A host has up to 64 endpoints of its own. Every other endpoint, elsewhere, costs three flows (ARP,
destination, tunnel); every tenth flow is a filter by prefix and ports in a table of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

CLASSIFY, ADMISSION, ARP, DESTINATION, TUNNEL, DELIVERY, FILTER = 0, 10, 20, 30, 40, 50, 25
MAX_LOCAL = 64
TUNNEL_PORT = 1000
VNIS = 2


@dataclass(frozen=True, slots=True)
class Peer:
    """One endpoint."""

    number: int
    port: int
    """OpenFlow port; 0 for one on another host."""

    @property
    def vni(self) -> int:
        """Its tenant's."""
        return 1000 + self.number % VNIS

    @property
    def mac(self) -> str:
        """Hardware address."""
        return ":".join(f"{byte:02x}" for byte in (2, 0, *self.number.to_bytes(4, "big")))

    @property
    def address(self) -> str:
        """Overlay address."""
        return _dotted(10 << 24 | self.number + 256)

    @property
    def vtep(self) -> str:
        """Underlay address of its host."""
        return _dotted(198 << 24 | 18 << 16 | self.number // MAX_LOCAL + 256)


def _dotted(value: int) -> str:
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))


def peers(count: int) -> list[Peer]:
    """Return the endpoints of a host with about `count` flows, its own first."""
    local = max(2, min(MAX_LOCAL, count // 40))
    remote = max(2, (count * 9 // 10 - 5 * local) // 3)
    return [Peer(n, n + 1) for n in range(local)] + [Peer(local + n, 0) for n in range(remote)]


def flows(count: int) -> Iterator[str]:
    """Yield about `count` flows, as `ovs-ofctl add-flows` takes them."""
    made = 0
    for one in _flows(peers(count)):
        made += 1
        yield one
    rules = max(0, count - made)
    for n in range(rules):
        length, port = 16 + n % 9, 1024 + n * 7 % 60000
        prefix = _dotted((172 << 24 | 16 << 16) + (n << 8) & ~((1 << 32 - length) - 1))
        proto = ("udp,udp_dst", "tcp,tcp_dst")[n % 2]
        match = f"{proto}={port},nw_src={prefix}/{length}"
        yield f"cookie=0x19,table={FILTER},priority={200 + n % 50},{match},actions=drop"


def _flows(everyone: list[Peer]) -> Iterator[str]:
    yield (
        f"cookie=0x1,table={CLASSIFY},priority=100,in_port={TUNNEL_PORT},actions="
        f"move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[],set_field:0x1->reg3,resubmit(,{DESTINATION})"
    )
    yield f"cookie=0x19,table={FILTER},priority=1,actions=resubmit(,{DESTINATION})"
    for peer in everyone:
        there = f"reg0={peer.vni:#x},dl_dst={peer.mac}"
        yield (
            f"cookie=0x14,table={ARP},priority=100,arp,reg0={peer.vni:#x},arp_op=1,"
            f"arp_tpa={peer.address},actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],"
            f"set_field:{peer.mac}->eth_src,set_field:2->arp_op,in_port"
        )
        if peer.port:
            head = f"in_port={peer.port}"
            yield (
                f"cookie=0x1,table={CLASSIFY},priority=100,{head},actions="
                f"set_field:{peer.vni:#x}->reg0,resubmit(,{ADMISSION})"
            )
            yield (
                f"cookie=0xa,table={ADMISSION},priority=100,ip,{head},dl_src={peer.mac},"
                f"nw_src={peer.address},actions=resubmit(,{FILTER})"
            )
            yield (
                f"cookie=0x1e,table={DESTINATION},priority=100,{there},actions="
                f"set_field:{peer.port:#x}->reg2,resubmit(,{DELIVERY})"
            )
            out = f"reg2={peer.port:#x},actions=output:{peer.port}"
            yield f"cookie=0x32,table={DELIVERY},priority=100,{out}"
        else:
            yield (
                f"cookie=0x1e,table={DESTINATION},priority=100,{there},reg3=0x0,actions="
                f"resubmit(,{TUNNEL})"
            )
            yield (
                f"cookie=0x28,table={TUNNEL},priority=100,{there},actions="
                f"set_field:{peer.vni:#x}->tun_id,set_field:{peer.vtep}->tun_dst,"
                f"output:{TUNNEL_PORT}"
            )
