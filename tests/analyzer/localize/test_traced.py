# SPDX-License-Identifier: Apache-2.0
"""Columns against paths that are taken one by one, over restarts and from earlier versions."""

import io
from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.flows import FlowNumbers
from analyzer.intake.paths import PathRow, PathTable
from analyzer.localize import traced
from analyzer.localize.routes import NO_ROUTE, UNTRACED
from analyzer.localize.saved import COLUMNS
from analyzer.localize.topology import LearnedTopology
from analyzer.replay.routes import pack, unpack
from netagent.model.ids import FlowId
from netagent.model.topology import DeclaredTopology
from tests.analyzer.localize.test_topology import (
    BACK,
    ENDS,
    FLOW,
    LINKS,
    UNDERLAY,
    WAY,
    A,
    B,
    W,
    row,
    spines,
    told,
    way,
)  # fmt: skip


class OneByOne:
    """What the topology has in columns, learned path by path."""

    def __init__(self):
        self.leaf, self.routes, self.latest, self.seen_ns, self.links = {}, {}, {}, {}, set()

    def learn(self, rows, wall_ns):
        ends = [(r.flow.target, r.flow.source) if r.reply else (r.flow.source, r.flow.target)
                for r in rows]  # fmt: skip
        for each, (sender, _) in zip(rows, ends, strict=True):
            if each.hops and each.hops[0]:
                self.leaf[sender] = each.hops[0]
        return [
            self.take(each, receiver, wall_ns)
            for each, (_, receiver) in zip(rows, ends, strict=True)
        ]

    def take(self, each, receiver, wall_ns):
        if not each.hops:
            return True
        key, hops = (each.flow, each.reply), answered(each.hops)
        complete = hops[-1] == self.leaf.get(receiver)
        routes = self.routes.setdefault(key, [])
        self.latest[key], self.seen_ns[key] = hops, wall_ns
        if complete and not (routes and len(hops) == len(each.hops) and hops != each.hops):
            if routes[-1:] != [hops]:
                routes.append(hops)
            self.links |= {tuple(sorted(two)) for two in pairwise(hops) if all(two)}
        return complete

    def expire(self, before_ns):
        for key, seen_ns in list(self.seen_ns.items()):
            if seen_ns < before_ns:
                for each in (self.routes, self.latest, self.seen_ns):
                    del each[key]


def answered(hops):
    """Return a path without those who only spoke for the router behind them."""
    kept = [hop if not n or hop != hops[n - 1] else "" for n, hop in enumerate(hops)]
    while len(kept) > 1 and hops[len(kept) - 1] and not kept[-1]:
        kept.pop()
    return tuple(kept)


HOPS = st.lists(st.sampled_from(["L0", "L1", "S0", "S1", ""]), max_size=4).map(tuple)
PATHS = st.lists(
    st.builds(
        PathRow,
        st.builds(FlowId, st.sampled_from([A, B]), st.sampled_from([A, B]), st.integers(1, 2)),
        st.booleans(),
        st.just(1),
        st.one_of(HOPS, st.sampled_from([WAY, WAY[::-1], BACK])),
    ),
    max_size=8,
    unique_by=lambda each: (each.flow, each.reply),
)


