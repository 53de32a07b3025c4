# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.openflow.packet import SLOTS, TUNNEL
from ovs_checks.openflow.parse import parse_header
from ovs_checks.switch.snapshot import Features
from ovs_checks.translate.commit import commit, commit_tunnel
from tests.ovs_checks.pipelines import packets
from tests.ovs_checks.translate.contexts import context, does, looked

FROM_L2 = SLOTS["eth_dst"]


def between(base, flow, *, seen=None, **more):
    """Return a translation that made `flow` of `base`, looking at all or at masks `seen`."""
    x = context(base, **more)
    x.flow[:] = parse_header(flow)
    if seen is None:
        x.looked[:] = [(1 << 128) - 1] * len(x.looked)
        x.looked[SLOTS["pkt_mark"]] = 0xFFFFFFFF
    for name, mask in (seen or {}).items():
        x.looked[SLOTS[name]] = mask
    commit(x)
    return x


@given(packets, packets)
def test_a_second_commit_has_nothing_to_do(base, flow):
    x = between(base, flow)
    done = len(x.steps)
    x.slow.clear()
    commit(x)
    assert (len(x.steps), x.slow) == (done, set())


@given(packets)
def test_a_packet_that_is_as_it_came_needs_nothing(packet):
    x = between(packet, packet)
    assert (x.steps, x.slow) == ([], set())


_MACS = st.sampled_from(("00:00:00:00:00:01", "00:00:00:00:00:02"))
_TAG = ",vlan_tci=0x1005"
_UDP = st.builds(
    "udp,dl_src={},dl_dst={},nw_src=10.0.0.{},nw_dst=10.0.0.{},nw_ttl={},udp_src={},udp_dst={}{}".format,
    *(_MACS, _MACS, st.integers(1, 3), st.integers(1, 3), st.integers(0, 9)),
    *(st.integers(0, 2), st.integers(0, 2)),
    st.sampled_from(("", _TAG, f"{_TAG},vlan_tci1=0x1006,vlan_tpid1=0x8100")),
)


@given(_UDP, _UDP)
def test_afterwards_the_datapath_has_the_packet_that_the_flows_want(base, flow):
    x = between(base, flow)
    assert x.base[FROM_L2:] == x.flow[FROM_L2:]
    assert bool(x.steps) == (parse_header(base)[FROM_L2:] != parse_header(flow)[FROM_L2:])


@pytest.mark.parametrize(
    ("base", "flow", "expected"),
    [
        ("dl_src=00:00:00:00:00:01", "dl_src=00:00:00:00:00:02", "set(eth(src=00:00:00:00:00:02))"),
        ("udp,nw_ttl=9,nw_src=1.2.3.4", "udp,nw_ttl=8,nw_src=1.2.3.4", "set(ipv4(ttl=8))"),
        ("udp6,ipv6_label=1", "udp6,ipv6_label=2", "set(ipv6(label=0x2))"),
        ("tcp,tcp_dst=80", "tcp,tcp_dst=81", "set(tcp(dst=81))"),
        ("sctp,sctp_src=80", "sctp,sctp_src=81", "set(sctp(src=81))"),
        ("pkt_mark=1", "pkt_mark=2", "set(skb_mark(0x2))"),
        ("vlan_tci=0x1005", "", "pop_vlan"),
        ("", "vlan_tci=0x7005", "push_vlan(vid=5,pcp=3)"),
        ("vlan_tci=0x1005", "vlan_tci=0x1006", "pop_vlan,push_vlan(vid=6,pcp=0)"),
        (
            "vlan_tci=0x1005",
            "vlan_tci=0x1006,vlan_tci1=0x1005,vlan_tpid1=0x8100",
            "push_vlan(vid=6,pcp=0)",
        ),
        (
            "",
            "vlan_tpid=0x88a8,vlan_tci=0x1006",
            "push_vlan(tpid=0x88a8,vid=6,pcp=0)",
        ),
        ("mpls,mpls_label=1,mpls_bos=1,mpls_ttl=9", "mpls,mpls_label=2,mpls_bos=1,mpls_ttl=9",
         "set(mpls(label=2,tc=0,ttl=9,bos=1))"),
        ("mpls,mpls_label=1,mpls_bos=1", "dl_type=0x0800", "pop_mpls(eth_type=0x800)"),
        ("dl_type=0x0800", "mpls,mpls_label=1,mpls_bos=1",
         "push_mpls(label=1,tc=0,ttl=0,bos=1,eth_type=0x8847)"),
    ],
)  # fmt: skip
def test_what_closes_the_gap(base, flow, expected):
    assert does(between(base, flow)) == expected


