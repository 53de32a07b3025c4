# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.openflow.notation import format_ipv4, ipv4
from ovs_checks.switch.snapshot import (
    Features,
    Listener,
    Neighbour,
    Port,
    Route,
    TunnelOption,
)
from ovs_checks.translate.output.tunnels import best_route, geneve_options, is_own
from tests.ovs_checks.translate.contexts import (
    ORDINARY,
    bridge0,
    context,
    does,
    kinds,
    looked,
    run,
    told,
)

REMOTE = ("remote_ip", "9.9.9.9")


def tunnel(*options, kind="vxlan", name="vx"):
    return Port(name, 9, "br0", kind, options, datapath=4)


def by(port, written="output:9", packet=ORDINARY, **more):
    return run(bridge0(f"actions={written}", ports=(port,)), packet, **more)


# --- the outer header ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "packet", "expected"),
    [
        ((REMOTE,), ORDINARY, "dst=9.9.9.9,ttl=64,tp_dst=4789,flags(df)"),
        ((REMOTE, ("key", "7")), ORDINARY,
         "tun_id=0x7,dst=9.9.9.9,ttl=64,tp_dst=4789,flags(df|key)"),
        ((REMOTE, ("local_ip", "8.8.8.8"), ("dst_port", "5")), ORDINARY,
         "src=8.8.8.8,dst=9.9.9.9,ttl=64,tp_dst=5,flags(df)"),
        ((REMOTE, ("df_default", "false"), ("csum", "true")), ORDINARY,
         "dst=9.9.9.9,ttl=64,tp_dst=4789,flags(csum)"),
        ((REMOTE, ("ttl", "inherit")), "in_port=1,udp,nw_ttl=7",
         "dst=9.9.9.9,ttl=7,tp_dst=4789,flags(df)"),
        ((REMOTE, ("ttl", "inherit")), "in_port=1,arp", "dst=9.9.9.9,ttl=64,tp_dst=4789,flags(df)"),
        ((REMOTE, ("tos", "inherit")), f"{ORDINARY},nw_tos=40",
         "dst=9.9.9.9,tos=0x28,ttl=64,tp_dst=4789,flags(df)"),
        ((REMOTE, ("tos", "8")), f"{ORDINARY},nw_tos=40,nw_ecn=1",
         "dst=9.9.9.9,tos=0x9,ttl=64,tp_dst=4789,flags(df)"),
        ((REMOTE,), f"{ORDINARY},nw_ecn=3", "dst=9.9.9.9,tos=0x2,ttl=64,tp_dst=4789,flags(df)"),
        ((("remote_ip", "fe80::9"),), ORDINARY, "ipv6_dst=fe80::9,ttl=64,tp_dst=4789,flags(df)"),
    ],
)  # fmt: skip
def test_the_kernel_is_told_the_outer_header(options, packet, expected):
    assert does(by(tunnel(*options), packet=packet)) == f"set(tunnel({expected})),4"


def test_what_the_flows_say_counts_where_the_port_says_flow():
    port = tunnel(("remote_ip", "flow"), ("local_ip", "flow"), ("key", "flow"))
    sets = "set_field:7->tun_id,set_field:9.9.9.9->tun_dst,set_field:8.8.8.8->tun_src"
    done = by(port, f"{sets},output:9")
    assert does(done).startswith("set(tunnel(tun_id=0x7,src=8.8.8.8,dst=9.9.9.9,")
    (end,) = done.ends
    assert (end.kind, end.tun_id, end.tun_src, end.tun_dst) == (
        *("tunnelled", 7, "8.8.8.8", "9.9.9.9"),
    )
    assert end.tun_id_by.text == end.tun_dst_by.text == end.flow.text


def test_a_value_that_the_port_fixes_comes_from_no_flow():
    done = by(tunnel(REMOTE, ("key", "5")), "set_field:7->tun_id,output:9")
    (end,) = done.ends
    assert (end.tun_id, end.tun_id_by, end.tun_dst_by) == (5, None, None)


def test_the_packet_is_as_it_was_after_it_left_by_a_tunnel():
    done = by(tunnel(REMOTE, ("key", "5")), "set_field:7->tun_id,output:9,output:2")
    assert done.final.tun_id == 7
    assert done.final.tun_dst == 0
    assert does(done).endswith(",4,p2")