@given(st.lists(st.tuples(PATHS, st.booleans()), max_size=8), st.booleans())
def test_columns_say_what_paths_taken_one_by_one_say(windows, few):
    topology, naive, flows = LearnedTopology(), OneByOne(), set()
    for window, (rows, is_late) in enumerate(windows):
        flows |= {each.flow for each in rows}
        assert topology.learn(
            PathTable.of(rows), UNDERLAY.get, wall_ns=window
        ).tolist() == naive.learn(rows, window)
        if few:
            topology._forget(topology._traced.in_use())
        if is_late:
            topology.expire(before_ns=window - 1)
            naive.expire(window - 1)
        for flow, reply in product(flows, (False, True)):
            routes = naive.routes.get((flow, reply)) or [None]
            assert topology.hops(flow, reply=reply) == routes[-1]
            latest = naive.latest.get((flow, reply), ())
            early = routes[-1] and len(latest) < len(routes[-1])
            assert topology.ends_after(flow, reply=reply) == (latest[-1] if early else None)
        assert topology.directions == len(naive.latest)
        numbers = np.array([topology.numbers.number(flow) for flow in flows], np.int64)
        settled = topology.settled(numbers, topology.numbers, at_ns=window + 1)
        for flow, there, back in zip(flows, settled.there, settled.back, strict=True):
            both = [naive.routes.get((flow, reply)) for reply in (False, True)]
            if all(both):
                assert [settled.routes[n] for n in (there, back)] == [each[-1] for each in both]
            else:
                is_traced = {(flow, False), (flow, True)} & naive.latest.keys()
                assert there == back == (NO_ROUTE if is_traced else UNTRACED)
    if not few and not any(is_late for _, is_late in windows):
        assert topology.links() == naive.links


@given(st.lists(PATHS, min_size=1, max_size=6))
def test_routes_of_flows_that_lost_nothing_are_what_their_ways_are(windows):
    topology, flows = LearnedTopology(), set()
    ends = {FLOW.source: ENDS[0], FLOW.target: ENDS[1]}
    for window, rows in enumerate(windows):
        topology.learn(PathTable.of(rows), UNDERLAY.get, wall_ns=window)
        flows |= {each.flow for each in rows}
        numbers = np.array([topology.numbers.number(flow) for flow in flows], np.int64)
        lost = np.zeros(len(numbers), np.bool_)
        settled = topology.settled(numbers, topology.numbers, at_ns=window, lost=lost)
        for flow, there, back in zip(flows, settled.there, settled.back, strict=True):
            if there >= 0:
                both = ends[flow.source], ends[flow.target]
                mine = topology.way(flow, both, at_ns=window, lost=False)
                assert mine.legs == topology.way_on(there, back).legs


def test_a_way_that_a_window_is_the_first_to_show_is_that_of_what_lost_nothing():
    topology = told(LearnedTopology(), 1, row(WAY), row(BACK, reply=True))
    number = np.array([topology.numbers.number(FLOW)])

    def there(window, *, lost):
        settled = topology.settled(
            number, topology.numbers, at_ns=window * W, lost=np.array([lost])
        )
        return int(settled.there[0])

    assert topology._traced.routes[there(1, lost=False)] == WAY
    assert there(1, lost=True) == NO_ROUTE
    told(topology, 2, row(("L0", "S1", "L1")))  # it took two ways in that window
    assert there(2, lost=False) == NO_ROUTE
    assert topology._traced.routes[there(3, lost=True)] == ("L0", "S1", "L1")


def test_flows_that_another_numbers_are_looked_up_by_name():
    topology = told(LearnedTopology(), 1, row(WAY), row(BACK, reply=True))
    others = FlowNumbers()
    numbers = np.array([others.number(FlowId(B, A, 7)), others.number(FLOW)])
    settled = topology.settled(numbers, others, at_ns=2 * W)
    assert settled.there[0] == settled.back[0] == UNTRACED
    assert settled.routes[settled.there[1]] == WAY


def test_routes_that_a_host_makes_up_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(traced, "LEAST_ROUTES", 100)
    topology = LearnedTopology()
    topology._forget(topology._traced.in_use())
    for n in range(300):
        topology.learn(PathTable.of([row(("L0", f"X{n}", "L1"))]), UNDERLAY.get, wall_ns=n)
        topology.learn(PathTable.of([row(BACK, reply=True)]), UNDERLAY.get, wall_ns=n)
    assert len(topology._traced.routes) < 110
    assert topology.hops(FLOW, reply=False) == ("L0", "X299", "L1")
    assert topology.hops(FLOW, reply=True) == BACK


