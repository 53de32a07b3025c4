# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.flows import FlowView
from analyzer.localize.story import _nested, tell
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.validating.judge import Accused, Compared, evidence
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import flow_table, switch
from netagent.model.verdict import Incident, IncidentState, Pair, Symptom, Verdict
from ovs_checks.walk.reach import Reach
from tests.analyzer.localize.validating.test_judge import found, reply

A, B, C = (EndpointId(name, 0) for name in "abc")
WAYS = ((A, B), (B, A))
DELIVERED = Reach("delivered", None, "arrives")
TABLE = flow_table("h0", "br-int", 40)
SPINE = switch("spine-0")


def incident(*pair, component=SPINE, **more):
    verdict = Verdict(component, None, Symptom.LOSS, 0.9, "it loses", failing=(Pair(*pair),))
    return replace(Incident("i", IncidentState.OPEN, verdict, 0, 0, 0), **more)


def told(reaches, missing=(), incidents=(), compared=()):
    story = tell(WAYS, reaches, missing, [], LearnedTopology(), incidents, compared)
    return story["outcome"], story["component"]


DIFFERS = found("stale-megaflow")
COMPARED = (
    Compared("h0", evidence((A, B), reply(DIFFERS)), Accused(DIFFERS.component, DIFFERS)),
    Compared("h1", why="no Open vSwitch"),
)


def test_what_hosts_compared_is_told_and_counts_after_what_stops_packets():
    at = str(DIFFERS.component)
    assert told(BOTH, compared=COMPARED) == ("inconsistent", at)
    stopped = {**BOTH, (B, A): Reach("missed", TABLE, "why")}
    assert told(stopped, compared=COMPARED) == ("missed", str(TABLE))
    assert told(BOTH, compared=COMPARED[1:]) == ("delivered", None)
    story = tell(WAYS, BOTH, (), [], LearnedTopology(), (), COMPARED)
    near, far = story["tree"][-2:]
    assert near["text"] == "flow tables, datapath and RNIC of h0"
    assert "they differ" in near["children"][1]["text"]
    assert [each["text"] for each in far["children"]] == ["not compared: no Open vSwitch"]


BOTH = dict.fromkeys(WAYS, DELIVERED)


def test_of_ends_that_no_virtual_switch_carries_it_is_said_why_no_path_is_there():
    for bare, why in (((), ""), ((A, B), f" (not traced: no virtual switch carries {A} and {B})")):
        story = tell(WAYS, BOTH, (), [], LearnedTopology(), (), (), bare)
        assert story["tree"][-1]["text"] == f"underlay, newest window{why}"


@pytest.mark.parametrize(
    ("reaches", "missing", "incidents", "expected"),
    [
        (BOTH, (), (), ("delivered", None)),
        ({**BOTH, (B, A): Reach("missed", TABLE, "why")}, (), (), ("missed", str(TABLE))),
        ({**BOTH, (B, A): Reach("missed", TABLE, "why")}, (), (incident(A, B),),
         ("missed", str(TABLE))),
        (BOTH, (), (incident(A, B),), ("incident", str(SPINE))),
        (BOTH, (), (incident(B, A),), ("incident", str(SPINE))),
        (BOTH, (), (incident(A, C),), ("delivered", None)),
        (BOTH, (), (incident(A, B, recovered_ns=1),), ("delivered", None)),
        (BOTH, (), (incident(A, B, component=None),), ("delivered", None)),
        (BOTH, ("h1 was not read",), (), ("cannot_tell", None)),
        (BOTH, ("h1 was not read",), (incident(A, B),), ("incident", str(SPINE))),
        ({}, (), (), ("cannot_tell", None)),
    ],
)  # fmt: skip
def test_tables_conclude_before_incidents_and_those_before_what_is_missing(
    reaches, missing, incidents, expected
):
    assert told(reaches, missing, incidents) == expected


def test_what_was_not_walked_says_why():
    story = tell(WAYS, {}, ["h1 was not read"], [], LearnedTopology(), [])
    assert story["tree"][0]["children"] == [{"text": "not walked: h1 was not read", "children": []}]


def test_flows_are_told_with_their_losses_traced_or_not():
    view = FlowView(FlowId(A, B, 7), 9, 2, 0, 0, 0, 0, 0)
    story = tell(WAYS, BOTH, (), [view], LearnedTopology(), [])
    assert story["tree"][-1]["children"][0]["text"] == "port 7: 2/9 lost, not traced"


def flat(trees, level=0):
    for tree in trees:
        yield level, tree["text"]
        yield from flat(tree["children"], level + 1)


@given(st.lists(st.integers(0, 4)))
def test_a_tree_has_every_line_in_order_each_below_the_last_one_less_deep(depths):
    lines = [(depth, str(n)) for n, depth in enumerate(depths)]
    trees = list(flat(_nested(lines)))
    assert [text for _, text in trees] == [text for _, text in lines]
    for n, (level, _) in enumerate(trees):
        above = next((m for m in range(n - 1, -1, -1) if depths[m] < depths[n]), None)
        assert level == (0 if above is None else trees[above][0] + 1)
