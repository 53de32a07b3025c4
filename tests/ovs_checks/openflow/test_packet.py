# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.openflow.fields import FIELDS, applies, read, spread, write
from ovs_checks.openflow.packet import SLOTS, Header
from ovs_checks.openflow.parse import parse_header

_TAG = ("dl_vlan", "dl_vlan_pcp", "vlan_tci", "vlan_vid", "vlan_pcp")
_BESIDE = {name: {SLOTS["vlan_tpid"]} for name in _TAG}
_BESIDE["tun_metadata"] = {SLOTS["tun_present"]}
fields = st.sampled_from(sorted(FIELDS)).map(FIELDS.__getitem__)


@given(fields, st.data())
def test_what_is_written_is_read_back(field, data):
    """Under any mask, the masked bits are the new ones and the others the old ones."""
    full = (1 << field.width) - 1
    old, new, mask = (data.draw(st.integers(0, full)) for _ in range(3))
    slots = [0] * len(SLOTS)
    write(field, slots, old, full)
    write(field, slots, new, mask)
    written = read(field, slots)
    assert written == (old & ~mask | new & mask) & field.bits


@given(fields, st.data())
def test_a_write_touches_only_the_field_s_own_slots(field, data):
    value = data.draw(st.integers(0, (1 << field.width) - 1))
    before = list(range(len(SLOTS)))
    after = list(before)
    write(field, after, value, field.bits)
    own = {part.slot for part in field.parts} | _BESIDE.get(field.name.rstrip("0123456789"), set())
    assert all(a == b for n, (a, b) in enumerate(zip(before, after, strict=True)) if n not in own)


def test_wide_registers_overlay_the_narrow_ones():
    """Open vSwitch puts the lower-numbered register into the upper half."""
    header = Header(reg0=1, reg1=2, reg2=3, reg3=4)
    assert read(FIELDS["xreg0"], header) == 1 << 32 | 2
    assert read(FIELDS["xxreg0"], header) == 1 << 96 | 2 << 64 | 3 << 32 | 4
    slots = list(header)
    write(FIELDS["OXM_OF_PKT_REG1"], slots, 9, 0xFF)
    assert Header._make(slots) == header._replace(reg3=9)


def test_spread_leaves_out_slots_that_the_mask_does_not_touch():
    assert spread(FIELDS["xreg0"], 0xFF, 0x0F) == [(SLOTS["reg1"], 0x0F, 0x0F)]


def test_prerequisites_are_those_of_open_vswitch():
    packets = {
        "tcp": parse_header("tcp,tcp_dst=80"),
        "tcp later": parse_header("tcp,nw_frag=later"),
        "udp6": parse_header("udp6,udp_dst=53"),
        "icmp": parse_header("icmp,icmp_type=8"),
        "solicitation": parse_header("icmp6,icmpv6_type=135"),
        "advertisement": parse_header("icmp6,icmpv6_type=136"),
        "arp": parse_header("arp,arp_op=1"),
        "sctp": parse_header("sctp,dl_vlan=5"),
    }
    expected = {
        "reg0": set(packets),
        "nw_src": {"tcp", "tcp later", "icmp", "sctp"},
        "ipv6_dst": {"udp6", "solicitation", "advertisement"},
        "nw_ttl": set(packets) - {"arp"},
        "arp_spa": {"arp"},
        "tcp_src": {"tcp"},
        "udp_dst": {"udp6"},
        "sctp_dst": {"sctp"},
        "tp_dst": set(packets) - {"arp", "tcp later"},
        "icmp_type": {"icmp"},
        "icmpv6_type": {"solicitation", "advertisement"},
        "nd_target": {"solicitation", "advertisement"},
        "nd_sll": {"solicitation"},
        "nd_tll": {"advertisement"},
        "vlan_pcp": {"sctp"},
        "vlan_vid": set(packets),
    }
    for name, having in expected.items():
        assert {p for p, header in packets.items() if applies(FIELDS[name], header)} == having, name
