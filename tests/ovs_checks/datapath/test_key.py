# SPDX-License-Identifier: Apache-2.0
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ovs_checks.datapath.key import is_datapath_key, parse_key, parse_question
from ovs_checks.openflow.packet import TUN_CSUM, TUN_DF, TUN_KEY, TUN_OAM, Header
from ovs_checks.openflow.parse import MalformedLine, parse_header
from ovs_checks.switch.snapshot import Port, Snapshot, TunnelOption
from ovs_checks.walk.reach import entry
from tests.ovs_checks.hosts import bridge

ETH = "in_port(1),eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02)"
FLOW = "in_port=7,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:02"


@pytest.mark.parametrize(
    ("key", "flow"),
    [
        (
            (
                "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=5,ttl=64,frag=no),"
                "udp(src=1,dst=4791)"
            ),
            "udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_tos=4,nw_ecn=1,nw_ttl=64,udp_src=1,udp_dst=4791",
        ),
        (
            (
                "eth_type(0x86dd),ipv6(src=fe80::1,dst=fe80::2,label=0x7,proto=58,tclass=0,hlimit=255,"
                "frag=later),icmpv6(type=135,code=0),nd(target=fe80::9,sll=00:00:00:00:00:03)"
            ),
            (
                "icmp6,ipv6_src=fe80::1,ipv6_dst=fe80::2,ipv6_label=7,nw_ttl=255,nw_frag=later,"
                "icmp_type=135,nd_target=fe80::9,nd_sll=00:00:00:00:00:03"
            ),
        ),
        (
            (
                "eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0x0806),"
                "arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=00:00:00:00:00:01,tha=00:00:00:00:00:00))"
            ),
            (
                "arp,dl_vlan=5,dl_vlan_pcp=3,arp_spa=10.0.0.1,arp_tpa=10.0.0.2,arp_op=1,"
                "arp_sha=00:00:00:00:00:01"
            ),
        ),
        (
            (
                "skb_mark(0x3/0xff),ct_state(+trk-new+est),ct_zone(5),ct_label(0x1),eth_type(0x0800),"
                "ipv4(proto=6,frag=first),tcp(src=1,dst=80/0xff),tcp_flags(0x2)"
            ),
            (
                "tcp,pkt_mark=3,ct_state=trk|est,ct_zone=5,ct_label=1,nw_frag=first,tcp_src=1,"
                "tcp_dst=80,tcp_flags=2"
            ),
        ),
        (
            (
                "tunnel(tun_id=0x5,src=1.1.1.1,dst=2.2.2.2,ttl=64,flags(df|csum|key)),"
                "eth_type(0x8847),mpls(label=5,tc=1,ttl=63,bos=1)"
            ),
            (
                "mpls,tun_id=5,tun_src=1.1.1.1,tun_dst=2.2.2.2,tun_ttl=64,mpls_label=5,mpls_tc=1,"
                "mpls_ttl=63,mpls_bos=1"
            ),
        ),
    ],
)
def test_packets_of_the_datapath_are_those_of_the_flows(key, flow):
    header = parse_key(f"{ETH},{key}").header(7)
    assert header._replace(tun_flags=0) == parse_header(f"{FLOW},{flow}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-df-csum+key", TUN_KEY),
        ("+df-csum+key", TUN_DF | TUN_KEY),
        ("-df+csum", TUN_CSUM),
        ("-oam", 0),
        ("+oam", TUN_OAM),
        ("+key", TUN_KEY),
        ("key", TUN_KEY),
        ("df|csum|key", TUN_DF | TUN_CSUM | TUN_KEY),
        ("0/0", 0),
        ("0", 0),
        ("", 0),
    ],
)
def test_of_a_tunnel_s_flags_those_with_a_plus_are_there(text, value):
    """A mask that is whole is written `df|key`, else bit by bit; 0/0 is a mask of none."""
    key = parse_key(f"tunnel(tun_id=0x1,src=1.1.1.1,dst=2.2.2.2,ttl=0/0,flags({text})),in_port(1)")
    assert key.header(1).tun_flags == value
    assert key.header(1).tun_id == 1


