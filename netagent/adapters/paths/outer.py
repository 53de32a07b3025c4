# SPDX-License-Identifier: Apache-2.0
"""The outer header that a probe really got, read from the RNIC's netdev.

The source port is the vSwitch's own hash of the inner header; it is observed, never guessed.
A packet socket sees only frames that a classic BPF program in the kernel let through: outgoing
VXLAN or Geneve whose inner packet is a probe with the MARKED flag, over UDP or over RoCE v2, so
that the cost is a few packets a second whatever the RNIC carries. (What the RNIC itself
encapsulates passes by the kernel, and is not seen here.)
"""

import ctypes
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from netagent.model.encapsulation import ETHERNET_BYTES, GENEVE, IP_BYTES, UDP_BYTES, Encapsulation
from netagent.model.errors import RemoteProtocolError
from netagent.probing.paths import OuterFlow
from netagent.wire import frame

ETH_P_ALL = 0x0003
"""Protocol number ETH_P_ALL of linux/if_ether.h: frames of every protocol."""
SO_ATTACH_FILTER = 26
"""Socket option SO_ATTACH_FILTER of asm-generic/socket.h."""
_PACKET_OUTGOING = 4
"""Packet type PACKET_OUTGOING of linux/if_packet.h."""
_SKF_AD_PKTTYPE = 0xFFFFF000 + 4
"""Offset at which a filter loads the packet type: SKF_AD_OFF + SKF_AD_PKTTYPE of linux/filter.h."""

_TUNNEL = 8
"""Bytes from the start of the outer UDP header to the tunnel's (RFC 768: UDP has 8)."""
_INNER_ETHERNET = _TUNNEL + 8
"""Bytes from the start of the outer UDP header to the inner Ethernet header, options of Geneve left
out (RFC 7348, RFC 8926: both have 8)."""
_OPTIONS_MASK = 0x3F
"""Bits of Geneve's first byte that count its options, in words of four bytes (RFC 8926)."""
_BRIDGED = 0x6558
"""Protocol inside of Geneve: Ethernet (RFC 8926, section 3.4)."""
_ROCE_PORT = 4791
"""UDP port of RoCE v2 (InfiniBand Architecture Specification, annex A17)."""
_ROCE_HEADERS = 12 + 8
"""Bytes of BTH and DETH, which stand between UDP and the frame (InfiniBand Architecture
Specification)."""
_INNER = ETHERNET_BYTES + _INNER_ETHERNET + ETHERNET_BYTES
"""Bytes that both Ethernet headers and what is around the inner one take."""
_ETH_IPV4, _ETH_IPV6 = 0x0800, 0x86DD
"""EtherTypes ETH_P_IP and ETH_P_IPV6 of linux/if_ether.h."""
_PROTOCOL = {_ETH_IPV4: 9, _ETH_IPV6: 6}
"""Where an IP header says what follows (RFC 791, RFC 8200; our own probes have no options)."""
_LABEL_MASK = 0xFFFFF
"""Bits of the flow label in the first word of an IPv6 header (RFC 8200)."""

# Opcodes of classic BPF, linux/bpf_common.h.
_LDH_ABS, _LDB_ABS, _LD_ABS = 0x28, 0x30, 0x20
_LDH_IND, _LDB_IND, _LD_IND = 0x48, 0x50, 0x40
_LDX_MSH, _LDX_IMM, _JEQ, _JSET, _RET = 0xB1, 0x01, 0x15, 0x45, 0x06
_AND, _LSH, _ADD, _ADD_X, _TAX, _TXA = 0x54, 0x64, 0x04, 0x0C, 0x07, 0x87
_SNAP_BYTES = 448
"""Bytes of a frame that the filter hands over. Chosen: all headers, with 40 bytes of outer IP
options, and the frame's header take 196, and options of Geneve up to 252 (RFC 8926)."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A probe or reply as it left on the uplink."""

    outer: OuterFlow
    vni: int
    source: str
    """Overlay address of the sender; repeats between tenants."""
    target: str
    source_port: int
    target_port: int
    frame: frame.Frame


class _Step(NamedTuple):
    """One instruction; it goes on with the next one where no label says otherwise."""

    code: int
    k: int = 0
    then: str = ""
    otherwise: str = ""


def _program(tunnel: Encapsulation) -> bytes:
    """Return the program; X is where the outer UDP header begins, less the Ethernet header."""
    steps: list[_Step | str] = [
        *_test(_LD_ABS, _SKF_AD_PKTTYPE, _PACKET_OUTGOING),
        *_test(_LDH_ABS, 12, _ETH_IPV6, then="six", otherwise=""),
        _Step(_JEQ, _ETH_IPV4, otherwise="drop"),
        _Step(_LDX_MSH, ETHERNET_BYTES),
        *_test(_LDB_ABS, ETHERNET_BYTES + _PROTOCOL[_ETH_IPV4], socket.IPPROTO_UDP, then="wrapped"),
        "six",
        _Step(_LDX_IMM, IP_BYTES[6]),
        *_test(_LDB_ABS, ETHERNET_BYTES + _PROTOCOL[_ETH_IPV6], socket.IPPROTO_UDP),
        "wrapped",
        *_test(_LDH_IND, ETHERNET_BYTES + 2, tunnel.port),
    ]
    if tunnel.kind == GENEVE.kind:
        steps += [
            *_test(_LDH_IND, ETHERNET_BYTES + _TUNNEL + 2, _BRIDGED),
            _Step(_LDB_IND, ETHERNET_BYTES + _TUNNEL),  # X += length of the options
            _Step(_AND, _OPTIONS_MASK), _Step(_LSH, 2), _Step(_ADD_X), _Step(_TAX),
        ]  # fmt: skip
    steps += [
        *_test(_LDH_IND, _INNER - 2, _ETH_IPV6, then="six in", otherwise=""),
        _Step(_JEQ, _ETH_IPV4, otherwise="drop"),
        *_test(_LDB_IND, _INNER + _PROTOCOL[_ETH_IPV4], socket.IPPROTO_UDP, then="probe"),
        "six in",
        *_test(_LDB_IND, _INNER + _PROTOCOL[_ETH_IPV6], socket.IPPROTO_UDP),
        # X += by how much the header is longer than one of IPv4
        _Step(_TXA), _Step(_ADD, IP_BYTES[6] - IP_BYTES[4]), _Step(_TAX),
        "probe",
        *_marked(_INNER + IP_BYTES[4] + UDP_BYTES, otherwise="roce"),
        _Step(_RET, _SNAP_BYTES),
        "roce",
        *_marked(_INNER + IP_BYTES[4] + UDP_BYTES + _ROCE_HEADERS, otherwise="drop"),
        _Step(_RET, _SNAP_BYTES),
        "drop",
        _Step(_RET),
    ]  # fmt: skip
    return _assembled(steps)


