# SPDX-License-Identifier: Apache-2.0
from analyzer.ingest import PathRow
from analyzer.localize.topology import LearnedTopology
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import link, switch
from netagent.model.topology import DeclaredTopology

A, B = EndpointId("a", 0), EndpointId("b", 0)
FLOW = FlowId(A, B, 40000)
UNDERLAY = {A: "172.30.0.1", B: "172.30.0.2"}
WAY, BACK = ("L0", "S0", "L1"), ("L1", "S1", "L0")


def learned(*rows, declared=None):
    topology = LearnedTopology(declared or DeclaredTopology())
    for _ in range(2):
        topology.learn(rows, UNDERLAY.get)
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
    topology.learn([row(("L0",))], UNDERLAY.get)
    assert topology.hops(FLOW, reply=False) == WAY
    assert topology.ends_after(FLOW, reply=False) == "L0"
    assert topology.ends_after(FLOW, reply=True) is None
    topology.learn([row(WAY)], UNDERLAY.get)
    assert topology.ends_after(FLOW, reply=False) is None


def test_a_new_complete_route_replaces_the_old():
    topology = learned(row(WAY), row(BACK, reply=True))
    topology.learn([row(("L0", "S1", "L1"))], UNDERLAY.get)
    assert topology.hops(FLOW, reply=False) == ("L0", "S1", "L1")


def test_a_silent_router_hides_its_links_only():
    topology = learned(row(("L0", "", "L1")), row(BACK, reply=True))
    assert topology.hops(FLOW, reply=False) == ("L0", "", "L1")
    assert link("L0", "L1") not in topology.crossed(FLOW)


def test_nothing_traced_is_nothing_known():
    topology = learned()
    assert topology.crossed(FLOW) is None
    assert topology.hops(FLOW, reply=False) is None
    topology.learn([row(())], UNDERLAY.get)
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
    topology.learn([row(WAY)], UNDERLAY.get, wall_ns=50)
    topology.expire(before_ns=50)
    assert topology.hops(FLOW, reply=False) == WAY
    assert topology.hops(FLOW, reply=True) is None
