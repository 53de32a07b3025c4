# SPDX-License-Identifier: Apache-2.0
"""Sends packets with few hops left in the host's namespace and hears the routers' answers.

A router without a route answers "unreachable" before it looks at the hops: an answer as well.

The payload is zeros: too short for a tunnel's header, or of VXLAN without the flag that marks a VNI
as valid (RFC 7348, section 5), or of Geneve without a protocol inside that one is used for (RFC
8926, section 3.4). So a VTEP drops a packet that does arrive, and no tenant sees it.

A router quotes the packet in its answer. By IPv4 the identification in its header names it; IPv6
has none, so that two bytes of the payload do, where a tunnel's VNI would begin. No router hashes
those, and each quotes them: as much as fits into 1280 bytes (RFC 4443, section 3.3).
"""

import errno
import socket
import struct
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field

from netagent.model.address import is_six
from netagent.probing.paths import TtlProbe

ICMP_FILTER = 1
"""Socket option ICMP_FILTER of linux/icmp.h, at level SOL_RAW."""
_SOL_RAW = 255
"""Socket level SOL_RAW of linux/socket.h."""
ICMPV6_FILTER = 1
"""Socket option ICMPV6_FILTER of linux/icmpv6.h, at level IPPROTO_ICMPV6."""
_TIME_EXCEEDED, _TIME_EXCEEDED_6 = 11, 3
"""ICMP type "time exceeded" (RFC 792, RFC 4443)."""
_UNREACHABLE, _UNREACHABLE_6 = 3, 1
"""ICMP type "destination unreachable" (RFC 792, RFC 4443)."""
_BY_A_ROUTER, _BY_A_ROUTER_6 = {0, 1}, {0, 3}
"""Codes of "unreachable": no route to the network or host, or nobody there who has the address. The
packet did reach that router."""
_MIN_PAYLOAD = 4
"""Bytes of payload at least. Chosen: too short for a tunnel, whose header has 8."""
_NAMED = struct.Struct("!4xH")
"""How the payload begins inside of IPv6, for the same reason no longer."""
_SO_TIMESTAMPNS = 35
"""Socket option SO_TIMESTAMPNS of asm-generic/socket.h."""
_TIMESPEC = struct.Struct("@qq")
_IP = struct.Struct("!BBHHHBBH4s4s")
_IPV6 = struct.Struct("!IHBB16s16s")
_UDP = struct.Struct("!HHHH")
_ICMPV6_BYTES = 8
"""Bytes of an ICMPv6 message before what it quotes (RFC 4443, section 3)."""
_DONT_FRAGMENT = 0x4000
"""Bit of the IPv4 header's flags and offset: don't fragment (RFC 791)."""
_LINK_LOCAL = "fe80:"
"""How link-local addresses of IPv6 begin (RFC 4291, section 2.5.6)."""
_ANSWER_BYTES = 1280
"""Bytes read of an answer. Chosen: no answer is longer (RFC 1812, section 4.3.2.3, RFC 4443)."""


@dataclass(slots=True)
class TraceSockets:
    """Raw sockets to send with, and those that hear what routers answer."""

    sender: socket.socket
    listener: socket.socket
    six: tuple[socket.socket, socket.socket] | None = None
    """Sender and listener of IPv6; None where the kernel has none."""
    ports: set[int] = field(default_factory=set)
    """Destination ports that packets were sent to."""

    def close(self) -> None:
        """Close all."""
        for each in (self.sender, self.listener, *(self.six or ())):
            each.close()


def open_trace() -> TraceSockets:
    """Open the sockets in the current namespace; OSError without CAP_NET_RAW."""
    others = 0xFFFFFFFF & ~(1 << _TIME_EXCEEDED | 1 << _UNREACHABLE)
    sender, listener = _open(socket.AF_INET, socket.IPPROTO_ICMP)
    listener.setsockopt(_SOL_RAW, ICMP_FILTER, struct.pack("@I", others))
    opened = TraceSockets(sender, listener)
    try:
        sender, listener = _open(socket.AF_INET6, socket.IPPROTO_ICMPV6)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return opened
        opened.close()
        raise
    others = 0xFFFFFFFF & ~(1 << _TIME_EXCEEDED_6 | 1 << _UNREACHABLE_6)
    every = struct.pack("@8I", others, *[0xFFFFFFFF] * 7)
    listener.setsockopt(socket.IPPROTO_ICMPV6, ICMPV6_FILTER, every)
    opened.six = sender, listener
    return opened


def _open(family: int, answers: int) -> tuple[socket.socket, socket.socket]:
    nonblocking_raw = socket.SOCK_RAW | socket.SOCK_NONBLOCK
    sender = socket.socket(family, nonblocking_raw, socket.IPPROTO_RAW)
    try:
        listener = socket.socket(family, nonblocking_raw, answers)
    except OSError:
        sender.close()
        raise
    listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    return sender, listener