def _test(
    load: int, offset: int, value: int, *, then: str = "", otherwise: str = "drop"
) -> list[_Step]:
    return [_Step(load, offset), _Step(_JEQ, value, then, otherwise)]


def _marked(offset: int, *, otherwise: str) -> list[_Step]:
    return [
        *_test(_LD_IND, offset, frame.MAGIC, otherwise=otherwise),
        _Step(_LDB_IND, offset + frame.FLAGS_OFFSET),
        _Step(_JSET, frame.MARKED, otherwise=otherwise),
    ]


def _assembled(steps: Iterable[_Step | str]) -> bytes:
    labels: dict[str, int] = {}
    code: list[_Step] = []
    for step in steps:
        if isinstance(step, str):
            labels[step] = len(code)
        else:
            code.append(step)

    def distance(label: str, at: int) -> int:
        return labels[label] - at - 1 if label else 0

    return b"".join(
        struct.pack(
            "@HBBI", each.code, distance(each.then, at), distance(each.otherwise, at), each.k
        )
        for at, each in enumerate(code)
    )


def open_uplink(device: str, tunnel: Encapsulation) -> socket.socket:
    """Open a packet socket on `device` that passes only marked probes on their way out.

    Raises OSError where the device is gone or CAP_NET_RAW is missing.
    """
    program = _program(tunnel)
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    # Protocol 0 receives nothing until bind(): no frame slips in before the filter is there.
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        opened.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filter_)
        opened.bind((device, ETH_P_ALL))
    except OSError:
        opened.close()
        raise
    return opened


def drain(uplink: socket.socket, tunnel: Encapsulation, *, limit: int = 256) -> Iterator[Sighting]:
    """Yield what waits on the socket. OSError when the device is gone."""
    for _ in range(limit):
        try:
            packet = uplink.recv(_SNAP_BYTES)
        except BlockingIOError:
            return
        try:
            yield parse(packet, tunnel)
        except RemoteProtocolError:
            continue  # the filter looks at fewer fields than the parser


class _Ip(NamedTuple):
    """What is read of an IP header."""

    source: str
    target: str
    end: int
    """Where in the packet it ends."""
    label: int = 0


def _ip(packet: bytes, ethernet: int) -> _Ip:
    """Read the IP header after the Ethernet header at `ethernet`."""
    (kind,) = struct.unpack_from("!H", packet, ethernet + 12)
    at = ethernet + ETHERNET_BYTES
    if kind == _ETH_IPV4:
        source, target = struct.unpack_from("!4s4s", packet, at + 12)
        end = at + (packet[at] & 0x0F) * 4
        return _Ip(socket.inet_ntoa(source), socket.inet_ntoa(target), end)
    if kind != _ETH_IPV6:
        raise RemoteProtocolError(f"a frame of EtherType {kind:#06x}")
    first, source, target = struct.unpack_from("!I4x16s16s", packet, at)
    ends = [socket.inet_ntop(socket.AF_INET6, each) for each in (source, target)]
    return _Ip(ends[0], ends[1], at + IP_BYTES[6], first & _LABEL_MASK)


def parse(packet: bytes, tunnel: Encapsulation) -> Sighting:
    """Return the sighting in an Ethernet frame; RemoteProtocolError if it holds none."""
    try:
        outside = _ip(packet, 0)
        udp = outside.end
        (outer_port,) = struct.unpack_from("!H", packet, udp)
        (vni,) = struct.unpack_from("!I", packet, udp + _TUNNEL + 4)
        if tunnel.kind == GENEVE.kind:
            udp += (packet[udp + _TUNNEL] & _OPTIONS_MASK) * 4
        inside = _ip(packet, udp + _INNER_ETHERNET)
        source_port, target_port = struct.unpack_from("!HH", packet, inside.end)
    except (IndexError, struct.error) as error:
        raise RemoteProtocolError(f"short frame of {len(packet)} bytes") from error
    payload = inside.end + UDP_BYTES + (_ROCE_HEADERS if target_port == _ROCE_PORT else 0)
    return Sighting(
        OuterFlow(outside.source, outside.target, outer_port, tunnel.port, outside.label),
        vni >> 8,
        inside.source,
        inside.target,
        source_port,
        target_port,
        frame.decode(packet[payload:]),
    )
