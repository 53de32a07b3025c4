# SPDX-License-Identifier: Apache-2.0
"""Many packets at once, held against `walk`, packet by packet."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.batch.run import KINDS, Batch
from ovs_checks.batch.state import Column, Packets
from ovs_checks.openflow.notation import ipv4, or_zero
from ovs_checks.openflow.parse import parse_dump, parse_header
from ovs_checks.switch.snapshot import Bridge, Port, Snapshot
from ovs_checks.walk.host import walk
from tests.ovs_checks.hosts import A0, A1, A2, CONTAINERS, host, plain_ports, probe
from tests.ovs_checks.pipelines import pipelines

TUNNELS = (
    Port("vx", 8, "br", "vxlan", (("key", "flow"), ("remote_ip", "flow"))),
    Port("gre", 9, "br", "gre", (("key", "7"), ("remote_ip", "9.9.9.9"))),
)
PORTS = (*plain_ports("br", 1, 2, 3), *TUNNELS)

small = st.integers(0, 3)
table = st.integers(0, 4)
match = st.one_of(
    st.builds("in_port={}".format, st.integers(1, 4)),
    st.builds("reg{}={}/{}".format, st.integers(0, 1), small, st.integers(1, 3)),
    st.builds("reg1={}".format, small),
    st.builds("dl_dst=00:00:00:00:00:0{}".format, small),
    st.builds("dl_dst=00:00:00:00:00:0{0}/00:00:00:00:00:0{0}".format, small),
    st.builds("ip,nw_dst=10.0.0.{}/{}".format, small, st.integers(30, 32)),
    st.builds("udp,tp_dst={}".format, small),
    st.builds("ipv6,ipv6_dst=::{}".format, small),
    st.builds("tun_id={}".format, small),
    st.builds("metadata={}/0xf".format, small),
    st.just(""),
)
action = st.one_of(
    st.builds("load:{}->NXM_NX_REG{}[]".format, small, st.integers(0, 1)),
    st.builds("load:{}->NXM_NX_REG0[1..2]".format, small),
    st.builds("set_field:{}/{}->reg1".format, small, st.integers(1, 3)),
    st.builds("set_field:{}->xxreg0".format, small),
    st.builds("move:NXM_NX_REG{}[0..1]->NXM_NX_REG{}[1..2]".format, *[st.integers(0, 1)] * 2),
    st.just("move:NXM_OF_ETH_DST[0..3]->NXM_NX_REG1[0..3]"),
    st.just("move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]"),
    st.builds("set_field:00:00:00:00:00:0{}->eth_dst".format, small),
    st.builds("set_field:10.0.0.{}->tun_dst".format, small),
    st.builds("set_tunnel:{}".format, small),
    st.builds("resubmit(,{})".format, table),
    st.builds("output:{}".format, st.integers(1, 9)),
    st.just("output:NXM_NX_REG0[]"),
    st.just("in_port"),
    st.sampled_from(("note:01", "dec_ttl", "mod_nw_tos:4", "flood", "resubmit(2,)")),
)
flow = st.builds(
    "table={},priority={},{} actions={}".format,
    table,
    st.integers(1, 4),
    st.lists(match, max_size=2, unique_by=lambda m: m[:4]).map(
        lambda ms: ",".join(filter(None, ms))
    ),
    st.lists(action, max_size=3).map(lambda actions: ",".join(actions) or "drop"),
)
# What nothing matches goes on, so that packets get somewhere.
ONWARD = [f"table={n},priority=0 actions=resubmit(,{n + 1})" for n in range(4)]
ONWARD.append("table=4,priority=0 actions=output:NXM_NX_REG0[]")
bases = st.sampled_from(("udp,nw_ttl=9", "udp,nw_ttl=9,metadata=2", "arp", "udp6,ipv6_dst=::1"))


def column(values, count):
    codes = st.lists(st.integers(0, len(values) - 1), min_size=count, max_size=count)
    return codes.map(lambda drawn: Column.of(values, drawn))


@st.composite
def packets(draw, count=12):
    columns = {
        "in_port": draw(column([1, 2, 3, 4], count)),
        "eth_dst": draw(column([0, 1, 2, 3, 3], count)),
    }
    more = {"nw_dst": [ipv4(f"10.0.0.{n}") for n in range(4)], "tp_dst": [0, 1, 2], "reg1": [1, 2]}
    for name in draw(st.lists(st.sampled_from(sorted(more)), unique=True)):
        columns[name] = draw(column(more[name], count))
    return Packets(parse_header(draw(bases)), columns)


def assert_alike(snapshot, bridge, batch, sent):
    """Every packet ends as its walk does; return how."""
    ends = batch.run(sent)
    flows = snapshot.by_name[bridge].flows
    for n in range(sent.count):
        end = walk(snapshot, bridge, sent.header(n)).end
        port = snapshot.port(end.port).ofport if end.port and end.kind != "dropped" else -1
        if end.kind in {"output", "tunnelled"}:
            assert ends.port[n] == port
        assert KINDS[ends.kind[n]] == end.kind, end
        assert (ends.tun_dst[n], ends.tun_id[n]) == (or_zero(ipv4, end.tun_dst), end.tun_id)
        if ends.flow[n] >= 0:
            assert flows[ends.flow[n]].text == end.flow.text
        if n not in ends.walked:
            assert ends.table[n] == (end.table if end.kind == "missed" else -1)
    return ends


@given(st.lists(flow, min_size=1, max_size=12), packets())
def test_many_packets_end_as_each_alone_does(flows, sent):
    snapshot = Snapshot(
        "h0", (Bridge("br", parse_dump("\n".join([*flows, *ONWARD])).flows, PORTS),)
    )
    assert_alike(snapshot, "br", Batch(snapshot, "br"), sent)


REWRITTEN = """\
actions=set_field:00:00:00:00:00:07->eth_dst,move:NXM_OF_ETH_DST[]->NXM_OF_ETH_SRC[],resubmit(,1)
table=1,dl_src=00:00:00:00:00:07 actions=output:3
"""
PARTS = """\
priority=9,in_port=1 actions=load:1->NXM_NX_REG0[],resubmit(,1)
actions=load:2->NXM_NX_REG0[],resubmit(,1)
table=1 actions=load:1->NXM_NX_REG0[0..0],output:NXM_NX_REG0[]
"""
EVERYONE = Packets(
    parse_header("udp,nw_ttl=9"),
    {
        "in_port": Column.of([1, 2, 3], [0, 1, 2, 0, 1, 2, 0, 1, 2]),
        "eth_dst": Column.of([1, 2, 3], [0, 0, 0, 1, 1, 1, 2, 2, 2]),
    },
)


@pytest.mark.parametrize(
    ("flows", "walked"),
    [
        ("actions=load:1->NXM_NX_REG0[],load:1->NXM_NX_REG0[1..2],output:NXM_NX_REG0[]", 0),
        (PARTS, 0),
        ("actions=move:NXM_OF_ETH_DST[0..1]->NXM_NX_REG0[0..1],output:NXM_NX_REG0[0..1]", 0),
        ("priority=5,in_port=1 actions=output:2\npriority=5,udp actions=output:3", 3),
        ("priority=5,in_port=1 actions=output:3\npriority=5,udp actions=output:3", 3),
        ("priority=5,in_port=1 actions=drop\npriority=6,udp actions=output:3", 0),
        (REWRITTEN, 0),
        ("actions=output:1,output:2", 3),
        ("actions=output:1,resubmit(,1)\ntable=1,in_port=2 actions=output:3", 3),
        ("actions=output:2,output:77", 0),
        ("actions=in_port", 0),
        ("actions=set_tunnel:5,set_field:1.2.3.4->tun_dst,output:8", 0),
        ("actions=output:8", 9),
        ("actions=set_tunnel:5,output:9", 0),
        ("actions=set_tunnel:5,set_field:fd30::1->tun_ipv6_dst,output:8", 9),
        ("actions=load:65533->NXM_NX_REG0[],output:NXM_NX_REG0[]", 9),
        ("actions=load:0x10002->NXM_NX_REG0[],output:NXM_NX_REG0[]", 0),
        ("actions=resubmit(,1)\ntable=1 actions=resubmit(,0)", 9),
        ("ipv6,ipv6_dst=::1 actions=output:2\nudp actions=output:3", 0),
        ("frob=1,udp actions=output:2", 9),
        ("in_port=1 actions=output:2", 0),
    ],
)  # fmt: skip
def test_each_step_is_the_walk_s(flows, walked):
    """What is walked instead is counted, so that nothing is left to the walk by accident."""
    snapshot = Snapshot("h0", (Bridge("br", parse_dump(flows).flows, PORTS),))
    assert len(assert_alike(snapshot, "br", Batch(snapshot, "br"), EVERYONE).walked) == walked


@given(pipelines(), packets())
def test_whatever_a_pipeline_has_the_answers_are_the_walk_s(flows, sent):
    snapshot = Snapshot("h0", (Bridge("br", parse_dump(flows).flows, PORTS),))
    assert_alike(snapshot, "br", Batch(snapshot, "br"), sent)


def everyone(source):
    """Return packets from one endpoint of the lab to all, and from a stranger's port."""
    endpoints = [container.endpoint(0) for container in CONTAINERS]
    base = probe(source, A1)._replace(in_port=source.ofport)
    to = [probe(source, other) for other in endpoints]
    codes = range(len(to))
    return Packets(
        base,
        {
            "eth_dst": Column.of([one.eth_dst for one in to], codes),
            "nw_dst": Column.of([one.nw_dst for one in to], codes),
        },
    )


