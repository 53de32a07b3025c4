# SPDX-License-Identifier: Apache-2.0

import numpy as np

from analyzer.history.ways import Ways
from analyzer.intake.paths import PathRow, PathTable
from analyzer.localize.routes import NO_ROUTE
from analyzer.localize.topology import LearnedTopology
from netagent.model.ids import EndpointId, FlowId

ENDS = EndpointId("a", 0), EndpointId("b", 0)
FLOW = FlowId(*ENDS, 7)
UNDERLAYS = dict(zip(ENDS, ("1", "2"), strict=True))


def show(topology, at_ns, *spines):
    """Show the ways there and back of one flow over a spine each."""
    routes = [("l1", spines[0], "l2"), ("l2", spines[1], "l1")]
    rows = [PathRow(FLOW, bool(n), 1, route) for n, route in enumerate(routes)]
    for _ in range(2):  # the first time the other end's leaf is not known
        topology.learn(PathTable.of(rows), UNDERLAYS.get, wall_ns=at_ns)


class Seen:
    def __init__(self):
        self.ways, self.turned = Ways(), []
        self.topology = LearnedTopology()

    def follow(self, at_ns):
        self.turned.clear()
        topology = self.topology
        self.ways.follow(topology, topology.numbers, at_ns=at_ns, turned=self.note)
        return [int(each[0]) for each in self.ways.of(np.array([0]))]

    def note(self, flow):
        self.turned.append(None if flow is None else flow.tolist())


def test_a_way_counts_from_the_window_after_the_one_that_showed_it():
    seen = Seen()
    assert seen.follow(5) == [NO_ROUTE, NO_ROUTE]
    show(seen.topology, 10, "s1", "s1")
    assert seen.follow(10) == [NO_ROUTE, NO_ROUTE]
    there, back = seen.follow(15)
    assert seen.turned == [[0]]
    named = [seen.topology.taken()[1][row] for row in (there, back)]
    assert named == [("l1", "s1", "l2"), ("l2", "s1", "l1")]
    assert seen.follow(20) == [there, back]
    assert seen.turned == []  # nothing was asked


def test_whoever_gathers_hears_of_a_turn_before_it_counts():
    seen = Seen()
    show(seen.topology, 10, "s1", "s1")
    before = seen.follow(15)
    show(seen.topology, 20, "s2", "s1")
    noted = []
    seen.note = lambda flow: noted.append([int(each[0]) for each in seen.ways.of(flow)])
    assert seen.follow(20) == [NO_ROUTE, NO_ROUTE]
    assert noted == [before]
    assert seen.follow(25)[0] not in {NO_ROUTE, before[0]}


def test_of_flows_that_were_never_traced_no_way_is_known():
    there, back = Ways().of(np.array([0, 5]))
    assert there.tolist() == back.tolist() == [NO_ROUTE, NO_ROUTE]
    assert len(Ways().incidence) == 0
