# SPDX-License-Identifier: Apache-2.0
import secrets
import select
import struct
import subprocess
import time
from contextlib import closing
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.adapters.host.setns import call_in_namespace
from netagent.adapters.paths import traceroute
from netagent.probing.paths import OuterFlow, TtlProbe
from tests.conftest import NETNS, require


def answer(kind, code, ident, *, port=4789, protocol=17):
    quoted = struct.pack("!BBHHHBBH", 0x45, 0, 32, ident, 0x4000, 1, protocol, 0) + bytes(8)
    quoted += struct.pack("!HHHH", 51000, port, 12, 0)
    outside = struct.pack("!BBHHHBBH", 0x45, 0, 0, 0, 0, 64, 1, 0) + bytes(8)
    return outside + struct.pack("!BBHI", kind, code, 0, 0) + quoted


@given(st.integers(1, 0xFFFF), st.sampled_from([(11, 0), (3, 0), (3, 1)]))
def test_a_routers_answer_names_our_packet(ident, kind):
    assert traceroute.parse(answer(*kind, ident), {4789}) == ident
    assert traceroute.parse(answer(*kind, ident, port=6081), {4789, 6081}) == ident


@given(st.integers(0, 255), st.integers(0, 255))
def test_other_messages_are_no_answer(kind, code):
    said = traceroute.parse(answer(kind, code, 7), {4789})
    assert (said is not None) == (kind == 11 or (kind, code) in {(3, 0), (3, 1)})


def test_others_packets_quoted_are_no_answer():
    assert traceroute.parse(answer(11, 0, 7, port=53), {4789}) is None
    assert traceroute.parse(answer(11, 0, 7, protocol=6), {4789}) is None


@given(st.binary(max_size=120))
def test_any_bytes_give_an_identification_or_nothing(data):
    said = traceroute.parse(data, {4789})
    assert said is None or 0 <= said <= 0xFFFF


def answer_6(kind, code, sent):
    return struct.pack("!BBHI", kind, code, 0, 0) + sent


FLOW_6 = OuterFlow("fd00:30::1", "fd00:30::2", 51000, 4789, 0x12345)


@given(
    st.integers(1, 0xFFFF), st.sampled_from([(3, 0), (1, 0), (1, 3)]), st.integers(1, 1500),
    st.sampled_from([0, 64, 65, 1550]),
)  # fmt: skip
def test_a_routers_answer_names_our_packet_by_ipv6(ident, kind, cut, size):
    sent = traceroute.packet_6(TtlProbe(FLOW_6, 3, ident), size=size)
    said = traceroute.parse_6(answer_6(*kind, sent[:cut]), {4789})
    assert said == (ident if cut >= 54 else None)


@given(st.integers(0, 255), st.integers(0, 255))
def test_other_messages_of_ipv6_are_no_answer(kind, code):
    sent = traceroute.packet_6(TtlProbe(FLOW_6, 3, 7))
    said = traceroute.parse_6(answer_6(kind, code, sent), {4789})
    assert (said is not None) == (kind == 3 or (kind, code) in {(1, 0), (1, 3)})


def test_others_packets_quoted_by_ipv6_are_no_answer():
    sent = traceroute.packet_6(TtlProbe(FLOW_6, 3, 7))
    assert traceroute.parse_6(answer_6(3, 0, sent), {53}) is None
    tcp = sent[:6] + b"\x06" + sent[7:]
    assert traceroute.parse_6(answer_6(3, 0, tcp), {4789}) is None
    tunnelled = sent[:48] + b"\x08" + sent[49:]
    assert traceroute.parse_6(answer_6(3, 0, tunnelled), {4789}) is None


@given(st.integers(1, 0xFFFF), st.integers(0, 0xFFFFF), st.integers(0, 0xFFFF), st.integers(0, 200))
def test_a_packet_of_ipv6_is_hashed_as_the_flow_and_arrives_nowhere(ident, label, port, size):
    flow = OuterFlow("fd00:30::1", "fd00:30::2", port, 6081, label)
    sent = traceroute.packet_6(TtlProbe(flow, 5, ident), size=size)
    assert len(sent) == max(size, 54)
    word, length, protocol, hops = struct.unpack_from("!IHBB", sent)
    assert (word, length, protocol, hops) == (6 << 28 | label, len(sent) - 40, 17, 5)
    source, target, ports = (ip_address(sent[8:24]), ip_address(sent[24:40]), sent[40:44])
    assert (str(source), str(target)) == (flow.source, flow.target)
    assert ports == struct.pack("!HH", port, 6081)
    assert sent[48:52] == bytes(4)  # neither VXLAN's flag of a VNI nor Geneve's protocol
    # RFC 1071: what is right sums up to all ones
    summed = sent[8:40] + struct.pack("!II", length, 17) + sent[40:] + bytes(len(sent) % 2)
    total = sum(struct.unpack(f"!{len(summed) // 2}H", summed))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF
    assert sent[46:48] != bytes(2)


