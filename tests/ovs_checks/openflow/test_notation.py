# SPDX-License-Identifier: Apache-2.0
import ipaddress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ovs_checks.openflow.fields import FIELDS
from ovs_checks.openflow.notation import (
    bounded,
    decode,
    encode,
    format_header,
    format_ipv4,
    format_mac,
    integer,
    ipv4,
    ipv6,
    mac,
    or_zero,
)
from ovs_checks.openflow.packet import SLOTS, Header
from ovs_checks.openflow.parse import parse_header

_WIDTHS = {
    slot: max(p.shift + p.width for f in FIELDS.values() for p in f.parts if p.slot == index)
    for slot, index in SLOTS.items()
    if slot != "tun_present"
}
_WIDTHS |= {"nw_proto": 8, "tun_metadata": 128, "in_port": 16, "actset_output": 16}
_WIDTHS |= {"tun_flags": 4, "tcp_flags": 12, "ipv6_label": 20}


def plausible(header):
    """Return what a packet can be: tags have a type, options that have a value are there."""
    tagged = header.vlan_tpid or (0x8100 if header.vlan_tci else 0)
    there = int(header.tun_metadata > 0)
    return header._replace(vlan_tpid=tagged, tun_present=there, tun_flags=header.tun_flags & 8)


headers = st.builds(
    Header,
    **{slot: st.just(0) | st.integers(0, (1 << width) - 1) for slot, width in _WIDTHS.items()},
).map(plausible)


@given(headers | headers.map(lambda h: h._replace(eth_type=0x800, nw_proto=h.nw_proto % 20)))
def test_a_header_survives_being_written_down(header):
    assert parse_header(format_header(header)) == header


@given(st.sampled_from(sorted(FIELDS)).map(FIELDS.__getitem__), st.data())
def test_values_survive_being_written_down(field, data):
    full = (1 << field.width) - 1
    masks = [0, 1, 2, 3] if field.kind == "frag" else None
    if field.kind == "packet_type":  # never masked
        masks = [full]
    mask = data.draw(st.sampled_from(masks) if masks else st.integers(0, full)) & field.bits
    value = data.draw(st.integers(0, full)) & mask
    if field.kind == "frag" and (value, mask) not in {(0, 3), (1, 3), (3, 3), (1, 1), (0, 2)}:
        return
    assert decode(field, encode(field, value, mask)) == (value, mask)


@given(st.sampled_from(sorted(FIELDS)).map(FIELDS.__getitem__), st.text(max_size=60))
def test_arbitrary_text_is_a_value_or_a_value_error(field, text):
    try:
        value, mask = decode(field, text)
    except ValueError:
        return
    assert value & ~mask == 0
    assert mask & ~field.bits == 0


@given(st.ip_addresses(v=6))
def test_ipv6_agrees_with_the_standard_library(address):
    assert ipv6(str(address)) == ipv6(address.exploded) == int(address)


@given(st.text("0123456789abcdef:.", max_size=24))
@example("1.2.3.4::")
@example("::1.2.3.4")
@example("1:2:3:4:5:6:7:1.2.3.4")
@example("1::2::3")
@example(":::")
def test_ipv6_refuses_what_the_standard_library_refuses(text):
    try:
        expected = int(ipaddress.IPv6Address(text))
    except ValueError:
        with pytest.raises(ValueError):
            ipv6(text)
    else:
        assert ipv6(text) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("nw_src", "10.0.0.0/24", (0x0A000000, 0xFFFFFF00)),
        ("nw_src", "1.0.3.0/255.0.255.0", (0x01000300, 0xFF00FF00)),
        ("nw_tos", "33", (32, 0xFC)),
        ("ipv6_dst", "fe80::/10", (0xFE80 << 112, 0xFFC0 << 112)),
        ("nw_frag", "not_later", (0, 2)),
        ("ct_state", "-new+trk", (0x20, 0x21)),
        ("tcp_flags", "+syn-ack", (0x02, 0x12)),
        ("tcp_flags", "0x2/0x7", (0x02, 0x07)),
        ("reg0", "0x3e9/0xffff", (0x3E9, 0xFFFF)),
        ("dl_dst", "01:00:00:00:00:00/01:00:00:00:00:00", (1 << 40, 1 << 40)),
    ],
)
def test_values_as_open_vswitch_prints_them(name, text, expected):
    assert decode(FIELDS[name], text) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("nw_src", bad) for bad in ("10.0.0", "10.0.0.256", "10.0.0.0/33", "", "a.b.c.d")),
        *(("reg0", bad) for bad in ("-1", "0x", "0x100000000", "1/0x1ffffffff", "")),
        *(("dl_src", bad) for bad in ("00:11", "00:11:22:33:44:gg")),
        *(("ct_state", bad) for bad in ("+bogus", "+trk new", "trk|bogus")),
        *(("tcp_flags", bad) for bad in ("+syn-", "+")),
    ],
)
def test_nonsense_is_refused(name, text):
    with pytest.raises(ValueError):
        decode(FIELDS[name], text)


def test_fragments_are_written_as_words():
    assert encode(FIELDS["nw_frag"], 0, 2) == "not_later"
    assert encode(FIELDS["nw_frag"], 1, 3) == "1"


def test_small_readers():
    assert integer("0x1F") == 31
    assert mac("0:1:2:3:4:ff") == 0x0001020304FF
    assert format_mac(0x0001020304FF) == "00:01:02:03:04:ff"
    assert format_ipv4(ipv4("172.30.0.10")) == "172.30.0.10"
    assert or_zero(integer, "flow") == 0
    assert bounded("255", 8) == 255
    with pytest.raises(ValueError):
        bounded("256", 8)