def test_without_a_destination_there_is_no_tunnel():
    done = by(tunnel(("remote_ip", "flow")))
    assert (kinds(done), does(done)) == ([("dropped", "vx")], "drop")
    assert done.ends[0].reason == "no tunnel destination is set for vx"


def test_what_came_from_a_tunnel_s_far_end_does_not_go_to_the_address_at_which_it_came():
    came = f"{ORDINARY},tun_src=1.1.1.1,tun_dst=9.9.9.9"
    done = by(tunnel(REMOTE), packet=came)
    assert does(done) == "drop"
    assert done.ends[0].reason == "9.9.9.9 is the address at which it came in by a tunnel"
    assert by(tunnel(REMOTE), packet=came.replace("9.9.9.9", "9.9.9.8")).ends[0].kind == "tunnelled"


def test_what_an_outer_header_inherits_is_looked_at():
    done = by(tunnel(REMOTE, ("ttl", "inherit"), ("tos", "inherit")))
    assert (looked(done, "nw_ttl"), looked(done, "nw_tos")) == (0xFF, 0xFF)
    assert (looked(by(tunnel(REMOTE)), "nw_ttl"), looked(by(tunnel(REMOTE)), "nw_tos")) == (0, 3)


@pytest.mark.parametrize(("version", "flag"), [("3.3.0", "df"), ("3.4.0", "df|csum")])
def test_checksums_over_ipv6_are_the_default_since_3_4(version, flag):
    done = by(tunnel(("remote_ip", "fe80::9")), host={"version": version})
    assert f",flags({flag})))," in does(done)


def test_a_mark_for_the_underlay_is_put_on():
    done = by(tunnel(REMOTE, ("egress_pkt_mark", "0x5")))
    assert "set(skb_mark(0x5))" in does(done)


def test_options_are_those_the_packet_has_of_those_the_bridge_maps():
    at = replace(
        bridge0(), options=(TunnelOption(0xFFFF, 0x80, 4, 0), TunnelOption(0x102, 1, 4, 1))
    )
    x = context(f"{ORDINARY},tun_metadata1=0x5,tun_metadata3=0x6", at)
    assert geneve_options(x) == "{class=0x102,type=0x1,len=4,0x5}"
    assert geneve_options(context(ORDINARY, at)) == ""


# --- routes --------------------------------------------------------------------------------------

prefixes = st.builds(
    lambda address, length: f"{format_ipv4(address >> (32 - length) << (32 - length))}/{length}",
    st.integers(0, 2**32 - 1),
    st.integers(0, 32),
)
addresses = st.integers(0, 2**32 - 1).map(format_ipv4)


@given(st.lists(prefixes, max_size=8), addresses)
def test_the_longest_prefix_wins(written, address):
    routes = [Route(prefix, f"dev{n}") for n, prefix in enumerate(written)]
    fitting = [
        int(prefix.partition("/")[2])
        for prefix in written
        for length in [int(prefix.partition("/")[2])]
        if ipv4(address) >> (32 - length) == ipv4(prefix.partition("/")[0]) >> (32 - length)
    ]
    found = best_route(routes, address)
    assert (found is not None) == bool(fitting)
    if found:
        assert int(found.prefix.partition("/")[2]) == max(fitting)


def test_a_local_route_and_one_of_priority_come_before_a_longer_one():
    longer, plain = Route("10.0.0.0/24", "a"), Route("10.0.0.0/8", "b")
    assert best_route([longer, plain], "10.0.0.1") == longer
    assert best_route([longer, replace(plain, local=True)], "10.0.0.1").device == "b"
    assert best_route([longer, replace(plain, priority=1)], "10.0.0.1").device == "b"


def test_a_marked_route_is_for_packets_of_that_mark():
    marked = [Route("10.0.0.0/8", "a", mark=7)]
    assert [best_route(marked, "10.0.0.1", mark) for mark in (0, 6)] == [None, None]
    assert best_route(marked, "10.0.0.1", 7) == marked[0]


def test_addresses_of_one_family_have_no_routes_of_the_other():
    assert best_route([Route("::/0", "a")], "10.0.0.1") is None


