# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.flows import FlowNumbers
from analyzer.localize.routes import NO_ROUTE
from analyzer.picture import scene as module
from analyzer.picture.scene import UNKNOWN, Ends, Names, natural
from netagent.model.topology import DeclaredTopology
from tests.analyzer.picture.scenes import (
    ENDPOINTS,
    PORTS,
    Flow,
    flows,
    known,
    scene_of,
    task_of,
    whole,
)


def test_names_are_in_the_order_in_which_people_count():
    assert sorted(["h10", "h2", "h1", "leaf-2"], key=natural) == ["h1", "h2", "h10", "leaf-2"]


@given(st.lists(st.text(max_size=6)))
def test_each_endpoint_keeps_its_name(given_names):
    names = Names.by(given_names)
    assert [names.names[place] for place in names.of.tolist()] == given_names


@given(flows)
def test_ends_of_rows_are_the_endpoints_of_their_flows(window):
    scene = scene_of(window)
    assert scene.ends.T.tolist() == [[f.source, f.target] for f in window]
    assert [scene.known.endpoints[n] for n in range(len(ENDPOINTS))] == list(ENDPOINTS)


@given(flows)
def test_ways_are_the_newest_whole_ones(window):
    scene = scene_of(window)
    for reply in (False, True):
        for flow, row in zip(window, scene.ways[int(reply)].tolist(), strict=True):
            way = None if row == NO_ROUTE else scene.routes[row]
            assert way == whole(window, flow, reply=reply)


@given(flows)
def test_one_row_of_each_pair_is_its_first(window):
    scene = scene_of(window)
    pairs = {(f.source, f.target) for f in window}
    assert int(scene.first.sum()) == len(pairs)
    mine = [f for f, is_first in zip(window, scene.first.tolist(), strict=True) if is_first]
    assert {(f.source, f.target) for f in mine} == pairs


@given(flows, st.sampled_from(["t0", "t*", "x"]))
def test_both_ends_have_to_be_of_a_task_that_may_be_seen(window, pattern):
    may = {"t0": {"t0"}, "t*": {"t0", "t1", "t2"}, "x": set()}[pattern]
    expected = [{task_of(f.source), task_of(f.target)} <= may for f in window]
    assert scene_of(window).seen((pattern,)).tolist() == expected


def test_masks_of_more_callers_than_are_kept_are_made_anew(monkeypatch):
    monkeypatch.setattr(module, "MAX_MASKS", 1)
    scene = scene_of([Flow(0, 2, PORTS[0], 0, (1_000,), (0, 0))])
    assert [scene.seen((f"t{n}",)).tolist() for n in (0, 1, 0)] == [[True], [False], [True]]


def test_endpoints_are_looked_up_anew_only_where_they_changed():
    numbers, registered = FlowNumbers(), known()
    ends = Ends(registered, numbers)
    assert ends.holds(registered, numbers)
    assert not ends.holds(known(), numbers)
    numbers.number(Flow(0, 2, PORTS[0], 0, (1,), (0, 0)).id)
    assert not ends.holds(registered, numbers)


class Leaves:
    """A topology of which traces showed some leaves."""

    def __init__(self):
        self.declared, self.traced, self.asked = DeclaredTopology(), dict[str, str](), 0

    def traced_leaves(self):
        return dict(self.traced)

    def leaf_of(self, end):
        self.asked += 1
        return self.traced.get(end.underlay)


def test_leaves_are_looked_up_anew_where_traces_show_others_or_others_are_declared():
    topology, ends = Leaves(), Ends(known(), FlowNumbers())
    assert set(ends.leaves(topology).names) == {UNKNOWN}
    asked = topology.asked
    ends.leaves(topology)
    assert topology.asked == asked == len(ends.endpoints)
    topology.traced = {ends.endpoints[0].underlay: "leaf-1"}
    found = ends.leaves(topology)
    assert found.names[found.of[0]] == "leaf-1"
    topology.declared = DeclaredTopology(names={"10.0.0.1": "leaf-2"})
    ends.leaves(topology)
    assert topology.asked == 3 * asked
