# SPDX-License-Identifier: Apache-2.0
"""Hop by hop: walks over the lab's own flow tables, probes and incidents that the test sets."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.localize import overlay
from analyzer.localize.contract import Context
from analyzer.localize.observations import (
    MAX_TEXT,
    WAYS,
    Action,
    Observation,
    Policy,
    Probed,
    Way,
    intended,
    observe,
)
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.tracing.doubts import Doubts
from netagent.model.endpoint import EndpointState
from netagent.model.path import Component, Kind, link, rnic, vswitch
from netagent.model.verdict import Incident, IncidentState, Pair, Symptom, Verdict
from tests.analyzer.asking import drive
from tests.analyzer.localize.test_walks import ENDPOINTS, A, Agents, B, C, without
from tests.lab.pipeline import destination_match
from tests.ovs_checks.hosts import A2

ROUTE = ("leaf-0", "spine-1", "leaf-1")
WELL = (Probed(6, 0, ROUTE), Probed(6, 0, ("leaf-0", "spine-0", "leaf-1")))
LOST = tuple(replace(each, lost=6) for each in WELL)
TO_B = destination_match(A2)


def ways(agents=None, probed=(), pair=(A, B), **ends):
    """Return both directions of a pair as agents let them be walked; `ends` replace endpoints."""
    agents = agents or Agents()
    both = [pair, pair[::-1]]
    context = Context(agents.roster, LearnedTopology(), Doubts(18515), 18515)
    endpoints = {**agents.endpoints, **ends.get("endpoints", {})}
    asking = overlay.reaches_of(both, (), endpoints, context)
    reaches, egress, ingress, missing = drive(asking, agents.reply)
    return [
        Way(name, endpoints[way[0]], endpoints[way[1]], egress.get(way), ingress.get(way),
            reaches.get(way), "; ".join(missing), probed)
        for name, way in zip(WAYS, both, strict=True)
    ]  # fmt: skip


def incident(component, *pair, symptom=Symptom.LOSS, **more):
    failing = (Pair(*pair),) if pair else ()
    verdict = Verdict(component, None, symptom, 0.9, "it loses", failing=failing)
    return replace(Incident("i-1", IncidentState.OPEN, verdict, 0, 0, 0), **more)


def said(hops):
    return [(hop.component, hop.action.value) for hop in hops]


F, U, D = Action.FORWARDED.value, Action.UNKNOWN.value, Action.DROPPED.value
FABRIC = [
    ("rnic h0/rnic0", F),
    ("link leaf-0 -- spine-0", F), ("link leaf-0 -- spine-1", F),
    ("link leaf-1 -- spine-0", F), ("link leaf-1 -- spine-1", F),
    ("rnic h2/rnic0", F),
]  # fmt: skip
NEAR = [(f"endpoint {A}", F), ("vswitch h0", F)]
FAR = [("tunnel h2/vxlan0", F), ("vswitch h2", F)]


def test_a_packet_that_arrives_is_seen_at_every_hop_of_its_way():
    there, back = ways(probed=WELL)
    hops = observe(there, ())
    tunnel = ("tunnel h0/vxlan0", F)
    assert said(hops) == [*NEAR, tunnel, *FABRIC, *FAR, (f"endpoint {B}", "delivered")]
    assert {hop.way for hop in hops} == {"there"}
    assert [hop.host for hop in hops] == ["h0"] * 4 + [""] * 4 + ["h2"] * 4
    assert hops[2].text.startswith("to ")
    assert "VNI" in hops[2].text
    assert hops[-1].text == "0 of 12 probes lost"
    assert hops[4].text == "0 of 6 probes lost"
    returned = observe(back, ())
    assert (returned[0].component, returned[-1].component) == (f"endpoint {B}", f"endpoint {A}")
    assert returned[-1].action is Action.DELIVERED


def test_a_drop_at_the_source_ends_the_list_there_and_quotes_its_cookie():
    change = {0: lambda f: [*f, f"cookie=0x2a,table=30,priority=200,{TO_B},actions=drop"]}
    hops = observe(ways(Agents(change), LOST)[0], ())
    assert said(hops) == [*NEAR, ("flow h0/br-int/table=30", D)]
    assert (hops[-1].cookie, hops[-1].host) == ("0x2a", "h0")
    assert hops[-1].text.startswith("dropped: ")


def test_a_miss_at_the_far_end_ends_the_list_there():
    gone = f"reg2={A2.ofport:#x}"
    change = {2: lambda flows: [f for f in flows if not (gone in f and "table=50," in f)]}
    hops = observe(ways(Agents(change), LOST)[0], ())
    lost = [(part, U) for part, _ in FABRIC]
    assert said(hops) == [
        *NEAR, ("tunnel h0/vxlan0", F), *lost, *FAR, ("flow h2/br-int/table=50", D),
    ]  # fmt: skip


def test_hosts_that_did_not_answer_are_unknown_and_probes_go_on_to_tell():
    hops = observe(ways(Agents(dead=("h0", "h2")), WELL)[0], ())
    assert said(hops) == [
        (f"endpoint {A}", F), ("vswitch h0", U), *FABRIC, ("vswitch h2", U),
        (f"endpoint {B}", "delivered"),
    ]  # fmt: skip
    assert "flow tables of h0: timeout" in hops[1].text
    far = observe(ways(Agents(dead=("h2",)), ())[0], ())
    assert ("vswitch h2", U) in said(far)
    assert said(far)[-1] == (f"endpoint {B}", U)


def test_where_nothing_is_probed_flow_tables_tell_what_they_can():
    hops = observe(ways()[0], ())
    assert said(hops)[-1] == (f"endpoint {B}", "delivered")
    assert "not probed" in hops[-1].text
    assert ("rnic h0/rnic0", U) in said(hops)
    assert observe(ways(probed=LOST)[0], ())[-1].action is Action.UNKNOWN
    other = observe(replace(ways()[0], is_probe=False), ())
    assert said(other) == said(hops)
    assert not any("not probed" in hop.text for hop in other)


def test_on_one_host_there_is_no_fabric():
    near = replace(ENDPOINTS[A], id=replace(A, rail=7), port="other")
    way = Way("there", ENDPOINTS[A], near, probed=WELL)
    assert said(observe(way, ())) == [
        (f"endpoint {A}", F), ("vswitch h0", U), (f"endpoint {near.id}", "delivered"),
    ]  # fmt: skip


def test_ends_without_a_virtual_switch_have_none():
    bare = [replace(ENDPOINTS[end], bridge="") for end in (A, B)]
    hops = observe(Way("there", *bare, probed=WELL[:1]), ())
    links = [("link leaf-0 -- spine-1", F), ("link leaf-1 -- spine-1", F)]
    assert said(hops) == [
        (f"endpoint {A}", F), FABRIC[0], *links, FABRIC[-1], (f"endpoint {B}", "delivered"),
    ]  # fmt: skip


def test_a_crashed_end_stops_what_it_sends_and_what_it_is_sent():
    crashed = {A: replace(ENDPOINTS[A], state=EndpointState.CRASHED)}
    there, back = (observe(way, ()) for way in ways(probed=LOST, endpoints=crashed))
    assert said(there) == [(f"endpoint {A}", D)]
    assert said(back)[-1] == (f"endpoint {A}", D)


def test_silent_routers_and_single_switches_are_what_is_known():
    probed = (Probed(6, 0, ("leaf-0", "", "leaf-1")), Probed(6, 6, ("leaf-0",)), Probed(0, 0))
    fabric = [each for each in said(observe(ways(probed=probed)[0], ())) if "leaf" in each[0]]
    assert fabric == [("switch leaf-0", U)]


# --- incidents ------------------------------------------------------------------------------------

SPINE = link("leaf-0", "spine-1")


@pytest.mark.parametrize(
    ("probed", "pair", "symptom", "expected"),
    [
        (LOST, (A, B), Symptom.LOSS, D),
        (LOST, (B, A), Symptom.UNCONNECTIVITY, D),
        (LOST, (A, C), Symptom.LOSS, D),  # it is on the way, and this pair loses, too
        (WELL, (A, C), Symptom.LOSS, F),
        (WELL, (A, B), Symptom.LATENCY, F),
        (WELL, (), Symptom.MASKED, F),
    ],
)
def test_an_incident_is_told_at_the_hop_that_it_accuses(probed, pair, symptom, expected):
    hops = observe(ways(probed=probed)[0], [incident(SPINE, *pair, symptom=symptom)])
    [hop] = [each for each in hops if each.incident]
    assert (hop.component, hop.action.value, hop.incident) == (str(SPINE), expected, "i-1")
    assert hop.text.startswith("incident i-1: it loses; ")


@pytest.mark.parametrize(
    ("part", "host", "before"),
    [
        (Component(Kind.HOST, "h0"), "h0", SPINE),
        (Component(Kind.CONTAINER, A.container), "h0", SPINE),
        (link("leaf-7", "spine-7"), "", rnic("h2", "rnic0")),
        (rnic("h2", "rnic9"), "h2", Component(Kind.ENDPOINT, str(B))),
    ],
)
def test_what_is_accused_besides_stands_where_its_host_is(part, host, before):
    plain = observe(ways(probed=LOST[:1])[0], ())
    hops = observe(ways(probed=LOST[:1])[0], [incident(part, A, B)])
    place = next(n for n, hop in enumerate(hops) if hop.incident)
    assert (hops[place].host, hops[place + 1].component) == (host, str(before))
    assert [hop for hop in hops if not hop.incident] == plain


def test_incidents_of_others_and_those_that_are_over_say_nothing():
    plain = observe(ways(probed=LOST)[0], ())
    elsewhere = rnic("h9", "rnic0")
    for each in (
        incident(elsewhere, A, C), incident(None, A, B), incident(SPINE, A, B, recovered_ns=1),
    ):  # fmt: skip
        assert observe(ways(probed=LOST)[0], [each]) == plain


# --- who intends it -------------------------------------------------------------------------------

DROP = Observation("there", "flow h0/br-int/table=44", Action.DROPPED, "drop", "h0", cookie="0x2a")
QUARANTINE = Policy("quarantine")
SENT = Observation("there", "vswitch h0", Action.FORWARDED, "in", "h0")


@pytest.mark.parametrize(
    ("seen", "disabled", "policies", "by"),
    [
        (DROP, {}, {("h0", 0x2A): QUARANTINE}, "quarantine"),
        (DROP, {}, {("h0", 0x2B): QUARANTINE}, ""),
        (DROP, {}, {("h9", 0x2A): Policy("another host's")}, ""),
        (replace(DROP, action=Action.UNKNOWN), {}, {("h0", 0x2A): Policy("logged")}, "logged"),
        (DROP, {}, {("h0", 0x2A): Policy("port security", "source")}, f"port security of {A}"),
        (DROP, {}, {("h0", 0x2A): Policy("port security", "target")}, f"port security of {B}"),
        (replace(DROP, way="back"), {}, {("h0", 0x2A): Policy("port security", "source")},
         f"port security of {B}"),
        (DROP, {A: "p-a"}, {("h0", 0x2A): Policy("port security", "source")},
         "logical port p-a, which is disabled"),
        (replace(DROP, action=Action.UNKNOWN), {A: "p-a"}, {}, ""),
        (DROP, {A: "p-a"}, {}, "logical port p-a, which is disabled"),
        (DROP, {B: "p-b"}, {}, "logical port p-b, which is disabled"),
        (DROP, {C: "p-c"}, {}, ""),
        (DROP, {A: "p-a"}, {("h0", 0x2A): QUARANTINE}, "quarantine"),
        (SENT, {A: "p-a"}, {("h0", 0): QUARANTINE}, ""),
        (replace(DROP, component=str(SPINE), cookie=""), {A: "p-a"}, {}, ""),
        (replace(DROP, component=str(vswitch("h2")), cookie=""), {A: "p-a"}, {},
         "logical port p-a, which is disabled"),
    ],
)  # fmt: skip
def test_what_is_intended_is_refused_by_whom(seen, disabled, policies, by):
    [told] = intended([seen], (A, B), disabled, policies)
    expected = replace(seen, action=Action.REFUSED, by=by) if by else seen
    assert told == expected


def test_behind_a_refusal_only_what_an_incident_accuses_is_told():
    """Probes may have come through until a moment ago, and do where another packet is refused."""
    dropped = replace(DROP, action=Action.UNKNOWN)  # a policy that logs what it drops
    rest = [replace(SENT, component=name, action=Action.UNKNOWN) for name in ("rnic x", "rnic y")]
    back = [replace(each, way="back") for each in rest]
    accused = replace(SENT, component="rnic z", action=Action.DROPPED, incident="i1")
    at = {("h0", 0x2A): Policy("logged")}
    told = intended([SENT, dropped, *rest, SENT, accused, *back], (A, B), {}, at)
    assert told == [SENT, replace(dropped, action=Action.REFUSED, by="logged"), accused, *back]


# --- whatever the tables --------------------------------------------------------------------------

CHANGES = st.sampled_from((
    list, without,
    lambda flows: [*flows, f"table=30,priority=200,{TO_B},actions=drop"],
    lambda flows: [*flows, f"table=40,priority=200,{TO_B},actions=resubmit(,30)"],
    lambda _: [],
))  # fmt: skip
probes = st.lists(
    st.builds(
        lambda sent, lost, route: Probed(sent, min(sent, lost), tuple(route)),
        st.integers(0, 6), st.integers(0, 6), st.lists(st.sampled_from(("", "x", "y")), max_size=4),
    ), max_size=3,
)  # fmt: skip


@settings(max_examples=20, deadline=None)  # each walks the lab's tables
@given(st.dictionaries(st.sampled_from((0, 2)), CHANGES), st.sets(st.sampled_from(("h0", "h2"))),
       probes, st.text())  # fmt: skip
def test_a_list_begins_at_the_source_and_ends_at_what_stops_it_or_at_the_target(
    change, dead, probed, text
):
    for way in ways(Agents(change, dead), probed):
        way = replace(way, missing=way.missing + text)  # noqa: PLW2901
        hops = observe(way, ())
        assert hops[0].component == f"endpoint {way.source.id}"
        assert [hop.action for hop in hops[:-1]].count(Action.DROPPED) == 0
        last = hops[-1]
        assert (last.component == f"endpoint {way.target.id}") == (
            last.action is not Action.DROPPED
        )
        delivers = way.reach is not None and way.reach.outcome == "delivered"
        if last.action is Action.DELIVERED:
            assert way.lost < way.sent or (delivers and not way.sent)
        assert all(len(hop.text) <= MAX_TEXT for hop in hops)
        places = [(way.source.host, "", way.target.host).index(hop.host) for hop in hops]
        assert places == sorted(places)
