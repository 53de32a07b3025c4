# SPDX-License-Identifier: Apache-2.0
import ipaddress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpf.trace.abi import MAPPED, FlowKey
from bpf.trace.flowspec import FlowSpec, flow_text, parse_flow
from netagent.model.errors import ConfigError


def test_the_notation_of_open_vswitch():
    spec = parse_flow(
        "udp, nw_src=10.0.0.0/24,ip_dst=10.0.0.12,udp_dst=4791,tun_id=0x3e9,in_port=p0"
    )
    assert spec == FlowSpec(
        17,
        ipaddress.IPv4Network("10.0.0.0/24"),
        ipaddress.IPv4Network("10.0.0.12"),
        tp_dst=4791,
        tun_id=1001,
        in_port="p0",
    )
    assert str(spec) == (
        "udp,nw_src=10.0.0.0/24,nw_dst=10.0.0.12,tp_dst=4791,tun_id=1001,in_port=p0"
    )


def test_every_packet_is_asked_for_by_name():
    assert parse_flow("ip") == FlowSpec()
    assert str(parse_flow("ip,nw_proto=47")) == "ip,nw_proto=47"
    assert parse_flow("ipv6") == FlowSpec(version=6)
    assert str(parse_flow("ipv6,nw_proto=47")) == "ipv6,nw_proto=47"
    assert parse_flow("in_port=p0").version == 4


def test_ipv6_has_its_own_words():
    spec = parse_flow("udp6,ipv6_src=FD00::/64,ipv6_dst=fd00:0::c,udp_dst=4791,tun_id=7")
    assert spec == FlowSpec(
        17,
        ipaddress.IPv6Network("fd00::/64"),
        ipaddress.IPv6Network("fd00::c"),
        tp_dst=4791,
        tun_id=7,
        version=6,
    )
    assert str(spec) == "udp6,ipv6_src=fd00::/64,ipv6_dst=fd00::c,tp_dst=4791,tun_id=7"
    assert parse_flow("ipv6_dst=fd00::c").version == 6
    assert parse_flow("icmp6").nw_proto == 58


def test_the_kernel_is_told_the_same():
    told = parse_flow("tcp,nw_dst=10.0.1.9/24,tp_src=9,tun_id=0,in_port=p0").filter(
        5, uplink="u", journeys_per_s=1, events_per_s=2
    )
    assert (told.netns, told.protocol, told.vni, told.in_port) == (5, 6, 0, "p0")
    assert (told.target, told.target_mask) == (MAPPED | 0x0A000100, (1 << 128) - (1 << 8))
    assert (told.source_mask, told.source_port, told.target_port) == (0, 9, 0)
    assert (told.uplink, told.journeys_per_s, told.events_per_s) == ("u", 1, 2)
    assert told.version == 4
    six = parse_flow("tcp6,ipv6_dst=fd00:9::1/64").filter(
        5, uplink="", journeys_per_s=1, events_per_s=2
    )
    assert (six.target, six.target_mask) == (0xFD000009 << 96, (1 << 128) - (1 << 64))
    assert (six.version, six.protocol, six.source_mask) == (6, 6, 0)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("arp", "arp: know"),
        ("udp,nw_dst", "nw_dst: know"),
        ("udp,nw_dst=", "nw_dst=: know"),
        ("udp,nw_dst=10.0.0", "nw_dst=10.0.0"),
        ("udp,nw_dst=fe80::1", "fe80"),
        ("udp6,ipv6_dst=10.0.0.1", "10.0.0.1"),
        ("udp6,ipv6_dst=fe80::1%eth0", "no zone"),
        ("udp,ipv6_dst=fd00::1", "udp is IPv4, ipv6_dst=fd00::1 is IPv6"),
        ("ipv6,ip_src=10.0.0.1", "ip_src=10.0.0.1 is IPv4, ipv6 is IPv6"),
        ("icmp6,tp_dst=1", "udp6 or tcp6"),
        ("udp6,tcp6", "nw_proto given twice"),
        ("ipv6_dst=fd00::1,ipv6_dst=fd00::2", "nw_dst given twice"),
        ("udp,tp_dst=65536", "65535"),
        ("udp,tp_dst=x", "tp_dst=x"),
        ("udp,tun_id=16777216", "16777215"),
        ("udp,tcp", "nw_proto given twice"),
        ("udp,nw_src=10.0.0.1,ip_src=10.0.0.2", "nw_src given twice"),
        ("icmp,tp_dst=1", "udp or tcp"),
        ("in_port=a-name-longer-than-it-can-be", "no name"),
        ("in_port=../x", "no name"),
        ("in_port=3", "not its number"),
        ("udp,tp_dst=0", "within 1 and 65535"),
        ("udp,tp_dst=http", "no number"),
        ("", "empty"),
        (" , ", "empty"),
    ],
)
def test_the_word_at_fault_is_named(text, fault):
    with pytest.raises(ConfigError) as raised:
        parse_flow(text)
    assert fault in str(raised.value)


networks = st.none() | st.builds(
    lambda address, bits: ipaddress.IPv4Network((address, bits), strict=False),
    st.integers(0, (1 << 32) - 1),
    st.integers(1, 32),
)
specs = st.builds(
    FlowSpec,
    st.sampled_from([6, 17]),
    networks,
    networks,
    st.integers(0, 65535),
    st.integers(0, 65535),
    st.none() | st.integers(0, (1 << 24) - 1),
    st.text("abcxyz0189-_.", max_size=15).filter(lambda name: not name.isdecimal()),
)


networks6 = st.none() | st.builds(
    lambda address, bits: ipaddress.IPv6Network((address, bits), strict=False),
    st.integers(0, (1 << 128) - 1),
    st.integers(1, 128),
)
specs |= st.builds(
    lambda spec, source, target: replace(spec, nw_src=source, nw_dst=target, version=6),
    specs,
    networks6,
    networks6,
)


@given(specs)
def test_what_is_written_reads_as_the_same(spec):
    assert parse_flow(str(spec)) == spec


def test_one_packets_flow_is_in_the_same_notation():
    udp = FlowKey(MAPPED | 0x0A00000A, MAPPED | 0x0A00000C, 40000, 4791, 17, 4)
    assert flow_text(udp) == "udp,nw_src=10.0.0.10,nw_dst=10.0.0.12,tp_src=40000,tp_dst=4791"
    assert parse_flow(flow_text(udp)).tp_dst == 4791
    ends = (MAPPED | 1, MAPPED | 2, 0, 0)
    assert flow_text(FlowKey(*ends, 1, 4)) == "icmp,nw_src=0.0.0.1,nw_dst=0.0.0.2"
    assert flow_text(FlowKey(*ends, 47, 4)) == "ip,nw_proto=47,nw_src=0.0.0.1,nw_dst=0.0.0.2"
    assert flow_text(FlowKey(1, 2, 0, 0, 58, 6)) == "icmp6,ipv6_src=::1,ipv6_dst=::2"
    six = flow_text(FlowKey(0xFD00 << 112, 2, 7, 8, 6, 6))
    assert six == "tcp6,ipv6_src=fd00::,ipv6_dst=::2,tp_src=7,tp_dst=8"
    assert flow_text(FlowKey(1, 2, 0, 0, 47, 6)).startswith("ipv6,nw_proto=47,ipv6_src")
