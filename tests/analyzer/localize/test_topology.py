# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.paths import PathRow, PathTable
from analyzer.localize.topology import LearnedTopology
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Kind, link, switch
from netagent.model.topology import DeclaredTopology, Fabric

A, B = EndpointId("a", 0), EndpointId("b", 0)
FLOW = FlowId(A, B, 40000)
UNDERLAY = {A: "172.30.0.1", B: "172.30.0.2"}
WAY, BACK = ("L0", "S0", "L1"), ("L1", "S1", "L0")


def learned(*rows, declared=None):
    topology = LearnedTopology(declared or DeclaredTopology())
    for _ in range(2):
        topology.learn(PathTable.of(rows), UNDERLAY.get)
    return topology


def row(hops, *, reply=False):
    return PathRow(FLOW, reply, 1, hops)


def test_both_directions_are_crossed():
    topology = learned(row(WAY), row(BACK, reply=True))
    assert topology.crossed(FLOW) == {
        *(switch(name) for name in ("L0", "L1", "S0", "S1")),
        *(link(a, b) for a, b in (("L0", "S0"), ("S0", "L1"), ("L1", "S1"), ("S1", "L0"))),
    }
    assert topology.leaves() == {"172.30.0.1": "L0", "172.30.0.2": "L1"}


def test_a_trace_that_ends_early_does_not_replace_the_route_and_is_remembered():
    topology = learned(row(WAY), row(BACK, reply=True))
    topology.learn(PathTable.of([row(("L0",))]), UNDERLAY.get)
    assert topology.hops(FLOW, reply=False) == WAY
    assert topology.ends_after(FLOW, reply=False) == "L0"
    assert topology.ends_after(FLOW, reply=True) is None
    topology.learn(PathTable.of([row(WAY)]), UNDERLAY.get)
    assert topology.ends_after(FLOW, reply=False) is None


def test_a_new_complete_route_replaces_the_old():
    topology = learned(row(WAY), row(BACK, reply=True))
    topology.learn(PathTable.of([row(("L0", "S1", "L1"))]), UNDERLAY.get)
    assert topology.hops(FLOW, reply=False) == ("L0", "S1", "L1")


def test_a_silent_router_hides_its_links_only():
    topology = learned(row(("L0", "", "L1")), row(BACK, reply=True))
    assert topology.hops(FLOW, reply=False) == ("L0", "", "L1")
    assert link("L0", "L1") not in topology.crossed(FLOW)


def test_nothing_traced_is_nothing_known():
    topology = learned()
    assert topology.crossed(FLOW) is None
    assert topology.hops(FLOW, reply=False) is None
    topology.learn(PathTable.of([row(())]), UNDERLAY.get)
    assert topology.crossed(FLOW) is None


def test_declared_names_are_used_and_undeclared_links_told():
    declared = DeclaredTopology(
        {"L0": "leaf-0", "S0": "spine-0"}, frozenset({("leaf-0", "spine-0")})
    )
    topology = learned(row(WAY), row(BACK, reply=True), declared=declared)
    assert topology.hops(FLOW, reply=False) == ("leaf-0", "spine-0", "L1")
    assert topology.undeclared_links() == {("L1", "spine-0"), ("L1", "S1"), ("S1", "leaf-0")}
    assert learned(row(WAY), row(BACK, reply=True)).undeclared_links() == set()


def test_flows_unseen_for_long_are_forgotten():
    topology = learned(row(WAY), row(BACK, reply=True))
    topology.learn(PathTable.of([row(WAY)]), UNDERLAY.get, wall_ns=50)
    topology.expire(before_ns=50)
    assert topology.hops(FLOW, reply=False) == WAY
    assert topology.hops(FLOW, reply=True) is None


def test_a_router_that_answers_twice_has_no_link_to_itself():
    """A leaf speaks for the host behind it that is gone."""
    near = {A: "172.30.0.1", B: "172.30.0.2"}
    topology = LearnedTopology(DeclaredTopology({}, frozenset({("L0", "S0")})))
    for hops in (("L0",), ("L0", "L0")):
        topology.learn(PathTable.of([row(hops), row(hops, reply=True)]), near.get)
    assert topology.links() == set()
    assert topology.undeclared_links() == set()
    assert topology.hops(FLOW, reply=False) == ("L0",)
    assert topology.crossed(FLOW) == {switch("L0")}


def test_a_router_that_speaks_for_the_one_behind_it_replaces_no_route():
    """A leaf speaks for the dead spine behind it: who is there is what was there before."""
    topology = learned(row(WAY), row(BACK, reply=True))
    assert topology.learn(PathTable.of([row(("L0", "L0", "L1"))]), UNDERLAY.get, wall_ns=5) == [
        True
    ]
    assert topology.hops(FLOW, reply=False) == WAY
    assert topology.links() == {("L0", "S0"), ("L1", "S0"), ("L1", "S1"), ("L0", "S1")}
    assert topology.learn(PathTable.of([row(("L0", "L0"))]), UNDERLAY.get, wall_ns=6) == [False]
    assert topology.ends_after(FLOW, reply=False) == "L0"