@pytest.mark.parametrize("change", [list, lambda flows: flows[::2]])
def test_the_lab_s_pipeline_needs_no_walk(change):
    """Not even where every other flow is missing."""
    snapshot = host(0, change)
    batch = Batch(snapshot, "br-int")
    batch.prepare()
    ends = assert_alike(snapshot, "br-int", batch, everyone(A0))
    assert not ends.walked
    if change is list:
        kinds = [KINDS[kind] for kind in ends.kind]
        assert kinds.count("tunnelled") == 3
        assert kinds.count("missed") == 4


def test_what_is_not_known_here_is_walked():
    flows = "udp,dl_dst=00:00:00:00:00:01 actions=group:9\nudp actions=output:2\narp actions=NORMAL"
    snapshot = Snapshot("h0", (Bridge("br", parse_dump(flows).flows, PORTS),))
    sent = Packets(parse_header("udp"), {"eth_dst": Column.of([1, 2], [0, 1, 1, 0]),
                                         "in_port": Column.of([1], [0] * 4)})  # fmt: skip
    ends = assert_alike(snapshot, "br", Batch(snapshot, "br"), sent)
    assert len(ends.walked) == 2
    fragments = Packets(parse_header("udp,nw_frag=first"), sent.columns)
    assert len(assert_alike(snapshot, "br", Batch(snapshot, "br"), fragments).walked) == 4


