# SPDX-License-Identifier: Apache-2.0
"""Flows that are only counted: no verdict may change by it."""

from collections import Counter
from itertools import pairwise

import pytest

from analyzer.localize.own import parts_of_host
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.voting import ballots
from analyzer.localize.voting.ballots import by_votes, left, poll, pool
from analyzer.localize.voting.fine import divide
from analyzer.simulate.fabric import Fabric
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, link, rnic, switch
from netagent.model.topology import DeclaredTopology, Uplink

LOSSES = [
    {link("leaf-s0-r0", "spine-1"): 0.1},
    {link("leaf-s0-r0", "spine-1"): 1.0},
    {switch("spine-0"): 0.3, rnic("h2", "rnic1"): 0.2},
    {switch("leaf-s1-r1"): 0.1},
    {Component.parse("container t1-c3"): 0.3},
    {link("leaf-s0-r0", "spine-1"): 0.1, link("leaf-s1-r1", "spine-0"): 0.05},
]


def told(case, topology):
    polled = poll(case, case.flows, topology)
    return [each.verdict for each in by_votes(case, polled, topology)], polled


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: ", ".join(map(str, loss)))
def test_verdicts_are_the_same_as_where_every_flow_has_a_ballot(loss, seed):
    fabric = Fabric(seed=seed, loss=loss, probes=12)
    case, topology = fabric.case(), fabric.topology()
    found, polled = told(case, topology)
    case.numbers = None
    naive, every = told(case, topology)
    assert every.fine == ()
    assert len(polled.ballots) + len(polled.fine[0].rows) == len(every.ballots)
    # What is undecided may differ in how open it is: what others lose is averaged over other flows.
    mine, theirs = ([v for v in each if v.component is not None] for each in (found, naive))
    assert [v.component for v in mine] == [v.component for v in theirs]
    for one, other in zip(mine, theirs, strict=True):
        assert one.summary == other.summary
        assert one.confidence == pytest.approx(other.confidence, abs=0.02)
        assert one.failing == other.failing
        assert [(a.component, a.lost, a.crossed) for a in one.alternatives if a.score > 0.02] == [
            (a.component, a.lost, a.crossed) for a in other.alternatives if a.score > 0.02
        ]


def test_flows_that_wait_for_a_vote_take_28_bytes_each():
    fine, flows = fine_of(Fabric(loss=LOSSES[0]))
    columns = {id(of): of for of in (fine.rows, fine.sent, fine.every, fine.there, fine.back)}
    assert sum(of.nbytes for of in columns.values()) + fine.ends.nbytes <= 28 * len(flows)


def fine_of(fabric):
    case = fabric.case()
    _, (fine,) = divide(case.flows, case, fabric.topology())
    return fine, [case.flows[n] for n in fine.rows]


def test_what_crosses_a_component_is_counted_as_flow_by_flow():
    fabric = Fabric(loss={link("leaf-s0-r0", "spine-1"): 0.1})
    fine, views = fine_of(fabric)
    parts = {
        c for v in views for reply in (False, True) for c in fabric.crossed(v.flow, reply=reply)
    }
    for component in parts:
        assert fine.crossed(component) == sum(
            view.sent
            for view in views
            if any(component in fabric.crossed(view.flow, reply=r) for r in (False, True))
        )


def test_each_probe_counts_on_both_ways_and_at_both_ends():
    """Each speaks for each part by itself; and as long as its way is, for the background."""
    fabric = Fabric(loss={switch("spine-1"): 0.2})
    fine, views = fine_of(fabric)
    probes, crossings, crossed = Counter(), Counter(), 0
    for n, view in enumerate(views):
        routes = [fine.parts[places[n]] for places in (fine.there, fine.back)]
        ends = (fabric.endpoints[end] for end in (view.flow.source, view.flow.target))
        for parts in (*routes, *map(parts_of_host, ends)):
            crossed += view.sent * len(parts)
            probes.update(dict.fromkeys(parts, view.sent))
            crossings.update(dict.fromkeys(parts, view.sent * len(parts)))
    among = [*probes, switch("nowhere"), ("pair", ("a", "b"))]
    found = fine.arrived(among)
    assert found.probes.tolist() == [probes[part] for part in among]
    assert found.crossings.tolist() == [crossings[part] for part in among]
    assert (found.sent, found.crossed) == (4 * sum(view.sent for view in views), crossed)


def test_probes_of_a_pair_are_counted_as_it_was_probed():
    fine, views = fine_of(Fabric(loss={switch("spine-1"): 0.2}))
    pairs = {(v.flow.source, v.flow.target) for v in views}
    found = fine.of_pairs(pairs)
    for pair in pairs:
        sent = sum(v.sent for v in views if (v.flow.source, v.flow.target) == pair)
        assert found[pair] == sent
    nobody = EndpointId("nobody", 0)
    assert fine.of_pairs([(nobody, nobody)]) == {}


def test_of_the_largest_size_or_of_all():
    fabric = Fabric(loss={switch("spine-1"): 0.2})
    case, topology = fabric.case(), fabric.topology()
    _, (large,) = divide(case.flows, case, topology, large_only=True)
    _, (every,) = divide(case.flows, case, topology)
    assert large.probes == sum(case.flows[n].sent_large for n in large.rows)
    assert large.of_all_sizes().probes == every.probes > large.probes


