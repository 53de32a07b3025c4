# SPDX-License-Identifier: Apache-2.0
from hypothesis import given

from ovs_checks.openflow.classifier import Table, nearest
from ovs_checks.openflow.packet import Header
from ovs_checks.openflow.parse import parse_dump, parse_header
from ovs_checks.switch.snapshot import Bridge
from tests.oracles import ovs_naive
from tests.ovs_checks.pipelines import packets, pipelines


def table(*lines):
    return Table(parse_dump("\n".join(lines)).flows)


@given(pipelines().map(lambda flows: [f for f in flows if "conjunction(" not in f]), packets)
def test_lookup_finds_what_the_naive_lookup_finds(flows, packet):
    bridge, header = Bridge("b", parse_dump("\n".join(flows)).flows), parse_header(packet)
    for number, entries in bridge.tables.items():
        everything = [flow for flow in bridge.flows if flow.table == number]
        found = entries.look_up(header)
        assert found.flow == ovs_naive.lookup(everything, header)
        assert not found.doubt


@given(pipelines(), packets)
def test_no_flow_is_nearer_than_the_nearest(flows, packet):
    bridge, header = Bridge("b", parse_dump("\n".join(flows)).flows), parse_header(packet)
    for entries in bridge.tables.values():
        near = nearest(entries.flows, header)
        fails = [n for flow in entries.flows if (n := ovs_naive.failing_terms(flow, header))]
        assert (near is None) == (not fails)
        if near:
            assert len(near.failed) == min(fails) == ovs_naive.failing_terms(near.flow, header)


def test_an_option_of_a_tunnel_that_is_not_there_is_not_zero():
    flows = table("priority=9,tun_metadata0=0x0,in_port=3 actions=drop").flows
    assert set(nearest(flows, Header(in_port=1)).failed) == {"tun_metadata0", "in_port"}
    assert nearest(flows, Header(in_port=3)).failed == ("tun_metadata0",)
    assert nearest(flows, Header(in_port=3, tun_present=1)) is None


def test_the_higher_priority_wins_whatever_the_order():
    flows = table("priority=1 actions=drop", "priority=9,ip actions=output:1")
    assert flows.look_up(Header(eth_type=0x800)).flow.priority == 9
    assert flows.look_up(Header(eth_type=0x806)).flow.priority == 1
    assert Table().look_up(Header()).flow is None


def test_a_field_not_understood_is_a_doubt_only_if_the_rest_matches():
    flows = table("priority=9,ip,frob=5 actions=drop", "priority=1 actions=output:1")
    assert flows.look_up(Header(eth_type=0x800)).doubt == "field not understood (column 15): frob=5"
    assert not flows.look_up(Header(eth_type=0x806)).doubt


def test_of_equal_priorities_that_wins_whose_mask_was_dumped_first():
    flows = ["priority=5,ip actions=drop", "priority=5,in_port=1 actions=output:2"]
    both = Header(in_port=1, eth_type=0x800)
    for dumped in (flows, flows[::-1], ["priority=5,ip,nw_src=9.9.9.9 actions=3", *flows]):
        assert table(*dumped).look_up(both).flow.text == next(f for f in dumped if "src" not in f)
    # A mask is looked at where its highest flow stands.
    higher = [
        "priority=5,ip actions=drop",
        "priority=5,in_port=1 actions=2",
        "priority=7,in_port=9 actions=3",
    ]
    assert table(*higher).look_up(both).flow.text == "priority=5,in_port=1 actions=2"


def test_of_conjunctions_that_hold_that_wins_which_is_complete_first():
    flows = table(
        "conj_id=1,ip actions=1",
        "conj_id=2,ip actions=2",
        "priority=5,ip,nw_src=10.0.0.0/8 actions=conjunction(1,1/3),conjunction(2,1/2)",
        "priority=5,ip,nw_dst=10.0.0.0/8 actions=conjunction(1,2/3),conjunction(2,2/2)",
        "priority=5,udp actions=conjunction(1,3/3)",
    )
    assert flows.look_up(parse_header("udp,nw_src=10.0.0.1,nw_dst=10.0.0.2")).flow.text[8] == "2"


def test_the_nearest_flow_names_the_fields_that_differ():
    flows = table(
        "priority=0 actions=drop",
        "priority=5,reg0=1,ip,nw_dst=10.0.0.1 actions=output:1",
        "priority=5,reg0=2,ip,nw_dst=10.0.0.2 actions=output:2",
    )
    near = nearest(flows.flows, parse_header("reg0=2,udp,nw_dst=10.0.0.3"))
    assert near.flow.actions == table("actions=output:2").flows[0].actions
    assert near.failed == ("nw_dst",)
    assert nearest(flows.flows[:1], Header()) is None


def test_a_flow_that_drops_is_near_only_where_no_other_is():
    flows = table(
        "priority=9,reg1=1 actions=drop", "priority=5,ip,nw_dst=10.0.0.1 actions=output:1"
    )
    packet = parse_header("udp,nw_dst=10.0.0.3")
    assert nearest(flows.flows, packet).failed == ("nw_dst",)
    assert nearest(flows.flows[:1], packet).failed == ("reg1",)
