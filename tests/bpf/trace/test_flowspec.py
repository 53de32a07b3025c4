# SPDX-License-Identifier: Apache-2.0
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpf.trace.abi import FlowKey
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


def test_the_kernel_is_told_the_same():
    told = parse_flow("tcp,nw_dst=10.0.1.9/24,tp_src=9,tun_id=0,in_port=p0").filter(
        5, uplink="u", journeys_per_s=1, events_per_s=2
    )
    assert (told.netns, told.protocol, told.vni, told.in_port) == (5, 6, 0, "p0")
    assert (told.target, told.target_mask) == (0x0A000100, 0xFFFFFF00)
    assert (told.source_mask, told.source_port, told.target_port) == (0, 9, 0)
    assert (told.uplink, told.journeys_per_s, told.events_per_s) == ("u", 1, 2)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("arp", "arp: know"),
        ("udp,nw_dst", "nw_dst: know"),
        ("udp,nw_dst=", "nw_dst=: know"),
        ("udp,nw_dst=10.0.0", "nw_dst=10.0.0"),
        ("udp,nw_dst=fe80::1", "fe80"),
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


@given(specs)
def test_what_is_written_reads_as_the_same(spec):
    assert parse_flow(str(spec)) == spec


def test_one_packets_flow_is_in_the_same_notation():
    udp = FlowKey(0x0A00000A, 0x0A00000C, 40000, 4791, 17)
    assert flow_text(udp) == "udp,nw_src=10.0.0.10,nw_dst=10.0.0.12,tp_src=40000,tp_dst=4791"
    assert parse_flow(flow_text(udp)).tp_dst == 4791
    assert flow_text(FlowKey(1, 2, 0, 0, 1)) == "icmp,nw_src=0.0.0.1,nw_dst=0.0.0.2"
    assert flow_text(FlowKey(1, 2, 0, 0, 47)) == "ip,nw_proto=47,nw_src=0.0.0.1,nw_dst=0.0.0.2"
