# SPDX-License-Identifier: Apache-2.0
"""How the programs read packets: `packet.h` compiled as plain C, and asked about bytes.

The kernel is not here; that the programs load and count is in tests/kernel.
"""

import ctypes as ct
import ipaddress
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bpf
from bpf.trace import abi
from bpf.trace.flowspec import flow_text, parse_flow
from bpf.trace.layout import FLAGS, KERNEL, SWITCH, define_of
from netagent.model.encapsulation import GENEVE, VXLAN
from ovs_checks.openflow.frame import read_frame
from ovs_checks.openflow.packet import Header
from tests.conftest import CC, require

INCLUDE = Path(bpf.__file__).parent / "include"
SHIM = """\
#include <arpa/inet.h>
#include <endian.h>
#include <linux/types.h>
#include <stddef.h>
#include <string.h>
typedef __u8 u8; typedef __u16 u16; typedef __u32 u32; typedef __u64 u64;
#define bpf_probe_read_kernel(to, size, from) memcpy(to, from, size)
#define bpf_htons htons
#define bpf_htonl htonl
#define bpf_ntohl ntohl
#define bpf_ntohll be64toh
#define BPF_ARRAY(name, type, entries) \\
    static type name##_values[entries]; \\
    static type *name##_lookup(u32 *key) { return &name##_values[*key]; } \\
    static struct { type *(*lookup)(u32 *); } name = { name##_lookup };
#define BPF_PERCPU_ARRAY BPF_ARRAY
#include "packet.h"

struct found {
    struct flow flow;
    union address outer_source, outer_target;
    u32 vni, mark, short_mark, unreadable;
    u16 outer_port;
    u8 is_packet, encapsulated, chosen, reserved[3];
};

void look_at(const u8 *at, u32 length, const struct filter *filter, struct found *found)
{
    struct seen seen = { .end = (u64)at + length };
    u64 *unreadable = counters_values + COUNTER_UNREADABLE;

    *unreadable = 0;
    found->is_packet = read_packet(&seen, behind_ethernet((u64)at), filter);
    found->unreadable = *unreadable;
    found->flow = seen.flow;
    found->outer_source = seen.outer_source;
    found->outer_target = seen.outer_target;
    found->vni = seen.vni;
    found->mark = seen.mark;
    found->short_mark = seen.short_mark;
    found->outer_port = seen.outer_port;
    found->encapsulated = seen.encapsulated;
    found->chosen = chosen(&seen, filter);
}
"""
ROOM = 2048
"""Bytes behind a packet that may be read, as in a kernel: what is not there reads as 0."""


@dataclass(frozen=True)
class Found:
    flow: abi.FlowKey
    outer: tuple[str, str]
    vni: int
    mark: int
    short_mark: int
    unreadable: int
    outer_port: int
    is_packet: bool
    encapsulated: bool
    chosen: bool


@pytest.fixture(scope="module")
def look(tmp_path_factory):
    """Return a function that has the C code look at a frame, of which `linear` bytes are there."""
    require(CC)
    folder = tmp_path_factory.mktemp("packet")
    (folder / "uapi/linux").mkdir(parents=True)
    (folder / "uapi/linux/ptrace.h").touch()
    (folder / "packet.c").write_text(SHIM)
    names = [*(define_of(*each) for each in (*KERNEL, *SWITCH)), *FLAGS]
    built = [
        *("cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wno-unused-function", "-Werror"),
        *(f"-D{name}=0" for name in names),
        *(f"-I{INCLUDE}", f"-I{folder}", "-o", f"{folder}/packet.so", f"{folder}/packet.c"),
    ]
    subprocess.run(built, check=True)
    library = ct.CDLL(f"{folder}/packet.so")
    library.look_at.restype = None

    def look(frame, flow="ip", tunnel=VXLAN, linear=None):
        told = parse_flow(flow).filter(
            1, uplink="", journeys_per_s=0, events_per_s=0, tunnel=tunnel
        )
        found = ct.create_string_buffer(abi.size("flow") + 56)
        room = ct.create_string_buffer(frame, len(frame) + ROOM)
        length = len(frame) if linear is None else linear
        library.look_at(room, length, ct.create_string_buffer(told.pack()), found)
        size = abi.size("flow")
        source, target, *numbers = struct.unpack("<16s16sIIIIHBBB3x", found.raw[size:])
        vni, mark, short_mark, unreadable, port, is_packet, encapsulated, is_chosen = numbers
        ends = (abi.address_text(int.from_bytes(end, "big")) for end in (source, target))
        return Found(
            abi.FlowKey.unpack(found.raw[:size]), tuple(ends), vni, mark, short_mark, unreadable,
            socket_order(port), bool(is_packet), bool(encapsulated), bool(is_chosen),
        )  # fmt: skip

    return look


