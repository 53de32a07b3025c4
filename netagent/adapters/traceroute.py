# SPDX-License-Identifier: Apache-2.0
"""Sends TTL-limited packets in the host's namespace and hears the routers' answers.

The packets carry four bytes of payload: a VTEP drops them as too short to be VXLAN, so that one
which does arrive reaches no tenant.
"""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from netagent.probing.tracing import TtlProbe

VXLAN_PORT = 4789
ICMP_FILTER = 1  # linux/icmp.h, at level SOL_RAW
_SOL_RAW = 255
_TIME_EXCEEDED = 11
_PAYLOAD = b"naTr"
_IP = struct.Struct("!BBHHHBBH4s4s")
_UDP = struct.Struct("!HHHH")
_DONT_FRAGMENT = 0x4000


@dataclass(slots=True)
class TraceSockets:
    """A raw socket to send with and one that hears TTL-exceeded."""

    sender: socket.socket
    listener: socket.socket

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
    all_but_time_exceeded = 0xFFFFFFFF & ~(1 << _TIME_EXCEEDED)
    listener.setsockopt(_SOL_RAW, ICMP_FILTER, struct.pack("@I", all_but_time_exceeded))
    return TraceSockets(sender, listener)


def send(sockets: TraceSockets, probe: TtlProbe) -> bool:
    """Send one packet; False where the local kernel refused."""
    length = _IP.size + _UDP.size + len(_PAYLOAD)
    flow = probe.flow
    header = _IP.pack(
        0x45, 0, length, probe.ident, _DONT_FRAGMENT, probe.ttl, socket.IPPROTO_UDP, 0,
        socket.inet_aton(flow.source), socket.inet_aton(flow.target),
    )  # fmt: skip
    # RFC 7348: the outer UDP checksum SHOULD be zero.
    udp = _UDP.pack(flow.source_port, VXLAN_PORT, _UDP.size + len(_PAYLOAD), 0)
    try:
        sockets.sender.sendto(header + udp + _PAYLOAD, (flow.target, 0))
    except OSError:
        return False
    return True


def drain(sockets: TraceSockets, *, limit: int = 256) -> Iterator[tuple[int, str]]:
    """Yield (ident, router address) of the answers that wait."""
    for _ in range(limit):
        try:
            packet, (router, _) = sockets.listener.recvfrom(576)
        except BlockingIOError:
            return
        ident = parse(packet)
        if ident is not None:
            yield ident, router


def parse(packet: bytes) -> int | None:
    """Return the identification of our packet quoted in an ICMP message; None if it quotes none."""
    outer = (packet[0] & 0x0F) * 4 if packet else 0
    quoted = outer + 8
    if len(packet) < quoted + _IP.size + 4 or packet[outer] != _TIME_EXCEEDED:
        return None
    fields = _IP.unpack_from(packet, quoted)
    (target_port,) = struct.unpack_from("!H", packet, quoted + (packet[quoted] & 0x0F) * 4 + 2)
    if fields[6] != socket.IPPROTO_UDP or target_port != VXLAN_PORT:
        return None
    return int(fields[3])