@pytest.mark.parametrize(("local", "own"), [(True, True), (False, False)])
def test_an_address_is_the_host_s_own_if_its_route_is_local(local, own):
    assert is_own([Route("10.0.0.0/8", "a", local=local)], "10.0.0.1", 0) == own
    assert not is_own([], "10.0.0.1", 0)


# --- by Open vSwitch itself ----------------------------------------------------------------------

NATIVE = Features(tunnel_push_pop=True)
OUT = Port("u1", 1, "under", mac="00:00:00:00:00:0a", datapath=8)
LOCAL = Port("under", 0xFFFE, "under", mac="00:00:00:00:00:0b", datapath=9)
UNDER = replace(bridge0("actions=output:1"), name="under", ports=(OUT, LOCAL))
ROUTES = (Route("9.0.0.0/8", "under", source="9.0.0.1"),)
NEIGHBOURS = (Neighbour("9.9.9.9", "00:00:00:00:00:99", "under"),)


def natively(port=None, under=UNDER, packet=ORDINARY, written="output:9", **host):
    host = {"routes": ROUTES, "neighbours": NEIGHBOURS, **host}
    return by(port or tunnel(REMOTE), written, packet, others=(under,), features=NATIVE, host=host)


def test_a_native_tunnel_is_a_header_pushed_and_a_way_through_the_underlay():
    done = natively()
    assert does(done) == (
        "tnl_push(tnl_port(4),header(size=50,type=4,eth(dst=00:00:00:00:00:99,src=00:00:00:00:00:0b,"
        "dl_type=0x0800),ipv4(src=9.0.0.1,dst=9.9.9.9,proto=17,tos=0,ttl=64,frag=0x4000),"
        "udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x0)),out_port(9)),8"
    )
    assert [(end.kind, end.port, end.tun_dst) for end in done.ends] == [
        ("tunnelled", "vx", "9.9.9.9")
    ]


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ({"routes": ()}, "there is no route to 9.9.9.9"),
        ({"routes": (Route("9.0.0.0/8", "gone"),)}, "there is no route to 9.9.9.9"),
        ({"neighbours": ()}, "the address of 9.9.9.9 on under is not known"),
        ({"neighbours": (replace(NEIGHBOURS[0], bridge="br0"),)},
         "the address of 9.9.9.9 on under is not known"),
        ({"routes": (replace(ROUTES[0], gateway="9.0.0.254"),)},
         "the address of 9.0.0.254 on under is not known"),
    ],
)  # fmt: skip
def test_a_native_tunnel_needs_a_route_and_a_neighbour(host, reason):
    done = natively(**host)
    assert does(done) == "drop"
    assert [(end.kind, end.reason) for end in done.ends] == [("dropped", reason)]


def test_a_gateway_s_address_is_the_outer_frame_s():
    gateway = (Neighbour("9.0.0.254", "00:00:00:00:00:77", "under"),)
    done = natively(routes=(replace(ROUTES[0], gateway="9.0.0.254"),), neighbours=gateway)
    assert "eth(dst=00:00:00:00:00:77," in does(done)
    assert "dst=9.9.9.9,proto=17" in does(done)


def test_a_source_that_is_not_the_host_s_own_is_not_used():
    port = tunnel(REMOTE, ("local_ip", "9.0.0.2"))
    refused = natively(port)
    assert refused.ends[0].reason == (
        "9.0.0.2, from which it is to be sent, is no address of this host"
    )
    own = (*ROUTES, Route("9.0.0.2/32", "under", local=True))
    assert "ipv4(src=9.0.0.2,dst=9.9.9.9" in does(natively(port, routes=own))


def test_the_underlay_s_flows_see_the_outer_packet_and_the_overlay_s_packet_goes_on_as_it_was():
    under = replace(UNDER, flows=bridge0("udp,nw_dst=9.9.9.9,tp_dst=4789 actions=output:1").flows)
    done = natively(under=under, written="output:9,output:2", packet=f"{ORDINARY},nw_dst=10.0.0.1")
    assert does(done).startswith("clone(tnl_push(")
    assert does(done).endswith(",8),p2")
    assert done.final == done.initial
    refused = natively(under=replace(UNDER, flows=bridge0("arp actions=output:1").flows))
    assert (does(refused), refused.ends[0].kind) == ("drop", "missed")


