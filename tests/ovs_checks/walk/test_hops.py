# SPDX-License-Identifier: Apache-2.0
import pytest

from netagent.model.path import flow_table, vswitch
from ovs_checks.walk.hops import hops
from ovs_checks.walk.reach import Reach
from ovs_checks.walk.values import Step
from tests.lab.pipeline import destination_match
from tests.lab.shape import vtep
from tests.ovs_checks.hosts import A1, adding, host, without
from tests.ovs_checks.walk.test_reach import ask


def told(reach):
    return [(hop.host, str(hop.component), hop.action) for hop in hops(reach)]


def test_a_packet_that_arrives_meets_both_hosts_and_each_table():
    reach = ask(host(0), host(1))
    found = told(reach)
    assert found[0] == ("h0", "vswitch h0", "forwarded")
    assert [each for each in found if each[1].startswith("vswitch")] == [
        ("h0", "vswitch h0", "forwarded"), ("h1", "vswitch h1", "forwarded"),
    ]  # fmt: skip
    assert found[-1][0] == "h1"
    assert [action for *_, action in found] == ["forwarded"] * (len(found) - 1) + ["delivered"]
    lines = [hop.line for hop in hops(reach)]
    assert lines == sorted(set(lines))
    for hop in hops(reach):
        _, text = reach.outline[hop.line]
        assert text.startswith(hop.component.name.removeprefix(f"{hop.host}/"))


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        (host(0, adding(f"table=40,priority=900,{destination_match(A1)} actions=drop")), host(1)),
        (host(0, without(destination_match(A1), 40)), host(1)),
    ],
)
def test_what_stops_a_packet_is_the_component_that_is_named(source, destination):
    reach = ask(source, destination)
    stops = [hop for hop in hops(reach) if hop.action == "dropped"]
    assert [hop.component for hop in stops] == [reach.component]
    assert reach.outcome != "delivered"


def test_a_part_that_no_table_is_stands_at_the_end():
    reach = ask(host(0), None)
    assert reach.outcome == "cannot_tell"
    assert told(reach)[-1] == ("h1", "vswitch h1", "unknown")
    assert hops(reach)[-1].line == len(reach.steps)
    assert vtep(1, 0) not in str(hops(reach)[-1])


def test_what_a_host_makes_up_is_no_table():
    at = flow_table("h0", "br-int", 4)
    steps = [
        Step(0, "h0", "in by p", "h0"), Step(1, "br-int/table=4", "x", "h0"),
        *(Step(1, where, "x", "h0") for where in ("br/table=x", "br/table=9999", "/table=1", "h1")),
        Step(1, "", "a remark", "h0"),
    ]  # fmt: skip
    reach = Reach("dropped", at, "", steps=tuple(steps))
    assert [(hop.component, hop.action) for hop in hops(reach)] == [
        (vswitch("h0"), "forwarded"), (at, "dropped"),
    ]  # fmt: skip
    assert hops(Reach("dropped", None, "")) == []
    assert hops(Reach("delivered", None, "")) == []