def test_options_of_geneve_are_those_that_the_bridge_maps():
    key = parse_key(
        "tunnel(tun_id=0x5,geneve({class=0xffff,type=0,len=4,0x9/0xff}{class=0x1,type=2,len=4,0x8}))"
    )
    header = key.header(1, (TunnelOption(0xFFFF, 0, 4, 0),))
    assert header == parse_header("in_port=1,tun_id=5,tun_metadata0=9")


def test_what_is_not_understood_is_named_with_its_column():
    for text, column, word in (
        ("in_port(1),quux(3)", 12, "quux"),
        ("in_port(1),encap(eth_type(0x800),ipv4(src=1.2.3))", 34, "1.2.3"),
        ("ipv4(frob=1)", 1, "frob"),
        ("eth_type(", 10, "left open"),
        ("mpls(lse9=0)", 1, "lse9"),
        ("eth(),tunnel(flags(-df-quux))", 7, "quux"),
        ("eth(),tunnel(flags(-df+key+df))", 7, "there and not: 'df'"),
    ):
        with pytest.raises(MalformedLine, match=word) as raised:
            parse_key(text)
        assert raised.value.column == column, text


PORTS = (
    Port("p1", 7, "br", datapath=1),
    Port("any", 8, "br", "vxlan", (("key", "flow"), ("remote_ip", "flow")), datapath=2),
    Port("one", 9, "br", "vxlan", (("key", "5"), ("remote_ip", "1.1.1.1")), datapath=2),
)


@pytest.mark.parametrize(
    ("key", "port"),
    [
        ("in_port(1)", 7),
        ("in_port(p1)", 7),
        ("in_port(2),tunnel(tun_id=0x5,src=1.1.1.1,dst=2.2.2.2)", 9),
        ("in_port(2),tunnel(tun_id=0x6,src=1.1.1.1,dst=2.2.2.2)", 8),
    ],
)
def test_a_packet_enters_by_the_port_that_takes_it(key, port):
    snapshot = Snapshot("h", (bridge("br", "", ports=PORTS),))
    assert entry(snapshot, parse_key(key))[1].in_port == port


@pytest.mark.parametrize("key", ["in_port(3)", "eth()", "in_port(1),recirc_id(0x3)"])
def test_a_packet_that_no_port_takes_is_refused(key):
    with pytest.raises(LookupError):
        entry(Snapshot("h", (bridge("br", "", ports=PORTS),)), parse_key(key))


_WORDS = """in_port(1) eth( eth() ) ) , encap( vlan(vid=1) mpls(label=1) mpls( tunnel( geneve(
{class=1,type=2,len=4,0x1} {class= flags(df) flags( ipv4(src=1.2.3.4 tcp(src=99999) = / 0x " \\"""


@given(st.text(max_size=60) | st.lists(st.sampled_from(_WORDS.split()), max_size=9).map("".join))
@example("encap(" * 400)
def test_whatever_is_written_is_a_packet_or_an_error(text):
    assert isinstance(is_datapath_key(text), bool)
    with suppress(MalformedLine):
        assert isinstance(parse_key(text).header(1), Header)


def test_a_packet_that_is_asked_about_is_no_frame_unless_it_says_so():
    """A dump's flow is one all the same: not every datapath prints `eth()`."""
    bare, framed = "in_port(1),eth_type(0x0800)", "in_port(1),eth(),eth_type(0x0800)"
    assert parse_question(bare).header(1).packet_type == 0x10800
    assert (
        parse_question(framed).header(1) == parse_key(bare).header(1) == parse_key(framed).header(1)
    )
    assert parse_question("in_port(1)").header(1).packet_type == 0