def test_what_the_underlay_drops_is_not_tunnelled():
    done = natively(under=replace(UNDER, flows=bridge0("actions=drop").flows))
    assert [end.kind for end in done.ends] == ["dropped"]


@pytest.mark.parametrize(
    ("kind", "options", "expected", "size"),
    [
        ("geneve", (("key", "7"),), "udp(src=0,dst=6081,csum=0x0),geneve(vni=0x7)", 50),
        ("gre", (("key", "7"),), "gre((flags=0x2000,proto=0x6558),key=0x7)", 42),
        ("gre", (), "gre((flags=0x0,proto=0x6558))", 38),
        ("gre", (("seq", "true"), ("csum", "true")),
         "gre((flags=0x9000,proto=0x6558),csum=0x0,seq=0x0)", 46),
        ("vxlan", (("exts", "gpe"),),
         "udp(src=0,dst=4789,csum=0x0),vxlan(flags=0xc000003,vni=0x0)", 50),
    ],
)  # fmt: skip
def test_each_kind_s_own_header_and_its_size(kind, options, expected, size):
    told = does(natively(tunnel(REMOTE, *options, kind=kind)))
    assert f"{expected}),out_port(9))" in told
    assert f"header(size={size}," in told


def test_a_kind_that_is_not_understood_is_not_guessed():
    assert natively(tunnel(REMOTE, kind="stt")).unknown == "tunnels of type stt"


# --- taken by a tunnel ---------------------------------------------------------------------------

LISTENER = Listener(6, "vxlan", "9.0.0.1", "00:00:00:00:00:0b", 17, 4789)
FOR_US = "in_port=1,udp,dl_dst=00:00:00:00:00:0b,nw_dst=9.0.0.1,nw_ttl=9,udp_dst=4789"


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        (("", ""), True),
        (("udp_dst=4789", "udp_dst=4790"), False),
        (("nw_dst=9.0.0.1", "nw_dst=9.0.0.2"), False),
        (("dl_dst=00:00:00:00:00:0b", "dl_dst=00:00:00:00:00:0c"), False),
    ],
)
def test_what_is_for_a_tunnel_s_address_and_port_is_taken(change, taken):
    at = replace(UNDER, flows=bridge0("actions=LOCAL").flows)
    packet = FOR_US.replace(*change)
    done = run(at, packet, features=NATIVE, host={"listeners": (LISTENER,)})
    assert does(done) == ("tnl_pop(6)" if taken else "9")
    assert looked(done, "eth_dst") == (1 << 48) - 1


def test_another_protocol_s_port_is_not_the_tunnel_s():
    at = replace(UNDER, flows=bridge0("actions=LOCAL").flows)
    packet = FOR_US.replace("udp", "tcp")
    assert does(run(at, packet, features=NATIVE, host={"listeners": (LISTENER,)})) == "9"


def test_only_a_datapath_that_pops_takes_them():
    at = replace(UNDER, flows=bridge0("actions=LOCAL").flows)
    assert does(run(at, FOR_US, host={"listeners": (LISTENER,)})) == "9"
    other = replace(LISTENER, mac="00:00:00:00:00:0e")
    assert does(run(at, FOR_US, features=NATIVE, host={"listeners": (other,)})) == "9"


def test_the_tree_tells_where_a_native_tunnel_leads():
    lines = told(natively())
    assert "tunneling to 9.9.9.9 via under" in lines
    missed = told(natively(neighbours=()))
    assert "neighbor cache miss for 9.9.9.9 on bridge under, sending ARP request" in missed


def test_a_truncated_packet_is_looked_up_again_for_a_native_tunnel():
    at = bridge0("actions=output(port=9,max_len=100)", ports=(tunnel(REMOTE),))
    host = {"routes": ROUTES, "neighbours": NEIGHBOURS}
    done = run(at, others=(UNDER,), features=NATIVE, host=host)
    assert does(done).startswith("trunc(100),tnl_push(")
    assert does(done).endswith(",recirc(0x0)")