def test_wrong_columns_are_said():
    batch = Batch(host(0), "br-int")
    with pytest.raises(ValueError, match="no value"):
        Column.of([1, 2], [2])
    with pytest.raises(ValueError, match="out of range"):
        Column.of([1 << 64], [0])
    with pytest.raises(ValueError, match=r"columns of \[1, 2\]"):
        batch.run(Packets(parse_header("udp"), {"in_port": Column.of([1], [0]),
                                                "eth_dst": Column.of([1], [0, 0])}))  # fmt: skip
    with pytest.raises(ValueError, match="no column may hold ipv6_dst"):
        batch.run(Packets(parse_header("udp6"), {"ipv6_dst": Column.of([1], [0])}))
    with pytest.raises(ValueError, match="columns of"):
        batch.run(Packets(parse_header("udp"), {}))


def test_no_packets_are_no_trouble():
    none = Packets(
        probe(A0, A2), {"in_port": Column(np.array([1], np.uint64), np.array([], np.int32))}
    )
    assert Batch(host(0), "br-int").run(none).kind.size == 0


def test_what_came_by_a_tunnel_of_either_family_is_walked():
    snapshot = Snapshot("h0", (Bridge("br", parse_dump("actions=output:3").flows, PORTS),))
    for outer in ({"tun_dst": 1}, {"tun_ipv6_dst": 1}):
        sent = replace(EVERYONE, base=EVERYONE.base._replace(**outer))
        assert len(assert_alike(snapshot, "br", Batch(snapshot, "br"), sent).walked) == 9