def test_ports_of_a_packet_without_a_protocol_are_not_written():
    assert does(between("ip,nw_ttl=1", "ip,nw_ttl=2")) == "drop"


def test_only_bits_that_mattered_are_written():
    base, flow = "udp,nw_dst=10.0.0.1", "udp,nw_dst=10.0.0.7"
    assert does(between(base, flow, seen={"nw_dst": 0xFF})) == "set(ipv4(dst=0.0.0.7/0.0.0.255))"


def test_a_datapath_without_masks_is_given_the_whole_key_which_is_looked_at():
    base, flow = "udp,dl_src=00:00:00:00:00:01", "udp,dl_src=00:00:00:00:00:02"
    x = between(base, flow, seen={"eth_src": 0xFF}, features=Features(masked_set=False))
    assert does(x) == "set(eth(src=00:00:00:00:00:02,dst=00:00:00:00:00:00))"
    assert looked(x, "eth_dst") == (1 << 48) - 1
    masked = between(base, flow, seen={"eth_src": 0xFF})
    assert looked(masked, "eth_dst") == 0


@pytest.mark.parametrize(
    ("tunnel", "tos", "mask"), [("", 0x2C, ""), (",tun_dst=1.2.3.4", 0x2C, "/0xfc"), ("", 0x2D, "")]
)
def test_congestion_told_by_a_tunnel_is_left_alone_where_no_flow_changed_it(tunnel, tos, mask):
    """The datapath copies it from the outer header itself."""
    x = context("udp,nw_tos=0")
    x.flow[:] = parse_header(f"udp,nw_tos=0{tunnel}")
    x.base[:] = x.flow
    x.flow[SLOTS["nw_tos"]] = tos
    x.looked[SLOTS["nw_tos"]] = 0xFF
    commit(x)
    assert does(x) == f"set(ipv4(tos={tos:#x}{mask}))"


@pytest.mark.parametrize(
    ("base", "flow", "expected"),
    [
        ("arp,arp_op=1", "arp,arp_op=2", "set(arp(op=2))"),
        ("icmp,icmp_type=8", "icmp,icmp_type=0", "set(icmp(type=0,code=0))"),
    ],
)
def test_what_only_open_vswitch_itself_can_write_is_slow(base, flow, expected):
    x = between(base, flow)
    assert (does(x), x.slow) == (expected, {"action"})
    assert between("udp,nw_ttl=1", "udp,nw_ttl=2").slow == set()


def test_an_ethernet_header_is_put_on_and_taken_off():
    x = context("udp,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:02")
    x.base[SLOTS["packet_type"]] = 0x10800
    x.base[SLOTS["eth_src"]] = x.base[SLOTS["eth_dst"]] = 0
    commit(x)
    assert does(x) == "push_eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02)"
    x.steps.clear()
    x.flow[SLOTS["packet_type"]] = 0x10800
    commit(x)
    assert does(x) == "pop_eth"


def test_a_tunnel_s_header_is_told_once():
    x = context()
    commit_tunnel(x, "dst=1.2.3.4")
    assert does(x) == "drop"
    x.flow[SLOTS["tun_dst"]] = 0x01020304
    for _ in range(2):
        commit_tunnel(x, "dst=1.2.3.4")
    assert does(x) == "set(tunnel(dst=1.2.3.4))"
    assert [x.base[slot] for slot in TUNNEL] == [x.flow[slot] for slot in TUNNEL]