def test_what_earlier_versions_kept_by_flow_is_read():
    known = SimpleNamespace(
        routes=[(WAY, 5), (("L0", "S1", "L1"), W)], latest=("L0",), seen_ns=2 * W
    )
    old = {
        "declared": DeclaredTopology(),
        "_leaf_of": {UNDERLAY[A]: "L0", UNDERLAY[B]: "L1"},
        "_known": {(FLOW, False): known},
        "_partial": {(FLOW, True): (("L1", "S1"), W)},
        "_between": {("L0", "L1"): {WAY: 5, ("L0", "S1", "L1"): W, ("L0", "S2", "L1"): W}},
        "_left": {("L0", "S0"): W},
    }
    upgraded = LearnedTopology.upgraded(old)
    topology = LearnedTopology()
    for name, value in upgraded.items():
        setattr(topology, name, value)
    assert topology.hops(FLOW, reply=False) == ("L0", "S1", "L1")
    assert topology.ends_after(FLOW, reply=False) == "L0"
    assert topology._traced.partial(FLOW, reply=True) == ("L1", "S1")
    assert topology.leaves() == {"172.30.0.1": "L0", "172.30.0.2": "L1"}
    assert topology.links() == {(leaf, f"S{n}") for leaf in ("L0", "L1") for n in range(3)}
    assert spines(way(topology, 1)) == {"S0": 0.5, "S1": 1.0}
    assert LearnedTopology.upgraded(upgraded) is upgraded


def read(saved):
    """Return what was saved, once it was in a file."""
    data = io.BytesIO(b"".join(pack(saved)))
    return unpack(data, now_ns=saved.at_ns, most_ns=0)


@given(st.lists(PATHS, max_size=6), st.data())
def test_what_is_saved_is_the_same_in_a_life_with_other_numbers(windows, data):
    topology, flows = LearnedTopology(LINKS), set()
    for window, rows in enumerate(windows):
        flows |= {each.flow for each in rows}
        topology.learn(PathTable.of(rows), UNDERLAY.get, wall_ns=window * W)
    saved = topology.save(len(windows) * W)
    again = LearnedTopology(LINKS)
    again.numbers.number(FlowId(B, A, 99))
    again.adopt(read(saved))
    for each in (topology, again):
        late = data.draw(st.just(windows[-1:])) if windows else []
        for rows in late:  # it goes on in the same way
            each.learn(PathTable.of(rows), UNDERLAY.get, wall_ns=(len(windows) + 1) * W)
    assert (again.leaves(), again.links()) == (topology.leaves(), topology.links())
    assert (again._traced.left, again.directions) == (topology._traced.left, topology.directions)
    for flow, reply in product(flows, (False, True)):
        both = [each._traced for each in (topology, again)]
        assert both[0].known(flow, reply=reply) == both[1].known(flow, reply=reply)
        assert both[0].partial(flow, reply=reply) == both[1].partial(flow, reply=reply)
    for window in range(len(windows) + 2):
        assert way(again, window) == way(topology, window)
    assert again.save(0).columns.keys() == COLUMNS.keys()


def test_a_trace_of_a_clock_that_is_ahead_is_not_taken_for_that_of_a_later_flow_of_its_number():
    topology = told(LearnedTopology(), 12, row(WAY), row(BACK, reply=True))
    again = LearnedTopology()
    again.adopt(read(topology.save(W)))  # eleven windows before
    assert again.numbers.recycle(before_ns=2 * W).tolist() == [0]
    again.expire(before_ns=2 * W)
    other = FlowId(B, A, 99)
    assert again.numbers.number(other) == 0
    assert again.hops(other, reply=False) is None


def test_a_path_that_a_summary_says_twice_is_one():
    topology = told(LearnedTopology(), 1, row(WAY), row(BACK, reply=True))
    turned = ("L0", "S1", "L1")
    told(topology, 2, row(turned), row(turned))
    assert topology._traced.known(FLOW, reply=False).routes == [(WAY, W), (turned, 2 * W)]


def test_nobody_knows_where_an_unknown_endpoint_is_whatever_one_without_an_address_says():
    topology = LearnedTopology()
    underlays = {A: "", B: None}
    shown = PathTable.of([row(("L1", "S0", "L1"))])
    assert topology.learn(shown, underlays.get).tolist() == [False]
    assert topology.leaves() == {"": "L1"}