def send(sockets: TraceSockets, probe: TtlProbe, *, size: int = 0) -> bool:
    """Send one packet of `size` bytes, headers included; False where the local kernel refused."""
    flow, sender = probe.flow, sockets.sender
    sockets.ports.add(flow.target_port)
    try:
        if not is_six(flow.target):
            packet = _packet(probe, size=size)
        elif sockets.six is not None:
            packet, sender = packet_6(probe, size=size), sockets.six[0]
        else:
            return False
        sender.sendto(packet, (flow.target, 0))
    except OSError:  # also of ends that are not of one version
        return False
    return True


def _packet(probe: TtlProbe, *, size: int) -> bytes:
    payload = bytes(max(_MIN_PAYLOAD, size - _IP.size - _UDP.size))
    length = _IP.size + _UDP.size + len(payload)
    flow = probe.flow
    header = _IP.pack(
        0x45, 0, length, probe.ident, _DONT_FRAGMENT, probe.ttl, socket.IPPROTO_UDP, 0,
        socket.inet_aton(flow.source), socket.inet_aton(flow.target),
    )  # fmt: skip
    # RFC 7348: the outer UDP checksum SHOULD be zero; Geneve's may be (RFC 8926, section 3.3).
    udp = _UDP.pack(flow.source_port, flow.target_port, _UDP.size + len(payload), 0)
    return header + udp + payload


def packet_6(probe: TtlProbe, *, size: int = 0) -> bytes:
    """Return the IPv6 packet of `size` bytes, headers included, that `send` sends."""
    flow = probe.flow
    payload = _NAMED.pack(probe.ident).ljust(size - _IPV6.size - _UDP.size, b"\0")
    length = _UDP.size + len(payload)
    source, target = (socket.inet_pton(socket.AF_INET6, a) for a in (flow.source, flow.target))
    header = _IPV6.pack(6 << 28 | flow.label, length, socket.IPPROTO_UDP, probe.ttl, source, target)
    # Tunnels may leave it out (RFC 6935), but not everything on the way knows a tunnel's port.
    pseudo = source + target + struct.pack("!II", length, socket.IPPROTO_UDP)
    ports = struct.pack("!HHH", flow.source_port, flow.target_port, length)
    checksum = _checksum(pseudo + ports + payload)
    return header + ports + struct.pack("!H", checksum) + payload


def _checksum(data: bytes) -> int:
    """Return the UDP checksum of `data` (RFC 768), which is never zero."""
    words = struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2))
    # The sum of words is, by the modulus, the one that carries end around (RFC 1071).
    return ~(sum(words) % 0xFFFF) & 0xFFFF or 0xFFFF


@dataclass(frozen=True, slots=True)
class Answer:
    """A router said that the packet `ident` ran out of hops there, or that it knows no route."""

    ident: int
    router: str
    wall_ns: int


def drain(sockets: TraceSockets, *, limit: int = 256) -> Iterator[Answer]:
    """Yield the answers that wait, `limit` of each version of IP at most."""
    yield from _drain(sockets.listener, parse, sockets.ports, limit)
    if sockets.six is not None:
        yield from _drain(sockets.six[1], parse_6, sockets.ports, limit)


def _drain(
    listener: socket.socket,
    read: Callable[[bytes, Container[int]], int | None],
    ports: Container[int],
    limit: int,
) -> Iterator[Answer]:
    for _ in range(limit):
        try:
            packet, ancillary, _, (router, *_) = listener.recvmsg(_ANSWER_BYTES, 64)
        except BlockingIOError:
            return
        ident = read(packet, ports)
        # Many routers may have the same link-local address.
        if ident is not None and not router.startswith(_LINK_LOCAL):
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


def parse_6(message: bytes, ports: Container[int]) -> int | None:
    """Return what names our packet quoted in an ICMPv6 message; None if it quotes none.

    `ports` are those that our packets go to.
    """
    udp = _ICMPV6_BYTES + _IPV6.size
    payload = udp + _UDP.size
    if len(message) < payload + _NAMED.size:
        return None
    kind, code = message[0], message[1]
    if kind != _TIME_EXCEEDED_6 and (kind != _UNREACHABLE_6 or code not in _BY_A_ROUTER_6):
        return None
    first, _, protocol, *_ = _IPV6.unpack_from(message, _ICMPV6_BYTES)
    (target_port,) = struct.unpack_from("!H", message, udp + 2)
    (ident,) = _NAMED.unpack_from(message, payload)
    ours = first >> 28 == 6 and protocol == socket.IPPROTO_UDP and target_port in ports
    # Behind these a tunnel's own packet has its VNI, which is not one of ours.
    return ident if ours and not any(message[payload : payload + 4]) else None