def test_several_windows_together_see_what_one_does_not():
    lossy = link("leaf-s0-r0", "spine-1")
    fabric = Fabric(seed=3, loss={lossy: 0.02}, spines=4, tasks=3)
    topology = fabric.topology()
    polls = [poll(case := fabric.case(), case.flows, topology) for _ in range(6)]
    one = [e.evidence for each in polls for e in each.elections]
    pooled = pool(polls[0], [left(each) for each in polls[1:]], fabric.case())
    assert pooled.windows == 6
    assert pooled.elections[0].suspects[0].component in {lossy, link("leaf-s1-r0", "spine-1")}
    assert pooled.elections[0].evidence > max(one, default=0.0)
    (suspect,) = [s for s in pooled.elections[0].suspects if s.component == lossy]
    crossing = sum(
        view.sent
        for view in (view for _ in polls for view in fabric.case().flows)
        if any(lossy in fabric.crossed(view.flow, reply=r) for r in (False, True))
    )
    assert suspect.crossed == crossing


def test_directions_of_a_link_add_up_to_all_probes():
    fabric = Fabric(loss={switch("spine-1"): 0.2})
    fine, _ = fine_of(fabric)
    assert fine.directions(switch("spine-0")) == {frozenset(): fine.probes}
    found = fine.directions(link("leaf-s0-r0", "spine-0"))
    assert sum(found.values()) == fine.probes
    crossed = sum(n for ways, n in found.items() if ways)
    assert crossed == fine.crossed(link("leaf-s0-r0", "spine-0"))


def test_neighbours_cross_what_failed_and_not_the_component():
    fabric = Fabric(loss={switch("spine-1"): 0.2})
    fine, views = fine_of(fabric)
    leaf, spine = switch("leaf-s0-r0"), switch("spine-0")
    sent = Counter()
    for view in views:
        crossed = {c for r in (False, True) for c in fabric.crossed(view.flow, reply=r)}
        if leaf in crossed and spine not in crossed:
            sent[view.flow.source, view.flow.target] += view.sent
    for most in (1, 3, 100):
        found = fine.neighbours(spine, {leaf, spine}, most)
        assert sorted(found.values()) == sorted(sent.values())[-most:]
    assert all(sent[pair] == total for pair, total in found.items())


def test_ways_that_turned_in_this_window_are_weighed_one_by_one():
    fabric = Fabric(loss={switch("spine-1"): 0.2})
    topology = fabric.topology()
    case = fabric.case()
    divide(case.flows, case, topology)
    flow = next(f for f in fabric.flows if len(fabric.routes[f, False]) > 1)
    there = fabric.routes[flow, False]
    fabric.routes[flow, False] = (there[0], "spine-new", there[2])
    topology.learn(fabric.paths(), fabric.underlay, wall_ns=case.window.start_ns)
    one_by_one, _ = divide(case.flows, case, topology)
    assert flow in {view.flow for view in one_by_one}
    later = fabric.case()
    later.window = type(later.window)(later.window.end_ns, later.window.width_ns)
    quiet = later.flows.only(later.flows.lost == 0)
    _, (fine,) = divide(quiet, later, topology)
    place = [quiet[n].flow for n in fine.rows].index(flow)
    assert "spine-new" in fine.routes[fine.there[place]]
    assert Component(Kind.SWITCH, "spine-new") in fine.parts[fine.there[place]]


def untraced(fabric):
    links = {(min(a, b), max(a, b)) for route in fabric.routes.values() for a, b in pairwise(route)}
    uplinks = [Uplink(e.host, e.rnic, fabric.leaf(e.id)) for e in fabric.endpoints.values()]
    return LearnedTopology(DeclaredTopology(links=frozenset(links), uplinks=tuple(uplinks)))


@pytest.mark.parametrize("loss", LOSSES[1:5], ids=lambda loss: ", ".join(map(str, loss)))
def test_flows_that_no_trace_shows_are_counted_as_if_each_had_a_ballot(loss, monkeypatch):
    monkeypatch.setattr(ballots, "MAX_OPEN", 10_000)
    monkeypatch.setattr(ballots, "MOST_OPEN", 10_000)
    fabric = Fabric(loss=loss, probes=12)
    case, topology = fabric.case(), untraced(fabric)
    _, polled = told(case, topology)
    case.numbers = None
    _, every = told(case, topology)
    assert every.fine == ()
    assert len(polled.ballots) + len(polled.fine[0].rows) == len(every.ballots)
    assert len(polled.elections) == len(every.elections)
    for one, other in zip(polled.elections, every.elections, strict=True):
        assert one.evidence == pytest.approx(other.evidence, rel=0.01)
        mine, theirs = ({s.component: s.score for s in e.suspects} for e in (one, other))
        for component in mine.keys() | theirs.keys():
            assert mine.get(component, 0) == pytest.approx(theirs.get(component, 0), abs=0.06)


def test_a_host_that_makes_up_flows_weighs_no_more(monkeypatch):
    fabric = Fabric(seed=1, loss={switch("spine-0"): 0.5}, probes=12)
    case, topology = fabric.case(), untraced(fabric)
    monkeypatch.setattr(ballots, "MAX_OPEN", 2)
    weight = Counter()
    for ballot, view in poll(case, case.flows, topology).ballots.items():
        if not ballot.whole:
            arrives = 2 * ballot.lost < ballot.sent
            weight[fabric.endpoints[view.flow.source].host, arrives] += ballot.times
    assert max(weight.values()) == 2 * ballots.MOST_TIMES


def test_more_than_so_many_open_flows_stand_for_the_others(monkeypatch):
    fabric = Fabric(seed=1, loss={switch("spine-0"): 0.5}, probes=12)
    case, topology = fabric.case(), untraced(fabric)
    every = poll(case, case.flows, topology)
    monkeypatch.setattr(ballots, "MOST_OPEN", 9)
    some = poll(case, case.flows, topology)
    arrive = [2 * ballot.lost < ballot.sent for ballot in some.ballots]
    assert sorted(Counter(arrive).values()) == [9, 9]
    assert len(every.ballots) > 18
    assert sum(ballot.times for ballot in some.ballots) == pytest.approx(
        len(every.ballots), rel=0.1
    )
