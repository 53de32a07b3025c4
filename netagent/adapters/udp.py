# SPDX-License-Identifier: Apache-2.0
"""UDP transport: an endpoint's sockets inside its container's namespace, with kernel stamps.

Stamps are software stamps of CLOCK_REALTIME taken by the kernel (SO_TIMESTAMPING, see the kernel's
Documentation/networking/timestamping.rst). The transmit stamp comes back on the error queue with
the packet itself, from which the probe is recognised: more robust than SOF_TIMESTAMPING_OPT_ID,
whose counter also moves for sends that fail. ICMP errors come on the same queue (IP_RECVERR).
"""

import errno
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from netagent.adapters.namespace import call_in_namespace

# linux/net_tstamp.h, linux/errqueue.h, linux/in.h: absent from Python's socket module.
SO_TIMESTAMPING = 37
_TX_SOFTWARE, _RX_SOFTWARE, _SOFTWARE = 1 << 1, 1 << 3, 1 << 4
IP_RECVERR = 11
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3
_ORIGIN_ICMP, _ORIGIN_TIMESTAMPING = 2, 4
_ICMP_UNREACHABLE, _ICMP_PORT_UNREACHABLE = 3, 3

_TIMESPEC = struct.Struct("@qq")
_SOCK_EXTENDED_ERR = struct.Struct("@IBBBBII")
_ANCILLARY_BYTES = 256
LINK_AND_IP_AND_UDP_BYTES = 14 + 20 + 8
"""What stands before the payload in a packet that the error queue gives back."""
IP_AND_UDP_BYTES = 20 + 8
MAX_PAYLOAD_BYTES = 65_507
RECEIVE_BUFFER_BYTES = 1 << 20
"""Replies wait here while the agent is late, and are not lost."""


class Notice(StrEnum):
    """What the error queue said of a packet."""

    TRANSMITTED = "transmitted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Received:
    """A datagram and when the kernel received it (CLOCK_REALTIME ns)."""

    payload: bytes
    address: tuple[str, int]
    wall_ns: int


@dataclass(frozen=True, slots=True)
class Noticed:
    """A datagram of ours that the error queue gave back."""

    notice: Notice
    payload: bytes
    """The beginning of what was sent."""
    wall_ns: int


@dataclass(slots=True)
class EndpointSockets:
    """One responder socket and one socket per source port."""

    responder: socket.socket
    probers: tuple[socket.socket, ...]

    def ports(self) -> tuple[int, ...]:
        """Return the source ports, in order."""
        return tuple(s.getsockname()[1] for s in self.probers)

    def close(self) -> None:
        """Close all sockets."""
        for each in (self.responder, *self.probers):
            each.close()


def open_endpoint(
    path: str, address: str, *, port: int, flows: int, inode: int | None = None
) -> EndpointSockets:
    """Open an endpoint's sockets in the namespace at `path`, bound to its overlay `address`.

    Raises OSError when the namespace is gone, or the address or port is not to be had.
    """

    def make() -> EndpointSockets:
        made: list[socket.socket] = []
        try:
            for number in [port, *[0] * flows]:
                made.append(_stamped(address, number))  # noqa: PERF401 - closed on failure
        except OSError:
            for each in made:
                each.close()
            raise
        return EndpointSockets(made[0], tuple(made[1:]))

    return call_in_namespace(path, make, inode=inode)


def _stamped(address: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        stamps = _TX_SOFTWARE | _RX_SOFTWARE | _SOFTWARE
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, stamps)
        made.setsockopt(socket.SOL_IP, IP_RECVERR, 1)
        # Never fragment, and never let a cached path MTU hide a black hole for large packets.
        made.setsockopt(socket.SOL_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made


def send(sender: socket.socket, payload: bytes, address: tuple[str, int]) -> bool:
    """Send a datagram; False where the local kernel refused.

    An ICMP error that waits on the socket is reported by the next call once (man 7 ip); that call
    sent nothing, so it is made again.
    """
    for _ in range(3):
        try:
            sender.sendto(payload, address)
        except (ConnectionRefusedError, BlockingIOError):
            continue
        except OSError as error:
            if error.errno in {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPROTO}:
                continue
            return False
        return True
    return False


def drain(receiver: socket.socket, *, limit: int = 256) -> Iterator[Received]:
    """Yield what waits on the socket, at most `limit` datagrams."""
    for _ in range(limit):
        try:
            payload, ancillary, _, address = receiver.recvmsg(2048, _ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError:
            continue  # a pending ICMP error; the error queue tells which
        wall_ns = _stamp(ancillary)
        if wall_ns is not None:
            yield Received(payload, address, wall_ns)


def drain_errors(sender: socket.socket, *, limit: int = 256) -> Iterator[Noticed]:
    """Yield transmit stamps and refusals from the socket's error queue."""
    for _ in range(limit):
        try:
            packet, ancillary, _, _ = sender.recvmsg(256, _ANCILLARY_BYTES, socket.MSG_ERRQUEUE)
        except BlockingIOError:
            return
        noticed = _notice(packet, ancillary)
        if noticed is not None:
            yield noticed


def _notice(packet: bytes, ancillary: list[tuple[int, int, bytes]]) -> Noticed | None:
    for level, kind, data in ancillary:
        if level != socket.SOL_IP or kind != IP_RECVERR:
            continue
        _, origin, icmp_type, icmp_code, _, _, _ = _SOCK_EXTENDED_ERR.unpack_from(data)
        if origin == _ORIGIN_TIMESTAMPING:
            wall_ns = _stamp(ancillary)
            if wall_ns is not None:
                return Noticed(Notice.TRANSMITTED, packet[LINK_AND_IP_AND_UDP_BYTES:], wall_ns)
        if origin == _ORIGIN_ICMP and (icmp_type, icmp_code) == (
            _ICMP_UNREACHABLE,
            _ICMP_PORT_UNREACHABLE,
        ):
            return Noticed(Notice.REFUSED, packet, 0)
    return None


def _stamp(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPING:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds * 1_000_000_000 + nanoseconds)
    return None