def socket_order(port):
    return int.from_bytes(port.to_bytes(2, "little"), "big")


# --- frames --------------------------------------------------------------------------------------


def ethernet(inner, *, tag=False):
    version = inner[0] >> 4
    kind = {4: b"\x08\x00", 6: b"\x86\xdd"}[version]
    return bytes(range(12)) + (b"\x81\x00\x00\x05" if tag else b"") + kind + inner


def ip(source, target, protocol, payload, *, ident=0, fragment=0, options=b""):
    """Return a packet of the family of its addresses."""
    ends = [ipaddress.ip_address(end).packed for end in (source, target)]
    if len(ends[0]) == 16:
        head = struct.pack("!IHBB", 6 << 28 | 0xABCDE, len(payload), protocol, 64)
        return head + b"".join(ends) + payload
    words = 5 + len(options) // 4
    head = struct.pack(
        "!BBHHHBBH", 4 << 4 | words, 0, words * 4 + len(payload), ident, fragment, 64, protocol, 0
    )
    return head + b"".join(ends) + options + payload


def udp(source_port, target_port, payload=b"", checksum=0):
    return struct.pack("!HHHH", source_port, target_port, 8 + len(payload), checksum) + payload


def vxlan(vni, frame):
    return struct.pack("!II", 0x08000000, vni << 8) + frame


