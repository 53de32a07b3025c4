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
from functools import partial
from itertools import islice
from typing import NamedTuple

from netagent.adapters.namespace import call_in_namespace

# linux/net_tstamp.h, linux/errqueue.h, linux/in.h: absent from Python's socket module.
SO_TIMESTAMPING = 37
_TX_SOFTWARE, _RX_SOFTWARE, _SOFTWARE = 1 << 1, 1 << 3, 1 << 4
IP_RECVERR = 11
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3
_ORIGIN_TYPE_CODE = slice(4, 7)
"""Of struct sock_extended_err: ee_origin, ee_type, ee_code."""
_TIMESTAMP = bytes([4, 0, 0])
_PORT_UNREACHABLE = bytes([2, 3, 3])

_unpack_timespec = struct.Struct("@qq").unpack_from
_ANCILLARY_BYTES = 256
LINK_AND_IP_AND_UDP_BYTES = 14 + 20 + 8
"""What stands before the payload in a packet that the error queue gives back."""
IP_AND_UDP_BYTES = 20 + 8
_DATAGRAM_BYTES = 9216
"""The largest packet of jumbo frames: a reply is as long as its probe."""
_QUOTE_BYTES = 128
"""Enough of a packet of ours to recognise the probe in it."""
RECEIVE_BUFFER_BYTES = 1 << 20
"""Replies wait here while the agent is late, and are not lost."""


class Notice(StrEnum):
    """What the error queue said of a packet."""

    TRANSMITTED = "transmitted"
    REFUSED = "refused"


class Received(NamedTuple):
    """A datagram and when the kernel received it (CLOCK_REALTIME ns)."""

    payload: bytes
    address: tuple[str, int]
    wall_ns: int


class Noticed(NamedTuple):
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


def receive(receiver: socket.socket) -> Received | None:
    """Return a datagram that waits on the socket; None where there is none.

    Ask a socket that epoll calls readable, and once: the exception of an empty socket costs more
    than asking epoll again.
    """
    try:
        payload, ancillary, _, address = receiver.recvmsg(_DATAGRAM_BYTES, _ANCILLARY_BYTES)
    except OSError:
        return None  # empty, or a pending ICMP error: the error queue tells which
    for level, kind, data in ancillary:
        if kind == SO_TIMESTAMPING and level == socket.SOL_SOCKET:
            return Received(payload, address, _nanoseconds(data))
    return None


def notice(sender: socket.socket) -> Noticed | None:
    """Return a transmit stamp or a refusal from the socket's error queue; None where none is."""
    try:
        packet, ancillary, _, _ = sender.recvmsg(
            _QUOTE_BYTES, _ANCILLARY_BYTES, socket.MSG_ERRQUEUE
        )
    except OSError:
        # An error that found the queue full would be reported by epoll for ever.
        sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return None
    wall_ns, error = None, b""
    for level, kind, data in ancillary:
        if kind == SO_TIMESTAMPING and level == socket.SOL_SOCKET:
            wall_ns = _nanoseconds(data)
        elif kind == IP_RECVERR and level == socket.SOL_IP:
            error = data[_ORIGIN_TYPE_CODE]
    if error == _TIMESTAMP and wall_ns is not None:
        return Noticed(Notice.TRANSMITTED, packet[LINK_AND_IP_AND_UDP_BYTES:], wall_ns)
    if error == _PORT_UNREACHABLE:
        return Noticed(Notice.REFUSED, packet, 0)
    return None


def _nanoseconds(timespec: bytes) -> int:
    seconds, nanoseconds = _unpack_timespec(timespec)
    return int(seconds * 1_000_000_000 + nanoseconds)


def drain(receiver: socket.socket, *, limit: int = 256) -> Iterator[Received]:
    """Yield what waits on the socket, at most `limit` datagrams."""
    return islice(iter(partial(receive, receiver), None), limit)


def drain_errors(sender: socket.socket, *, limit: int = 256) -> Iterator[Noticed]:
    """Yield transmit stamps and refusals from the socket's error queue."""
    return islice(iter(partial(notice, sender), None), limit)