def test_of_a_flow_never_traced_before_the_one_spoken_for_is_silent():
    topology = learned(row(("L0", "L0", "L1")), row(BACK, reply=True))
    assert topology.hops(FLOW, reply=False) == ("L0", "", "L1")
    assert topology.links() == {("L1", "S1"), ("L0", "S1")}
    assert learned(row(("L0", "", "")), row(BACK, reply=True)).hops(FLOW, reply=False) is None


def test_two_addresses_of_one_router_are_one_router():
    declared = DeclaredTopology({"0.1": "leaf", "0.2": "leaf"}, frozenset({("leaf", "spine")}))
    topology = learned(row(("0.1", "0.2", "L1")), row(BACK, reply=True), declared=declared)
    assert topology.hops(FLOW, reply=False) == ("leaf", "", "L1")
    assert ("leaf", "leaf") not in topology.links()


def test_a_link_that_no_route_crosses_any_more_is_forgotten():
    declared = DeclaredTopology({}, frozenset({("L0", "S0"), ("L1", "S0")}))
    topology = learned(row(WAY), row(BACK, reply=True), declared=declared)
    assert topology.undeclared_links() == {("L1", "S1"), ("L0", "S1")}
    topology.learn(PathTable.of([row(WAY), row(WAY[::-1], reply=True)]), UNDERLAY.get, wall_ns=50)
    topology.expire(before_ns=0)
    assert topology.undeclared_links() == {("L1", "S1"), ("L0", "S1")}
    topology.expire(before_ns=50)
    assert topology.undeclared_links() == set()
    assert topology.links() == {("L0", "S0"), ("L1", "S0")}
    topology.expire(before_ns=51)
    assert topology.unseen_links() == {("L0", "S0"), ("L1", "S0")}


# --- the way of a flow in one window --------------------------------------------------------------

W = 5_000_000_000
ENDS = (
    Endpoint(A, "t", "h0", "10.0.0.1", "", UNDERLAY[A], "rnic0", "br", "p"),
    Endpoint(B, "t", "h1", "10.0.0.2", "", UNDERLAY[B], "rnic0", "br", "p"),
)
LINKS = DeclaredTopology(
    links=frozenset({("L0", "S0"), ("L0", "S1"), ("L1", "S0"), ("L1", "S1")}),
)


def told(topology, window, *rows):
    for _ in range(2):
        topology.learn(PathTable.of(rows), UNDERLAY.get, wall_ns=window * W)
    return topology


def way(topology, window, *, lost=True):
    return topology.way(FLOW, ENDS, at_ns=window * W, lost=lost)


def spines(found):
    return {
        name: 1.0 if switch(name) in found.certain else found.maybe.get(switch(name), 0.0)
        for name in ("S0", "S1")
    }


def test_a_route_counts_for_certain_from_the_window_after_the_one_that_showed_it():
    topology = told(LearnedTopology(LINKS), 3, row(WAY), row(WAY[::-1], reply=True))
    assert way(topology, 4).whole
    assert spines(way(topology, 4)) == {"S0": 1.0, "S1": 0.0}
    first = way(topology, 3)
    assert not first.whole
    assert first.unseen == 0.0
    assert spines(first) == {"S0": 0.75, "S1": 0.75}  # either way, there and back
    assert spines(way(topology, 3, lost=False)) == {"S0": 1.0, "S1": 0.0}


def test_in_the_window_in_which_routers_turned_both_routes_count():
    topology = told(LearnedTopology(), 1, row(WAY), row(BACK, reply=True))
    told(topology, 5, row(("L0", "S1", "L1")), row(BACK, reply=True))
    assert spines(way(topology, 4)) == {"S0": 1.0, "S1": 1.0}  # the reply crosses S1 anyway
    assert spines(way(topology, 5)) == {"S0": 0.5, "S1": 1.0}
    assert spines(way(topology, 6)) == {"S0": 0.0, "S1": 1.0}
    assert link("L0", "S0") in way(topology, 5).maybe


def test_a_direction_never_traced_to_its_end_took_one_of_the_declared_ways():
    topology = told(LearnedTopology(LINKS), 1, row(WAY), row(("L1",), reply=True))
    found = way(topology, 2)
    assert found.unseen == 0.0
    assert spines(found) == {"S0": 1.0, "S1": 0.5}
    narrowed = told(topology, 2, row(WAY), row(("L1", "S1"), reply=True))
    assert spines(way(narrowed, 3)) == {"S0": 1.0, "S1": 1.0}
    again = told(LearnedTopology(LINKS), 1, row(WAY), row(("L1", "", "L1"), reply=True))
    assert spines(way(again, 2)) == {"S0": 1.0, "S1": 0.5}


