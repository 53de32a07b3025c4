# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.datapath.crossing import Entrance, crosses, passes
from ovs_checks.datapath.layers import Filter, Megaflow, parse_filters, parse_megaflows
from ovs_checks.openflow.notation import format_ipv4, format_ipv6, format_mac, ipv4, ipv6, mac
from ovs_checks.sources.answers import open_answers

KEPT = open_answers(Path(__file__).parents[1] / "dumps" / "tc-in-software.tar.gz")
MEGAFLOWS = {
    (one.in_port, one.key.count("tun_id=0xc8")): one
    for one in parse_megaflows(KEPT.told("ovs-appctl dpctl/dump-flows -m system@ovs-system"))[0]
}
VXLAN = "vxlan_sys_4789"
PACKET = {
    "eth_src": mac("02:00:00:00:00:0a"),
    "eth_dst": mac("02:00:00:00:00:0b"),
    "eth_type": 0x0800,
    "nw_src": ipv4("10.0.0.10"),
    "nw_dst": ipv4("10.0.0.11"),
    "nw_proto": 17,
    "tp_dst": 18515,
}
OUTER = {"tun_id": 100, "tun_dst": ipv4("172.30.0.10"), "tun_src": ipv4("172.30.0.11")}
SENT = Entrance(PACKET, frozenset({"a0", "3"}))
CAME = Entrance(PACKET | OUTER, frozenset({VXLAN}))
KEY = (
    "recirc_id(0),in_port(a0),packet_type(ns=0,id=0),"
    "eth(src=02:00:00:00:00:0a/00:00:00:00:00:00,dst=02:00:00:00:00:0b),eth_type(0x0800),"
    "ipv4(src=10.0.0.10/0.0.0.0,dst=10.0.0.11,proto=17/0,tos=0/0,ttl=64/0,frag=no),"
    "udp(src=1/0,dst=18515)"
)
FLOW = Megaflow("u", KEY, "2", 1, None)


def flow(old="", new=""):
    assert old in KEY
    return replace(FLOW, key=KEY.replace(old, new))


def test_of_a_recorded_kernel_a_pair_crosses_its_own_flows_and_no_other_tenants():
    taken = {where for where, one in MEGAFLOWS.items() if crosses(SENT, one) or crosses(CAME, one)}
    assert taken == {("a0", 0), (VXLAN, 0)}
    assert len(MEGAFLOWS) == 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dst=02:00:00:00:00:0b", "dst=02:00:00:00:00:0c"),
        ("eth_type(0x0800)", "eth_type(0x0806)"),
        ("dst=10.0.0.11", "dst=10.0.0.12"),
        ("dst=10.0.0.11", "dst=10.0.1.0/255.255.255.0"),
        ("proto=17/0", "proto=6"),
        ("dst=18515", "dst=18516"),
        ("in_port(a0)", "in_port(b0)"),
        ("eth_type(0x0800)", "encap(eth_type(0x86dd))"),
    ],
)
def test_one_field_that_differs_is_enough(old, new):
    assert crosses(SENT, FLOW)
    assert not crosses(SENT, flow(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dst=10.0.0.11", "dst=10.0.0.0/255.255.255.0"),
        ("recirc_id(0)", "recirc_id(7)"),
        ("in_port(a0)", "in_port(3)"),
        ("eth_type(0x0800)", "encap(eth_type(0x0800))"),
        ("recirc_id(0)", "recirc_id(0),ct_state(-new+est),ct_zone(0x5)"),
        ("src=1/0", "src=7"),
    ],
)
def test_what_is_masked_or_not_known_of_the_packet_is_passed_over(old, new):
    assert crosses(SENT, flow(old, new))


@pytest.mark.parametrize(
    "key", ["eth(src=x)", "ipv4(dst=300.1.1.1)", "eth_type(0x0800", "udp(dst=1/x)"]
)
def test_a_key_that_is_not_understood_is_an_error(key):
    with pytest.raises(ValueError):
        crosses(SENT, replace(FLOW, key=f"in_port(a0),{key}"))


@given(st.text(max_size=60))
def test_whatever_a_key_is_the_error_is_a_value_error(text):
    try:
        crosses(SENT, replace(FLOW, key=f"in_port(a0),{text}"))
    except ValueError:
        pass
    else:
        return


addresses, macs = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 48) - 1)


@given(addresses, addresses, macs, macs)
def test_a_mask_says_which_bits_count(value, mask, eth, eth_mask):
    text = (
        f"in_port(a0),eth(dst={format_mac(eth)}/{format_mac(eth_mask)}),"
        f"ipv4(dst={format_ipv4(value)}/{format_ipv4(mask)})"
    )
    expected = not (value ^ PACKET["nw_dst"]) & mask and not (eth ^ PACKET["eth_dst"]) & eth_mask
    assert crosses(SENT, replace(FLOW, key=text)) == expected


# --- tc ------------------------------------------------------------------------------------------


def filters(device):
    return parse_filters(KEPT.told(f"tc -s filter show dev {device} ingress"), device)


def test_of_recorded_filters_a_pair_passes_its_own():
    (sent,), came = filters("a0"), filters(VXLAN)
    assert passes(SENT, sent)
    assert not passes(SENT, replace(sent, device="b0"))
    assert [passes(CAME, one) for one in came] == ["key_id 100" in one.text for one in came]


