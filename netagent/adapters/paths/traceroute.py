# SPDX-License-Identifier: Apache-2.0
"""Sends TTL-limited packets in the host's namespace and hears the routers' answers.

A router without a route answers "unreachable" before it looks at the TTL: an answer as well.

The payload is zeros: too short for a tunnel's header, or of VXLAN without the flag that marks a VNI
as valid (RFC 7348, section 5), or of Geneve without a protocol inside that one is used for (RFC
8926, section 3.4). So a VTEP drops a packet that does arrive, and no tenant sees it.
"""

import socket
import struct
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from netagent.probing.paths import TtlProbe

ICMP_FILTER = 1
"""Socket option ICMP_FILTER of linux/icmp.h, at level SOL_RAW."""
_SOL_RAW = 255
"""Socket level SOL_RAW of linux/socket.h."""
_TIME_EXCEEDED = 11
"""ICMP type "time exceeded" (RFC 792)."""
_UNREACHABLE = 3
"""ICMP type "destination unreachable" (RFC 792)."""
_BY_A_ROUTER = {0, 1}
"""Codes of "unreachable": no route to the network or host. The packet did reach that router."""
_MIN_PAYLOAD = 4
"""Bytes of payload at least. Chosen: too short for a tunnel, whose header has 8."""
_SO_TIMESTAMPNS = 35
"""Socket option SO_TIMESTAMPNS of asm-generic/socket.h."""
_TIMESPEC = struct.Struct("@qq")
_IP = struct.Struct("!BBHHHBBH4s4s")
_UDP = struct.Struct("!HHHH")
_DONT_FRAGMENT = 0x4000
"""Bit of the IPv4 header's flags and offset: don't fragment (RFC 791)."""


@dataclass(slots=True)
class TraceSockets:
    """A raw socket to send with and one that hears TTL-exceeded."""

    sender: socket.socket
    listener: socket.socket
    ports: set[int] = field(default_factory=set)
    """Destination ports that packets were sent to."""

    def close(self) -> None:
        """Close both."""
        self.sender.close()
        self.listener.close()


def open_trace() -> TraceSockets:
    """Open the sockets in the current namespace; OSError without CAP_NET_RAW."""
    nonblocking_raw = socket.SOCK_RAW | socket.SOCK_NONBLOCK
    sender = socket.socket(socket.AF_INET, nonblocking_raw, socket.IPPROTO_RAW)
    try:
        listener = socket.socket(socket.AF_INET, nonblocking_raw, socket.IPPROTO_ICMP)
    except OSError:
        sender.close()
        raise
    others = 0xFFFFFFFF & ~(1 << _TIME_EXCEEDED | 1 << _UNREACHABLE)
    listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    listener.setsockopt(_SOL_RAW, ICMP_FILTER, struct.pack("@I", others))
    return TraceSockets(sender, listener)


def send(sockets: TraceSockets, probe: TtlProbe, *, size: int = 0) -> bool:
    """Send one packet of `size` bytes, headers included; False where the local kernel refused."""
    payload = bytes(max(_MIN_PAYLOAD, size - _IP.size - _UDP.size))
    length = _IP.size + _UDP.size + len(payload)
    flow = probe.flow
    header = _IP.pack(
        0x45, 0, length, probe.ident, _DONT_FRAGMENT, probe.ttl, socket.IPPROTO_UDP, 0,
        socket.inet_aton(flow.source), socket.inet_aton(flow.target),
    )  # fmt: skip
    # RFC 7348: the outer UDP checksum SHOULD be zero; Geneve's may be (RFC 8926, section 3.3).
    udp = _UDP.pack(flow.source_port, flow.target_port, _UDP.size + len(payload), 0)
    sockets.ports.add(flow.target_port)
    try:
        sockets.sender.sendto(header + udp + payload, (flow.target, 0))
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Answer:
    """A router said that the packet `ident` ran out of hops there, or that it knows no route."""

    ident: int
    router: str
    wall_ns: int


def drain(sockets: TraceSockets, *, limit: int = 256) -> Iterator[Answer]:
    """Yield the answers that wait."""
    for _ in range(limit):
        try:
            packet, ancillary, _, (router, _) = sockets.listener.recvmsg(576, 64)
        except BlockingIOError:
            return
        ident = parse(packet, sockets.ports)
        if ident is not None:
            yield Answer(ident, router, _stamp(ancillary))


def _stamp(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return 0


def parse(packet: bytes, ports: Container[int]) -> int | None:
    """Return the identification of our packet quoted in an ICMP message; None if it quotes none.

    `ports` are those that our packets go to.
    """
    outer = (packet[0] & 0x0F) * 4 if packet else 0
    quoted = outer + 8
    if len(packet) < quoted + _IP.size + 4:
        return None
    kind, code = packet[outer], packet[outer + 1]
    if kind != _TIME_EXCEEDED and (kind, code) not in {(_UNREACHABLE, c) for c in _BY_A_ROUTER}:
        return None
    fields = _IP.unpack_from(packet, quoted)
    (target_port,) = struct.unpack_from("!H", packet, quoted + (packet[quoted] & 0x0F) * 4 + 2)
    if fields[6] != socket.IPPROTO_UDP or target_port not in ports:
        return None
    return int(fields[3])