def test_where_nothing_is_declared_it_may_be_a_way_that_nobody_has_seen():
    topology = told(LearnedTopology(), 1, row(WAY), row(("L1",), reply=True))
    found = way(topology, 2)
    assert found.unseen == 0.5
    assert spines(found) == {"S0": 1.0, "S1": 0.0}  # the only way known leads over S0
    nothing = way(LearnedTopology(), 2)
    assert nothing.certain == frozenset()
    assert 0 < nothing.unseen < 0.5


def test_where_the_fabric_sprays_a_trace_tells_the_leaf_and_no_way():
    cabled = frozenset((leaf, spine) for leaf in ("L0", "L1") for spine in ("S0", "S1"))
    sprayed = DeclaredTopology(links=cabled, fabric=Fabric.SPRAY)
    topology = learned(row(WAY), row(BACK, reply=True), declared=sprayed)
    assert topology.leaves() == {"172.30.0.1": "L0", "172.30.0.2": "L1"}
    assert topology.hops(FLOW, reply=False) is None
    found = way(topology, 9)
    assert found.certain == {switch("L0"), switch("L1")}
    assert {c.name for c in found.maybe if c.kind is Kind.SWITCH} == {"S0", "S1"}
    assert not found.unseen
    # Without cabling nobody knows which ways there are, whatever traces show.
    unknown = way(learned(row(WAY), declared=DeclaredTopology(fabric=Fabric.SPRAY)), 9)
    assert unknown.unseen
    assert not any(c.name in ("S0", "S1") for c in (*unknown.certain, *unknown.maybe))


def test_neighbours_at_one_leaf_cross_that_leaf_whether_traced_or_not():
    topology = LearnedTopology()
    topology.learn(PathTable.of([row(("L0",))]), lambda _: UNDERLAY[A], wall_ns=0)
    ends = (ENDS[0], replace(ENDS[1], underlay=UNDERLAY[A]))
    found = topology.way(FlowId(B, A, 1), ends, at_ns=W, lost=True)
    assert (found.certain, found.whole) == ({switch("L0")}, True)


@given(st.data())
def test_probabilities_are_probabilities_and_what_is_certain_is_no_maybe(data):
    hops = st.sampled_from([WAY, ("L0", "S1", "L1"), ("L0",), ("L0", "S0"), ("L0", "", "L1"), ()])
    topology = LearnedTopology(data.draw(st.sampled_from([LINKS, DeclaredTopology()])))
    for window in range(4):
        there, back = data.draw(hops), data.draw(hops)[::-1]
        topology.learn(
            PathTable.of([row(there), row(back, reply=True)]), UNDERLAY.get, wall_ns=window * W
        )
    for window in range(5):
        found = way(topology, window, lost=data.draw(st.booleans()))
        assert all(0 < share < 1 for share in found.maybe.values())
        assert not found.maybe.keys() & found.certain
        assert 0 <= found.unseen < 1


def test_ways_that_hosts_say_they_crossed_add_none_to_a_declaration():
    links = frozenset({("L0", "S0"), ("L1", "S0"), ("L0", "S1"), ("L1", "S1")})
    invented = row(("L0", "X", "L1")), row(BACK, reply=True)
    declared = learned(*invented, declared=DeclaredTopology(links=links))
    assert declared.untraced_routes("L0", "L1") == (("L0", "S0", "L1"), ("L0", "S1", "L1"))
    told = learned(*invented).untraced_routes("L0", "L1")
    assert set(told) == {("L0", "X", "L1"), ("L0", "S1", "L1")}


def moved(*latest, others=True):
    """Return what is known when another flow, with our route, was moved in window 5."""
    other = FlowId(A, B, 40001)
    back = (row(BACK, reply=True), PathRow(other, True, 1, BACK))
    topology = told(LearnedTopology(LINKS), 1, row(WAY), PathRow(other, False, 1, WAY), *back)
    now = ("L0", "S1", "L1") if others else WAY
    return told(topology, 5, row(latest), PathRow(other, False, 1, now), *back)


def test_what_is_lost_where_others_were_moved_may_have_been_moved_too():
    topology = moved("L0")
    at_s0 = {n: spines(way(topology, n))["S0"] for n in (5, 6, 17, 18)}
    assert at_s0 == {5: 0.75, 6: 0.5, 17: 0.5, 18: 1.0}
    assert spines(way(topology, 6, lost=False))["S0"] == 1.0
    assert topology.hops(FLOW, reply=False) == WAY


def test_what_is_lost_where_nobody_was_moved_keeps_its_way():
    assert spines(way(moved("L0", others=False), 6))["S0"] == 1.0
    # Others were moved off a link that it passed.
    assert spines(way(moved("L0", "S0"), 6))["S0"] == 1.0


def test_a_trace_that_ends_on_another_way_shows_that_the_flow_was_moved():
    topology = moved("L0", "S1", others=False)
    assert spines(way(topology, 5))["S0"] == 0.5
    assert spines(way(topology, 6))["S0"] == 0.0