HEAD = "filter protocol ip pref 2 flower chain 0 handle 0x1"
LINES = {
    "dst_mac": "02:00:00:00:00:0b",
    "eth_type": "ipv4",
    "ip_proto": "udp",
    "dst_ip": "10.0.0.0/24",
    "dst_port": "18515",
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dst_mac", "02:00:00:00:00:0c"),
        ("eth_type", "ipv6"),
        ("ip_proto", "tcp"),
        ("dst_ip", "10.0.1.0/24"),
        ("dst_ip", "10.0.0.12"),
        ("dst_port", "4791"),
    ],
)
def test_one_field_of_a_filter_that_differs_is_enough(field, value):
    def one(fields):
        said = " ".join(f"{name} {asked}" for name, asked in fields.items())
        action = "action order 1: tunnel_key set src_ip 9.9.9.9 dst_ip 9.9.9.9"
        return Filter("a0", 2, 0, "0x1", text=f"{HEAD} {said} {action}")

    assert passes(SENT, one(LINES))
    assert not passes(SENT, one(LINES | {field: value}))
    with pytest.raises(ValueError):
        passes(SENT, one(LINES | {field: "?"}))


# --- IPv6 ----------------------------------------------------------------------------------------

PACKET6 = {
    **{slot: PACKET[slot] for slot in ("eth_src", "eth_dst", "nw_proto", "tp_dst")},
    "eth_type": 0x86DD,
    "ipv6_src": ipv6("fd00::a"),
    "ipv6_dst": ipv6("fd00::b"),
}
OUTER6 = {
    "tun_dst": 0,
    "tun_src": 0,
    "tun_ipv6_dst": ipv6("fd30::a"),
    "tun_ipv6_src": ipv6("fd30::b"),
}
KEY6 = (
    "recirc_id(0),in_port(a0),eth(src=02:00:00:00:00:0a,dst=02:00:00:00:00:0b),eth_type(0x86dd),"
    "ipv6(src=fd00::/ffff::,dst=fd00::b,label=0/0,proto=17/0,tclass=0/0,hlimit=64/0,frag=no),"
    "udp(src=1/0,dst=18515)"
)


@pytest.mark.parametrize(
    ("old", "new", "is_crossed"),
    [
        ("", "", True),
        ("dst=fd00::b", "dst=fd00::c", False),
        ("src=fd00::/ffff::", "src=fd01::/ffff::", False),
        ("proto=17/0", "proto=6", False),
        ("dst=18515", "dst=18516", False),
        ("eth_type(0x86dd)", "eth_type(0x0800)", False),
    ],
)
def test_an_ipv6_packet_crosses_what_its_addresses_match(old, new, is_crossed):
    entrance = Entrance(PACKET6, frozenset({"a0"}))
    assert crosses(entrance, replace(FLOW, key=KEY6.replace(old, new))) == is_crossed
    assert not crosses(SENT, replace(FLOW, key=KEY6))


@pytest.mark.parametrize(
    ("outer", "is_crossed"),
    [
        ("tun_id=0x64,ipv6_src=fd30::b,ipv6_dst=fd30::a", True),
        ("tun_id=0x64,ipv6_src=fd30::c,ipv6_dst=fd30::a", False),
        ("tun_id=0x65,ipv6_src=fd30::b,ipv6_dst=fd30::a", False),
        ("tun_id=0x64,src=172.30.0.11,dst=172.30.0.10", False),
    ],
)
def test_a_packet_of_an_ipv6_tunnel_crosses_flows_of_that_tunnel_alone(outer, is_crossed):
    came = Entrance(PACKET6 | OUTER6 | {"tun_id": 100}, frozenset({"vx"}))
    key = f"tunnel({outer},ttl=64/0,flags(-df+key)),{KEY6.replace('in_port(a0)', 'in_port(vx)')}"
    assert crosses(came, replace(FLOW, key=key)) == is_crossed


addresses6 = st.integers(0, (1 << 128) - 1)


@given(addresses6, addresses6)
def test_a_mask_of_an_ipv6_address_says_which_bits_count(value, mask):
    text = f"in_port(a0),ipv6(dst={format_ipv6(value)}/{format_ipv6(mask)})"
    expected = not (value ^ PACKET6["ipv6_dst"]) & mask
    entrance = Entrance(PACKET6, frozenset({"a0"}))
    assert crosses(entrance, replace(FLOW, key=text)) == expected


@pytest.mark.parametrize(
    ("field", "value", "is_passed"),
    [
        ("dst_ip", "fd00::b", True),
        ("dst_ip", "fd00::/64", True),
        ("dst_ip", "fd00::b/ffff::ffff", True),
        ("dst_ip", "fd00::c", False),
        ("dst_ip", "fd00:1::/32", False),
        ("src_ip", "fd00::b", False),
        ("enc_dst_ip", "fd30::a", True),
        ("enc_dst_ip", "172.30.0.10", False),
        ("enc_src_ip", "fd30::a/127", True),
        ("enc_src_ip", "fd30::a", False),
    ],
)
def test_a_filter_asks_for_ipv6_addresses_under_the_names_of_ipv4(field, value, is_passed):
    one = Filter("vx", 2, 0, "0x1", text=f"{HEAD} eth_type ipv6 {field} {value} action order 1: x")
    assert passes(Entrance(PACKET6 | OUTER6, frozenset({"vx"})), one) == is_passed