def geneve(vni, frame, options=b""):
    return struct.pack("!BBHI", len(options) // 4, 0, 0x6558, vni << 8) + options + frame


ENDS = {4: ("10.0.0.10", "10.0.0.12"), 6: ("fd00::a", "fd00::c")}
VTEPS = {4: ("172.30.0.10", "172.30.0.11"), 6: ("fd30::10", "fd30::11")}
WORDS = {4: ("udp", "nw_src", "nw_dst"), 6: ("udp6", "ipv6_src", "ipv6_dst")}
versions = pytest.mark.parametrize("version", [4, 6])
outside = pytest.mark.parametrize("outer", [4, 6])


@versions
@pytest.mark.parametrize("tag", [False, True])
def test_addresses_and_ports_of_either_family_are_read(look, version, tag):
    frame = ethernet(ip(*ENDS[version], 17, udp(40000, 4791, bytes(20))), tag=tag)
    found = look(frame)
    protocol, source, target = WORDS[version]
    assert flow_text(found.flow) == (
        f"{protocol},{source}={ENDS[version][0]},{target}={ENDS[version][1]},"
        "tp_src=40000,tp_dst=4791"
    )
    assert (found.is_packet, found.encapsulated, found.unreadable) == (True, False, 0)


@versions
@outside
@pytest.mark.parametrize("tunnel", [VXLAN, GENEVE])
def test_of_an_encapsulated_packet_both_headers_are_read(look, version, outer, tunnel):
    """Any family in any other."""
    inside = ethernet(ip(*ENDS[version], 6, struct.pack("!HH", 7, 8) + bytes(16)))
    carried = vxlan(1001, inside) if tunnel is VXLAN else geneve(1001, inside, bytes(8))
    frame = ethernet(ip(*VTEPS[outer], 17, udp(59104, tunnel.port, carried)))
    found = look(frame, tunnel=tunnel)
    assert (found.is_packet, found.encapsulated, found.vni) == (True, True, 1001)
    assert (found.outer, found.outer_port) == (VTEPS[outer], 59104)
    ends = [abi.address_text(end) for end in (found.flow.source, found.flow.target)]
    assert (tuple(ends), found.flow.protocol, found.flow.version) == (ENDS[version], 6, version)
    assert (found.flow.source_port, found.flow.target_port) == (7, 8)


@pytest.mark.parametrize("header", [0, 43, 44, 51, 60, 135, 139, 140])
@pytest.mark.parametrize("inside", [False, True])
def test_what_is_behind_extension_headers_is_not_guessed(look, header, inside):
    payload = bytes([17, 0, *range(6)]) + udp(40000, 4791, bytes(20))
    packet = ip(*ENDS[6], header, payload)
    if inside:
        packet = ip(*VTEPS[6], 17, udp(59104, VXLAN.port, vxlan(1001, ethernet(packet))))
    found = look(ethernet(packet), "ipv6")
    assert (found.is_packet, found.unreadable) == (False, 1)


def test_what_has_no_ports_has_none(look):
    for packet in (
        ip(*ENDS[6], 58, bytes([128, 0, 0, 0, 1, 2, 3, 4])),
        ip(*ENDS[6], 59, b""),
        ip(*ENDS[4], 17, udp(1, 2), fragment=7),
        ip(*ENDS[4], 47, bytes(8)),
    ):
        found = look(ethernet(packet))
        assert (found.is_packet, found.flow.source_port, found.flow.target_port) == (True, 0, 0)


@versions
@pytest.mark.parametrize("cut", [1, 21])
def test_headers_that_are_not_there_are_counted(look, version, cut):
    """What is paged out is 0 in the test's memory, and unknown in a kernel's."""
    packet = ip(*ENDS[version], 17, udp(40000, 4791))
    headers = 14 + (20 if version == 4 else 40)
    found = look(ethernet(packet), linear=headers - cut)
    assert (found.is_packet, found.unreadable) == (False, 1)


@pytest.mark.parametrize(
    ("asked", "version", "is_chosen"),
    [
        ("ip", 4, True),
        ("ip", 6, False),
        ("ipv6", 6, True),
        ("ipv6", 4, False),
        ("udp,nw_src=10.0.0.0/24,nw_dst=10.0.0.12", 4, True),
        ("udp,nw_src=10.0.1.0/24", 4, False),
        ("udp,nw_dst=10.0.0.10", 4, False),
        ("udp6,ipv6_src=fd00::/64,ipv6_dst=fd00::c,tp_dst=4791", 6, True),
        ("udp6,ipv6_src=fd00::8/125", 6, True),
        ("udp6,ipv6_src=fd00::10/124", 6, False),
        ("udp6,ipv6_dst=fd01::c", 6, False),
        ("udp6,ipv6_dst=fd00::c,tp_dst=4792", 6, False),
        ("tcp6,ipv6_dst=fd00::c", 6, False),
        ("ipv6,ipv6_dst=::ffff:0:0/96", 4, False),
    ],
)
def test_the_filter_chooses_by_version_addresses_and_ports(look, asked, version, is_chosen):
    frame = ethernet(ip(*ENDS[version], 17, udp(40000, 4791, bytes(20))))
    assert look(frame, asked).chosen == is_chosen


@given(st.ip_addresses(), st.integers(0, 128), st.data())
def test_a_network_chooses_the_addresses_that_are_in_it(look, address, bits, data):
    network = ipaddress.ip_network((address, min(bits, address.max_prefixlen)), strict=False)
    near = st.integers(0, int(network.hostmask)).map(
        lambda host: type(address)(int(network.network_address) | host)
    )
    other = data.draw(near | st.ip_addresses(v=address.version))
    words = WORDS[address.version]
    frame = ethernet(ip(other, address, 17, udp(1, 2, bytes(20))))
    assert look(frame, f"{words[0]},{words[1]}={network}").chosen == (other in network)
    assert look(frame, f"{words[0]},{words[2]}={address}").chosen


# --- what tells packets of a flow apart ----------------------------------------------------------


def test_the_identification_of_ipv4_tells_packets_apart(look):
    one = look(ethernet(ip(*ENDS[4], 17, udp(1, 2, bytes(20)), ident=0x1234)))
    assert one.mark == one.short_mark == 0x3412


ROCE = struct.pack("!BBHII", 4, 0, 0xFFFF, 17, 77)
"""A base transport header of RoCE v2, whose last word has the packet's sequence number."""


@pytest.mark.parametrize(
    ("protocol", "payload", "at"),
    [
        (17, udp(1, 4791, ROCE + bytes(20)), 8 + 11),
        (17, udp(1, 18515, bytes(24)), 8 + 15),  # a probe's sequence number
        (6, struct.pack("!HHII", 1, 2, 3, 4) + bytes(8), 7),
        (58, bytes([128, 0, 9, 9, 0, 1, 0, 1]) + bytes(8), 7),
    ],
    ids=["RoCE", "probe", "TCP", "echo"],
)
def test_a_sequence_number_tells_ipv6_packets_apart(look, protocol, payload, at):
    other = bytearray(payload)
    other[at] ^= 1
    found = [look(ethernet(ip(*ENDS[6], protocol, one))) for one in (payload, bytes(other))]
    assert found[0].flow == found[1].flow
    assert found[0].mark != found[1].mark
    assert found[0].short_mark == found[1].short_mark


def test_a_checksum_that_is_filled_in_later_changes_no_mark(look):
    """The kernel completes it on the way to ovs-vswitchd."""
    marks = {
        look(ethernet(ip(*ENDS[6], 17, udp(1, 2, bytes(range(20)), checksum)))).mark
        for checksum in (0x1111, 0x2222)
    }
    assert len(marks) == 1


def test_where_only_headers_are_linear_the_mark_is_the_short_one_of_the_whole(look):
    frame = ethernet(ip(*ENDS[6], 17, udp(1, 2, bytes(range(20)))))
    up, back = look(frame, linear=14 + 40 + 8), look(frame)
    assert up.flow == back.flow
    assert up.mark == up.short_mark == back.short_mark != back.mark


# --- any bytes -----------------------------------------------------------------------------------


@st.composite
def packets(draw):
    """Draw an IP packet whose length is right, and whatever else."""
    first = draw(st.sampled_from([0x45, 0x46, 0x60, 0x6F]))
    rest = draw(st.binary(min_size=39, max_size=120))
    packet = bytearray([first, *rest])
    is_six = first >> 4 == 6
    struct.pack_into("!H", packet, 4 if is_six else 2, len(packet) - (40 if is_six else 0))
    packet[6 if is_six else 9] = draw(st.sampled_from([0, 1, 6, 17, 44, 58, 60, 132, packet[6]]))
    return bytes(packet)


@given(packets(), st.booleans())
def test_whatever_comes_is_read_as_open_vswitch_reads_it(look, packet, tag):
    """Of what is read at all, which is behind no extension header."""
    frame = ethernet(packet, tag=tag)
    found = look(frame)
    theirs = read_frame(frame, Header())
    is_six = packet[0] >> 4 == 6
    assert found.is_packet != bool(found.unreadable)
    assert found.is_packet or packet[6] in {0, 43, 44, 51, 60, 135, 139, 140}
    if not found.is_packet or found.encapsulated:
        return
    ends = (theirs.ipv6_src, theirs.ipv6_dst) if is_six else (theirs.nw_src, theirs.nw_dst)
    mapped = 0 if is_six else abi.MAPPED
    assert (found.flow.source, found.flow.target) == tuple(mapped | end for end in ends)
    assert (found.flow.version, found.flow.protocol) == (6 if is_six else 4, theirs.nw_proto)
    if theirs.tp_src and theirs.nw_proto in {6, 17}:
        assert (found.flow.source_port, found.flow.target_port) == (theirs.tp_src, theirs.tp_dst)
