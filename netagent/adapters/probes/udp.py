# SPDX-License-Identifier: Apache-2.0
"""UDP transport: an endpoint's sockets inside its container's namespace, with kernel stamps.

Stamps are software stamps of CLOCK_REALTIME taken by the kernel (SO_TIMESTAMPING, see the kernel's
Documentation/networking/timestamping.rst). The transmit stamp comes back on the error queue with
the packet itself, from which the probe is recognised: more robust than SOF_TIMESTAMPING_OPT_ID,
whose counter also moves for sends that fail. ICMP errors come on the same queue (IP_RECVERR,
IPV6_RECVERR).
"""

import errno
import socket
import struct
from dataclasses import dataclass
from typing import NamedTuple

from netagent.adapters.clock import wall_ns
from netagent.adapters.host.setns import call_in_namespace
from netagent.model.address import is_six
from netagent.model.encapsulation import ETHERNET_BYTES, IP_BYTES, UDP_BYTES
from netagent.model.strenum import StrEnum

# Python's socket module lacks what linux/net_tstamp.h, linux/errqueue.h, linux/in.h and linux/in6.h
# define here.
SO_TIMESTAMPING = 37
"""Socket option SO_TIMESTAMPING of asm-generic/socket.h."""
_TX_SOFTWARE, _RX_SOFTWARE, _SOFTWARE = 1 << 1, 1 << 3, 1 << 4
"""SOF_TIMESTAMPING_ bits of linux/net_tstamp.h."""
IP_RECVERR = 11
"""Socket option IP_RECVERR of linux/in.h: ICMP errors come on the error queue."""
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3
"""Socket option IP_MTU_DISCOVER, and its value IP_PMTUDISC_PROBE, of linux/in.h."""
IPV6_RECVERR = 25
"""Socket option IPV6_RECVERR of linux/in6.h."""
IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE = 23, 3
"""Socket option IPV6_MTU_DISCOVER, and its value IPV6_PMTUDISC_PROBE, of linux/in6.h."""
_ORIGIN_TYPE_CODE = slice(4, 7)
"""Where `struct sock_extended_err` has ee_origin, ee_type and ee_code."""
_TIMESTAMP = bytes([4, 0, 0])
_PORT_UNREACHABLE = {bytes([2, 3, 3]), bytes([3, 1, 4])}
"""SO_EE_ORIGIN_ICMP and SO_EE_ORIGIN_ICMP6 of linux/errqueue.h, and what "destination unreachable,
port unreachable" is in RFC 792 and in RFC 4443."""

_unpack_timespec = struct.Struct("@qq").unpack_from
_ANCILLARY_BYTES = 256
"""Bytes for a message's ancillary data. Chosen: three stamps and one extended error with its
address take about half."""
_BEFORE_PAYLOAD, _BEFORE_PAYLOAD_6 = (
    ETHERNET_BYTES + each + UDP_BYTES for each in (IP_BYTES[4], IP_BYTES[6])
)
"""Bytes before the payload in a sent packet that the error queue gives back."""
_DATAGRAM_BYTES = 9216
"""Bytes of the largest packet received. Chosen: jumbo frames, since a reply is as long as its
probe."""
_QUOTE_BYTES = 128
"""Bytes read of a packet of ours that the error queue gives back. Chosen: headers and frame fit,
which identify the probe."""
RECEIVE_BUFFER_BYTES = 1 << 20
"""Bytes of a socket's receive buffer. Chosen: replies wait there while the agent is late, and none
is lost."""


_PENDING = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPROTO, errno.EACCES}
"""What the kernel makes of ICMP errors that wait (`icmp_err_convert` of net/ipv4/icmp.c,
`tab_unreach` of net/ipv6/icmp.c), refused connections apart."""


class Notice(StrEnum):
    """What the error queue said of a packet."""

    TRANSMITTED = "transmitted"
    REFUSED = "refused"


class Received(NamedTuple):
    """A datagram and when the kernel received it (CLOCK_REALTIME ns)."""

    payload: bytes
    address: tuple[str, int] | tuple[str, int, int, int]
    """As the socket module has it: of IPv6 with flow information and scope."""
    wall_ns: int


class Noticed(NamedTuple):
    """A datagram of ours that the error queue gave back."""

    notice: Notice
    payload: bytes
    """The beginning of what was sent."""
    wall_ns: int


@dataclass(slots=True)
class EndpointSockets:
    """An endpoint's responder socket, and one socket per source port."""

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


def open_port(path: str, address: str, *, inode: int | None = None) -> socket.socket:
    """Open one more socket to probe from, as `open_endpoint` does, with a port of the kernel's
    choice.
    """  # noqa: D205 - one sentence
    return call_in_namespace(path, lambda: _stamped(address, 0), inode=inode)


def _stamped(address: str, port: int) -> socket.socket:
    six = is_six(address)
    family = socket.AF_INET6 if six else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        stamps = _TX_SOFTWARE | _RX_SOFTWARE | _SOFTWARE
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, stamps)
        # Never fragment, and never let a cached path MTU hide a black hole for large packets.
        if six:
            made.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
            made.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE)
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_DONTFRAG, 1)
        else:
            made.setsockopt(socket.SOL_IP, IP_RECVERR, 1)
            made.setsockopt(socket.SOL_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made


def send(
    sender: socket.socket,
    payload: bytes,
    address: tuple[str, int] | tuple[str, int, int, int],
) -> bool:
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
            if error.errno in _PENDING:
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
        return None  # empty, or a pending ICMP error: the error queue shows which
    for level, kind, data in ancillary:
        if kind == SO_TIMESTAMPING and level == socket.SOL_SOCKET:
            return Received(payload, address, _nanoseconds(data))
    # The kernel begins to stamp some time after a host's first socket asked for it
    # (`net_enable_timestamp` of net/core/dev.c): as for SO_TIMESTAMP, it is the time of reading.
    return Received(payload, address, wall_ns())


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
    wall_ns, error, before = None, b"", 0
    for level, kind, data in ancillary:
        if kind == SO_TIMESTAMPING and level == socket.SOL_SOCKET:
            wall_ns = _nanoseconds(data)
        elif kind == IP_RECVERR and level == socket.SOL_IP:
            error, before = data[_ORIGIN_TYPE_CODE], _BEFORE_PAYLOAD
        elif kind == IPV6_RECVERR and level == socket.IPPROTO_IPV6:
            error, before = data[_ORIGIN_TYPE_CODE], _BEFORE_PAYLOAD_6
    if error == _TIMESTAMP and wall_ns is not None:
        return Noticed(Notice.TRANSMITTED, packet[before:], wall_ns)
    if error in _PORT_UNREACHABLE:
        return Noticed(Notice.REFUSED, packet, 0)
    return None


def _nanoseconds(timespec: bytes) -> int:
    seconds, nanoseconds = _unpack_timespec(timespec)
    return int(seconds * 1_000_000_000 + nanoseconds)
