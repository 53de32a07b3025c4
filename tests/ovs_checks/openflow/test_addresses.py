# SPDX-License-Identifier: Apache-2.0
import ipaddress
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.openflow.addresses import (
    canonical,
    destination,
    either,
    either_or_zero,
    network,
    of_protocol,
    outer,
    text_of,
    udp_between,
)
from ovs_checks.openflow.packet import Header
from ovs_checks.openflow.parse import parse_header

V4 = st.ip_addresses(v=4)
V6 = st.ip_addresses(v=6).filter(
    lambda address: not address.is_unspecified and address.ipv4_mapped is None
)
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"


@given(V4 | V6)
def test_an_address_of_either_family_is_read_whole(address):
    expected = (int(address), 0) if address.version == 4 else (0, int(address))
    assert either(str(address)) == either(address.exploded) == expected


@given(V4)
def test_a_mapped_address_is_an_ipv4_one(address):
    assert either(f"::ffff:{address}") == (int(address), 0)
    assert canonical(f"::FFFF:{address}") == (str(address) if int(address) else f"::FFFF:{address}")


@given(V6)
def test_however_an_address_is_spelt_its_canonical_form_is_one(address):
    said = {canonical(str(address)), canonical(address.exploded), canonical(str(address).upper())}
    (form,) = said
    assert ipaddress.IPv6Address(form) == address
    assert canonical(form) == form


@given(st.text(max_size=50))
def test_what_is_no_address_is_refused_or_stays_as_it_is(text):
    try:
        either(text)
    except ValueError:
        assert canonical(text) == text
        assert either_or_zero(text) == (0, 0)
    else:
        assert re.fullmatch(r"[0-9a-fA-F:.]+", text)


@pytest.mark.parametrize("text", ["flow", "", "0.0.0.0", "fe80::1%eth0", "10.0.0.1/24"])
def test_words_of_a_port_s_options_are_left_as_they_are(text):
    assert canonical(text) == text


def test_a_packet_is_of_the_family_of_its_addresses():
    v4 = udp_between((A, "10.0.0.1"), (B, "10.0.0.2"), source_port=1, destination_port=2)
    assert v4 == parse_header(
        f"in_port=0,udp,dl_src={A},dl_dst={B},nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,udp_src=1,udp_dst=2"
    )
    v6 = udp_between((A, "FD00::1"), (B, "fd00:0::2"), source_port=1, destination_port=2)
    assert v6 == parse_header(
        f"in_port=0,udp6,dl_src={A},dl_dst={B},ipv6_src=fd00::1,ipv6_dst=fd00::2,nw_ttl=64,udp_src=1,udp_dst=2"
    )
    assert [destination(one) for one in (v4, v6, Header())] == ["10.0.0.2", "fd00::2", ""]


@pytest.mark.parametrize(
    "pair", [("10.0.0.1", "fd00::2"), ("fd00::1", "10.0.0.2"), ("", "10.0.0.2"), ("fd00::1", "x")]
)
def test_no_packet_goes_between_two_families_or_what_is_no_address(pair):
    with pytest.raises(ValueError, match="IPv4"):
        network(*pair)


def test_a_tunnel_s_ends_are_of_one_family_and_the_other_is_0():
    assert outer("fd30::1", "") == {
        "tun_dst": 0,
        "tun_src": 0,
        "tun_ipv6_dst": 0xFD30 << 112 | 1,
        "tun_ipv6_src": 0,
    }
    assert outer("172.30.0.1", "172.30.0.2")["tun_ipv6_dst"] == 0
    assert text_of(0, 0) == ""


@pytest.mark.parametrize(
    ("protocol", "is_reply", "said"),
    [
        ("udp", False, "udp,udp_src=1,udp_dst=2"),
        ("udp", True, "udp,udp_src=1,udp_dst=2"),
        ("tcp", False, "tcp,tcp_src=1,tcp_dst=2,tcp_flags=syn"),
        ("tcp", True, "tcp,tcp_src=1,tcp_dst=2,tcp_flags=syn|ack"),
        ("icmp", False, "icmp,icmp_type=8,icmp_code=0"),
        ("icmp", True, "icmp,icmp_type=0,icmp_code=0"),
    ],
)
def test_a_connection_begins_with_a_packet_of_its_protocol(protocol, is_reply, said):
    sent = udp_between((A, "10.0.0.1"), (B, "10.0.0.2"), source_port=1, destination_port=2)
    ends = f"dl_src={A},dl_dst={B},nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64"
    expected = parse_header(f"in_port=0,{said},{ends}")
    assert of_protocol(sent, protocol, is_reply=is_reply) == expected


def test_an_echo_by_ipv6_is_of_its_own_protocol():
    sent = udp_between((A, "fd00::1"), (B, "fd00::2"), source_port=1, destination_port=2)
    kinds = [of_protocol(sent, "icmp", is_reply=each) for each in (False, True)]
    assert [(each.nw_proto, each.tp_src, each.tp_dst) for each in kinds] == [
        (58, 128, 0), (58, 129, 0),
    ]  # fmt: skip