@given(st.binary(max_size=120))
def test_any_bytes_by_ipv6_give_a_number_or_nothing(data):
    said = traceroute.parse_6(data, {4789})
    assert said is None or 0 <= said <= 0xFFFF


HOST = {4: "172.31.0.1", 6: "fd00:31::1"}
TARGET = {4: "172.31.9.1", 6: "fd00:31::9:1"}
ROUTERS = {
    4: ["10.255.0.1", "10.255.0.2", "10.255.0.3"],
    6: ["fd00:ff::1", "fd00:ff::2", "fd00:ff::3"],
}
SETTINGS = (
    "ipv4.ip_forward=1", "ipv4.icmp_ratelimit=0", "ipv4.conf.all.rp_filter=0",
    "ipv4.conf.default.rp_filter=0", "ipv6.conf.all.forwarding=1", "ipv6.icmp.ratelimit=0",
)  # fmt: skip


def ip(namespace, *words):
    subprocess.run(["ip", "-n", namespace, *words], check=True)


def set_up(names, n):
    """Make the namespace of the host (0) or a router, with its addresses."""
    subprocess.run(["ip", "netns", "add", names[n]], check=True)
    words = ["sysctl", "-qw", *(f"net.{each}" for each in SETTINGS)]
    subprocess.run(["ip", "netns", "exec", names[n], *words], check=True)
    ip(names[n], "link", "set", "lo", "up")
    for version, length in ((4, 32), (6, 128)):
        own = [HOST[version], *ROUTERS[version]][n]
        ip(names[n], "addr", "add", f"{own}/{length}", "dev", "lo")


def join(names, n):
    """Make the link from one to the next, and the routes over it there and back."""
    here, there = names[n : n + 2]
    ip(here, "link", "add", "next", "type", "veth", "peer", "back", "netns", there)
    for at, device, own in ((here, "next", "fe80::1"), (there, "back", "fe80::2")):
        ip(at, "addr", "add", f"{own}/64", "dev", device, "nodad")
        ip(at, "link", "set", device, "up")
    for far in (TARGET[4], TARGET[6], *ROUTERS[6][n:]):
        ip(here, "route", "add", far, "via", "inet6", "fe80::2", "dev", "next")
    for far in HOST.values():
        ip(there, "route", "add", far, "via", "inet6", "fe80::1", "dev", "back")


@pytest.fixture
def host():
    """Return the path of a host's namespace.

    It has three routers in a row before it, of which the last one knows no way to the target.
    """
    require(NETNS)
    tag = secrets.token_hex(3)
    names = [f"na-{tag}-{n}" for n in range(4)]
    try:
        for n in range(4):
            set_up(names, n)
        for n in range(3):
            join(names, n)
        # Neighbours are asked for once the kernel has seen the carrier.
        ping = ("ping", "-q", "-i", "0.05", "-c", "1", "-w", "20", "-I", HOST[6], ROUTERS[6][2])
        subprocess.run(["ip", "netns", "exec", names[0], *ping], check=True)
        yield f"/run/netns/{names[0]}"
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.mark.netns
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("size", [0, 1400])
def test_real_routers_answer_with_their_own_address_and_when(host, version, size):
    flow = OuterFlow(HOST[version], TARGET[version], 51000, 4789, 0x12345 if version == 6 else 0)
    with closing(call_in_namespace(host, traceroute.open_trace)) as sockets:
        begun_ns = time.time_ns()
        for ttl in (1, 2, 3):
            assert traceroute.send(sockets, TtlProbe(flow, ttl, 0x7000 + ttl), size=size)
        poll = select.poll()
        for each in (sockets.listener, sockets.six[1]):
            poll.register(each, select.POLLIN)
        answers = []
        while len(answers) < 3 and poll.poll(5000):
            answers += traceroute.drain(sockets)
        heard = {each.ident - 0x7000: each.router for each in answers}
        assert heard == dict(enumerate(ROUTERS[version], start=1))
        assert all(begun_ns < each.wall_ns < time.time_ns() for each in answers)


@pytest.mark.netns
def test_what_cannot_be_sent_is_said(host):
    with closing(call_in_namespace(host, traceroute.open_trace)) as sockets:
        for ends in (("fd00:31::1", "172.31.9.1"), ("172.31.0.1", "fd00:31::1"), ("", "")):
            assert not traceroute.send(sockets, TtlProbe(OuterFlow(*ends, 51000), 1, 1))
        flow = OuterFlow(HOST[6], TARGET[6], 51000)
        assert not traceroute.send(sockets, TtlProbe(flow, 1, 1), size=2000)
        sockets.six[0].close()
        sockets.six[1].close()
        sockets.six = None
        assert not traceroute.send(sockets, TtlProbe(flow, 1, 1))
