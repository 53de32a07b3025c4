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
from collections.abc import Iterator
from dataclasses import dataclass

from netagent.model.encapsulation import GENEVE, Encapsulation
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
_INNER_IP = _INNER_ETHERNET + 14
"""Bytes from the start of the outer UDP header to the inner IPv4 header (IEEE 802.3: Ethernet has
14)."""
_INNER_UDP = _INNER_IP + 20
"""Bytes from the start of the outer UDP header to the inner one (RFC 791: IPv4 has 20; our own
probes have no options)."""
_PAYLOAD = _INNER_UDP + 8
"""Bytes from the start of the outer UDP header to the inner payload (RFC 768: UDP has 8)."""
_ROCE_PORT = 4791
"""UDP port of RoCE v2 (InfiniBand Architecture Specification, annex A17)."""
_ROCE_HEADERS = 12 + 8
"""Bytes of BTH and DETH, which stand between UDP and the frame (InfiniBand Architecture
Specification)."""
_ETHERNET = 14
"""Bytes of an Ethernet header without a tag (IEEE 802.3)."""

# Opcodes of classic BPF, linux/bpf_common.h.
_LDH_ABS, _LDB_ABS, _LD_ABS = 0x28, 0x30, 0x20
_LDH_IND, _LDB_IND, _LD_IND = 0x48, 0x50, 0x40
_LDX_MSH, _JEQ, _JSET, _RET = 0xB1, 0x15, 0x45, 0x06
_AND, _LSH, _ADD_X, _TAX = 0x54, 0x64, 0x0C, 0x07
_SNAP_BYTES = 448
"""Bytes of a frame that the filter hands over. Chosen: all headers, with 40 bytes of outer IP
options, and the frame's header take 176, and options of Geneve up to 252 (RFC 8926)."""


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


def _program(tunnel: Encapsulation) -> bytes:
    # (load, offset, jump if true, value, where to go if false)
    outer = [
        (_LD_ABS, _SKF_AD_PKTTYPE, _JEQ, _PACKET_OUTGOING, "drop"),
        (_LDH_ABS, 12, _JEQ, 0x0800, "drop"),
        (_LDB_ABS, _ETHERNET + 9, _JEQ, socket.IPPROTO_UDP, "drop"),
    ]
    wrapped = [(_LDH_IND, _ETHERNET + 2, _JEQ, tunnel.port, "drop")]
    skipped: list[tuple[int, int, int, int]] = []
    if tunnel.kind == GENEVE.kind:
        wrapped.append((_LDH_IND, _ETHERNET + _TUNNEL + 2, _JEQ, _BRIDGED, "drop"))
        skipped = [  # X += length of the options
            (_LDB_IND, 0, 0, _ETHERNET + _TUNNEL),
            (_AND, 0, 0, _OPTIONS_MASK), (_LSH, 0, 0, 2), (_ADD_X, 0, 0, 0), (_TAX, 0, 0, 0),
        ]  # fmt: skip
    inner = [
        (_LDH_IND, _ETHERNET + _INNER_ETHERNET + 12, _JEQ, 0x0800, "drop"),
        (_LDB_IND, _ETHERNET + _INNER_IP + 9, _JEQ, socket.IPPROTO_UDP, "drop"),
    ]
    over_udp = _marked_at(_ETHERNET + _PAYLOAD, "roce")
    over_roce = _marked_at(_ETHERNET + _PAYLOAD + _ROCE_HEADERS, "drop")
    before = 2 * (len(outer) + len(wrapped) + len(inner)) + 1 + len(skipped)
    roce = before + 2 * len(over_udp) + 1
    labels = {"roce": roce, "drop": roce + 2 * len(over_roce) + 1}
    code: list[tuple[int, int, int, int]] = []

    def emit(tests: list[tuple[int, int, int, int, str]]) -> None:
        for load, offset, jump, value, label in tests:
            code.append((load, 0, 0, offset))
            code.append((jump, 0, labels[label] - len(code) - 1, value))

    emit(outer)
    code.append((_LDX_MSH, 0, 0, _ETHERNET))  # X = length of the outer IP header
    emit(wrapped)
    code += skipped
    emit(inner)
    emit(over_udp)
    code.append((_RET, 0, 0, _SNAP_BYTES))
    emit(over_roce)
    code += [(_RET, 0, 0, _SNAP_BYTES), (_RET, 0, 0, 0)]
    return b"".join(struct.pack("@HBBI", *each) for each in code)


def _marked_at(offset: int, otherwise: str) -> list[tuple[int, int, int, int, str]]:
    return [
        (_LD_IND, offset, _JEQ, frame.MAGIC, otherwise),
        (_LDB_IND, offset + frame.FLAGS_OFFSET, _JSET, frame.MARKED, otherwise),
    ]


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


def parse(packet: bytes, tunnel: Encapsulation) -> Sighting:
    """Return the sighting in an Ethernet frame; RemoteProtocolError if it holds none."""
    try:
        udp = _ETHERNET + (packet[_ETHERNET] & 0x0F) * 4
        (outer_port,) = struct.unpack_from("!H", packet, udp)
        (vni,) = struct.unpack_from("!I", packet, udp + _TUNNEL + 4)
        if tunnel.kind == GENEVE.kind:
            udp += (packet[udp + _TUNNEL] & _OPTIONS_MASK) * 4
        source, target = struct.unpack_from("!4s4s", packet, udp + _INNER_IP + 12)
        source_port, target_port = struct.unpack_from("!HH", packet, udp + _INNER_UDP)
        outer_source, outer_target = struct.unpack_from("!4s4s", packet, _ETHERNET + 12)
    except (IndexError, struct.error) as error:
        raise RemoteProtocolError(f"short frame of {len(packet)} bytes") from error
    payload = udp + _PAYLOAD + (_ROCE_HEADERS if target_port == _ROCE_PORT else 0)
    return Sighting(
        OuterFlow(
            socket.inet_ntoa(outer_source), socket.inet_ntoa(outer_target), outer_port, tunnel.port
        ),
        vni >> 8,
        socket.inet_ntoa(source),
        socket.inet_ntoa(target),
        source_port,
        target_port,
        frame.decode(packet[payload:]),
    )
