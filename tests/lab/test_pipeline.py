# SPDX-License-Identifier: Apache-2.0
import re
from dataclasses import replace

import pytest

from tests.lab.pipeline import Flow, Table, cookie, host_flows, tunnel_flow
from tests.lab.shape import Shape, Versions
from tests.lab.workload import Container

SHAPE = Shape()
EVERYONE = [Container(task, host) for task in ("train-a", "train-b") for host in range(4)]


SIX = [replace(each, ip=Versions(overlay=6, underlay=6)) for each in EVERYONE]
MIXED = [replace(each, ip=Versions(overlay=6)) for each in EVERYONE]


def in_table(table: Table, flows: tuple[Flow, ...]) -> list[Flow]:
    return [flow for flow in flows if flow.table is table]


@pytest.mark.parametrize("everyone", [EVERYONE, SIX])
def test_no_two_flows_have_the_same_table_priority_and_match(everyone: list[Container]) -> None:
    flows = host_flows(SHAPE, 0, everyone)
    assert len({(flow.table, flow.priority, flow.match) for flow in flows}) == len(flows)


def test_order_of_containers_does_not_matter() -> None:
    assert host_flows(SHAPE, 0, EVERYONE) == host_flows(SHAPE, 0, reversed(EVERYONE))


def test_each_family_has_its_own_cookie() -> None:
    flows = host_flows(SHAPE, 0, EVERYONE)
    assert {flow.cookie for flow in flows} == {cookie(table) for table in Table}
    assert all(flow.cookie == cookie(flow.table) for flow in flows)


def test_every_remote_endpoint_has_one_tunnel_flow_to_its_host() -> None:
    selected = in_table(Table.TUNNEL, host_flows(SHAPE, 0, EVERYONE))
    expected = [
        tunnel_flow(container.endpoint(rail))
        for container in EVERYONE
        for rail in range(2)
        if container.host != 0
    ]
    assert sorted(selected, key=Flow.text) == sorted(expected, key=Flow.text)
    assert "set_field:172.30.1.12->tun_dst" in tunnel_flow(EVERYONE[2].endpoint(1)).actions


def test_only_local_endpoints_are_classified_and_delivered() -> None:
    flows = host_flows(SHAPE, 1, EVERYONE)
    ports = {f.match.removeprefix("in_port=") for f in in_table(Table.CLASSIFY, flows)}
    assert ports == {"1", "2", "100", "101", "116", "117"}
    delivered = {flow.actions for flow in in_table(Table.DELIVERY, flows)}
    assert delivered == {"output:100", "output:101", "output:116", "output:117"}


def test_who_asks_for_a_neighbour_by_ipv6_asks_that_one_alone() -> None:
    there = SIX[2].endpoint(1)
    assert there.address == "fd00:10:0:1::12"
    asked = "reg0=0x3e9,reg1=0x1,dl_dst=33:33:ff:00:00:12,icmp6,icmp_type=135"
    actions = "set_field:0x3e9->tun_id,set_field:fd00:30:1::12->tun_ipv6_dst,output:2"
    flows = host_flows(SHAPE, 0, SIX)
    found = [f.actions for f in in_table(Table.TUNNEL, flows) if f.match == asked]
    assert found == [actions] == [tunnel_flow(there).actions]
    delivering = [f for f in host_flows(SHAPE, 2, SIX) if f.match == asked]
    assert [f.actions for f in delivering] == ["set_field:0x65->reg2,resubmit(,50)"]
    assert not in_table(Table.ARP, flows)


def test_an_overlay_of_one_version_goes_over_an_underlay_of_the_other() -> None:
    actions = {f.actions for f in in_table(Table.TUNNEL, host_flows(SHAPE, 0, MIXED))}
    assert "set_field:0x3e9->tun_id,set_field:172.30.1.12->tun_dst,output:2" in actions
    assert not any("ipv6_dst" in each for each in actions)


@pytest.mark.parametrize("everyone", [EVERYONE, SIX])
def test_packets_from_a_tunnel_do_not_go_back_into_one(everyone: list[Container]) -> None:
    for flow in in_table(Table.DESTINATION, host_flows(SHAPE, 0, everyone)):
        if f"resubmit(,{int(Table.TUNNEL)})" in flow.actions:
            assert flow.match.endswith("reg3=0")


def test_every_match_on_a_destination_names_tenant_and_rail() -> None:
    flows = host_flows(SHAPE, 0, EVERYONE)
    for table in (Table.ARP, Table.DESTINATION, Table.TUNNEL):
        assert all(re.search(r"reg0=0x3e[9a],reg1=0x[01]", f.match) for f in in_table(table, flows))


def test_resubmits_only_go_to_later_tables() -> None:
    for flow in host_flows(SHAPE, 0, EVERYONE):
        assert all(int(to) > flow.table for to in re.findall(r"resubmit\(,(\d+)\)", flow.actions))


def test_an_idle_host_has_tunnels_and_the_final_drop_only() -> None:
    assert [flow.text() for flow in host_flows(Shape(1, 1, 1, 1), 0, [])] == [
        (
            "cookie=0x6e610000,table=0,priority=100,in_port=1,actions="
            "move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[],"
            "set_field:0x0->reg1,set_field:0x1->reg3,resubmit(,30)"
        ),
        "cookie=0x6e61000a,table=10,priority=0,actions=drop",
    ]
