# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.openflow.frame import read_frame
from ovs_checks.openflow.packet import Header, limit_tags
from ovs_checks.openflow.parse import parse_header

MACS = "020000000002020000000001"
V4 = "45020024000040003f1100000a0000010a000002"
UDP = "12b712b7001000000102030405060708"
V6 = "6010000000103aff" + "fe80" + "00" * 13 + "01" + "ff02" + "00" * 13 + "02"


def read(text, **arrived):
    return read_frame(bytes.fromhex(text), Header(**arrived))


def test_a_frame_is_what_its_headers_say():
    told = "dl_dst=02:00:00:00:00:02,dl_src=02:00:00:00:00:01,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,"
    told += "nw_ttl=63,nw_ecn=2,tp_src=4791,tp_dst=4791,in_port=3,metadata=0"
    assert read(MACS + "0800" + V4 + UDP, in_port=3) == parse_header(told)


def test_what_is_known_of_a_packet_stays_and_what_tables_wrote_does_not():
    header = read(MACS + "0900", in_port=3, tun_id=7, pkt_mark=9, metadata=5, reg0=1)
    kept = (header.in_port, header.tun_id, header.pkt_mark, header.metadata, header.reg0)
    assert kept == (3, 7, 9, 0, 0)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("8100000a0800" + V4 + UDP, {"vlan_tci": 0x100A, "eth_type": 0x800, "tp_dst": 4791}),
        ("88a800058100000a0900", {"vlan_tci": 0x1005, "vlan_tci1": 0x100A}),
        ("8100", {"vlan_tci": 0, "eth_type": 0x8100}),
        ("88470001004000020140" + V4, {"mpls_lse": 0x10040, "mpls_lse1": 0x20140}),
        ("0026aaaa030000000800" + V4 + UDP, {"eth_type": 0x800, "nw_proto": 17}),
        ("0026424203", {"eth_type": 0x5FF}),
        ("08004402", {"eth_type": 0x800, "nw_proto": 0}),
        ("0800" + V4[:12] + "2000" + V4[16:] + UDP, {"nw_frag": 1, "tp_src": 4791}),
        ("0800" + V4[:12] + "2005" + V4[16:] + UDP, {"nw_frag": 3, "tp_src": 0}),
        ("0800" + V4.replace("0024", "0014", 1), {"nw_proto": 17, "tp_src": 0}),
        ("080600010800060400010200000000010a0000010000000000000a000002",
         {"nw_proto": 1, "nw_src": 0x0A000001, "nw_dst": 0x0A000002, "arp_sha": 0x020000000001}),
        ("080600060800060400010200000000010a0000010000000000000a000002", {"nw_src": 0}),
        ("86dd" + V6 + "87000000000000000800", {"nw_proto": 0, "tp_src": 0}),
        ("86dd" + V6.replace("0010", "0020", 1) + "8700000000000001fe80" + "00" * 13 + "02"
         "0101020000000001",
         {"tp_src": 135, "nd_target": (0xFE80 << 112) + 2, "arp_sha": 0x020000000001,
          "igmp_group": 1, "tcp_flags": 1, "nw_tos": 1, "nw_ttl": 255}),
        ("86dd" + V6.replace("3aff", "2cff", 1) + "1100000900000001" + "12b712b700080000",
         {"nw_frag": 3, "nw_proto": 44, "tp_src": 0}),
        ("86dd" + V6.replace("3aff", "00ff", 1) + "1100000000000000" + "12b712b700080000",
         {"nw_proto": 17, "tp_src": 4791}),
    ],
)  # fmt: skip
def test_headers_that_are_not_plain(text, fields):
    header = read(MACS + text)
    assert {name: getattr(header, name) for name in fields} == fields


@given(st.binary(max_size=120), st.sampled_from(["0800", "86dd", "0806", "8100", "8847", "0010"]))
def test_any_frame_is_read(tail, kind):
    header = read_frame(bytes.fromhex(MACS + kind) + tail)
    assert header.eth_src == 0x020000000001


def test_what_is_too_short_for_ethernet_is_no_frame():
    with pytest.raises(ValueError, match="too short"):
        read(MACS)


def test_a_switch_that_sees_one_tag_takes_the_second_for_a_type():
    double = read(MACS + "88a800058100000a0800" + V4 + UDP)
    single = limit_tags(double, 1)
    assert (single.vlan_tci, single.eth_type, single.vlan_tci1, single.nw_proto) == (
        *(0x1005, 0x8100),
        *(0, 0),
    )
    assert limit_tags(double, 2) == double
