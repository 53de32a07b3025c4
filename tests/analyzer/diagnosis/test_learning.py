# SPDX-License-Identifier: Apache-2.0
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from analyzer.diagnosis.engine import Diagnosis
from analyzer.diagnosis.learning import RELEARN_NS, Learned, learn, news_of
from analyzer.intake.paths import NOWHERE, paths_of
from analyzer.intake.take import take as take_summary
from analyzer.localize.topology import LearnedTopology
from analyzer.roster.registry import HELD_NS, Registry
from analyzer.simulate.agents import Agents
from analyzer.simulate.clos import Clos, Shape
from netagent.collect.paths import PathsToSay, TracedPath
from netagent.collect.windows import WindowTally
from netagent.model.ids import EndpointId, FlowId
from netagent.model.topology import DeclaredTopology
from netagent.model.window import Window
from netagent.wire.messages import Health, Registration

WIDTH_NS = 5_000_000_000
HOST = "h0"


class Counting(LearnedTopology):
    """Counts the paths that it is given."""

    given = 0

    def learn(self, paths, underlay_of, *, which=None, wall_ns=0):
        self.given += len(paths if which is None else which)
        return super().learn(paths, underlay_of, which=which, wall_ns=wall_ns)


@cache
def fabric():
    """Return who is there, and the paths of each host."""
    agents, roster = (
        Agents(Clos(Shape(hosts=4, hosts_per_segment=2, spines=3, rails=2, stages=1))),
        Registry(),
    )
    for message in agents.registrations():
        roster.apply(message, 0)
    return roster, {each.host: paths_of(each) for each in agents.window()}


def begun():
    """Return a topology that knows all paths, and what was learned."""
    topology, learned = Counting(), Learned()
    for window in range(2):
        for host, table in fabric()[1].items():
            take(learned, topology, host, table, window)
    topology.given = 0
    return topology, learned


def take(learned, topology, host, table, window, now=None):
    at_ns = window * WIDTH_NS
    now_ns = at_ns if now is None else now * WIDTH_NS
    take_of(learned, topology, fabric()[0], host, table, at_ns=at_ns, now_ns=now_ns)


def take_of(learned, topology, roster, host, table, *, at_ns, now_ns):
    known = learned, topology, roster
    news = news_of(*known, host, table, wall_ns=at_ns, now_ns=now_ns)
    learn(*known, [] if news is None else [news])


def changed(table, rows):
    """Return a table in which these rows have other routes from their leaf, or shorter ones."""
    routes, route = list(table.routes), table.route.copy()
    for row, (other, hops) in ((n % len(route), each) for n, each in rows.items()):
        leaf = table.routes[table.route[row]][0]
        beside = [each for each in table.routes if each[0] == leaf]
        shown = beside[other % len(beside)][:hops]
        if shown not in routes:
            routes.append(shown)
        route[row] = routes.index(shown)
    return replace(table, routes=tuple(routes), route=route)


@pytest.mark.parametrize("is_quiet", [True, False])
def test_what_is_known_to_its_end_is_learned_again_after_a_while_only(is_quiet):
    """Also where its host has said nothing of it since."""
    _, paths = fabric()
    topology, learned = begun()
    said, windows = paths[HOST], []
    if is_quiet:
        none = {"key": tuple(each[:0] for each in said.key), "route": said.route[:0]}
        said = replace(said, **none, routes=(), whole_ns=WIDTH_NS)
    for window in range(2, 2 + 2 * RELEARN_NS // WIDTH_NS):
        take(learned, topology, HOST, said, window)
        windows.append(topology.given)
        topology.given = 0
    assert sorted(windows) == [0] * (len(windows) - 2) + [len(paths[HOST])] * 2


@pytest.mark.parametrize("is_heard", [True, False])
def test_behind_another_hosts_vtep_nobody_says_which_leaf_that_is(is_heard):
    """Unless the other one is not heard any more, as under a host's former name."""
    roster, _ = fabric()
    mine, theirs = (roster.endpoints_of(host)[0].endpoint for host in (HOST, "h1"))
    roster = deepcopy(roster)
    claimed = replace(mine, id=EndpointId("0", 0), underlay=theirs.underlay, task="")
    roster.apply(
        Registration(
            host=HOST, instance=roster.agent(HOST).instance, generation=1 << 40, rpc_url="",
            endpoints=(*(r.endpoint for r in roster.endpoints_of(HOST)), claimed),
        ), 1,
    )  # fmt: skip
    roster.heard(HOST, 0, 1 if is_heard else 1 + HELD_NS)
    lie = TracedPath(FlowId(claimed.id, theirs.id, 1), reply=False, outer_port=1, hops=("lie",))
    honest = replace(lie, flow=FlowId(mine.id, theirs.id, 1), hops=("leaf",))
    topology = LearnedTopology()
    said = WindowTally(large_class=2).close(
        Window(0, WIDTH_NS), host=HOST, instance="i", findings=(), health=Health(),
        paths=PathsToSay((lie, honest), 0),
    )  # fmt: skip
    table = paths_of(said)
    take_of(Learned(), topology, roster, HOST, table, at_ns=0, now_ns=0)
    assert topology.leaf(theirs.underlay) == (None if is_heard else "lie")
    assert topology.leaf(mine.underlay) == "leaf"


def test_hosts_are_not_all_learned_again_in_one_window():
    _, paths = fabric()
    topology, learned = begun()
    busy = 0
    for window in range(2, 1 + RELEARN_NS // WIDTH_NS):
        for host, table in paths.items():
            take(learned, topology, host, table, window)
        busy += topology.given > 0
        topology.given = 0
    assert busy > 1


def test_a_path_that_ends_early_is_learned_alone_and_again():
    _, paths = fabric()
    topology, learned = begun()
    window = 1
    while not topology.given:
        window += 1
        take(learned, topology, HOST, paths[HOST], window)
    topology.given = 0
    far = next(n for n, r in enumerate(paths[HOST].route) if len(paths[HOST].routes[r]) > 1)
    cut = changed(paths[HOST], {far: (0, 1)})
    for later in (1, 2):
        take(learned, topology, HOST, cut, window + later)
    assert topology.given == 2


def test_where_a_path_is_gone_the_others_are_not_learned_again():
    _, paths = fabric()
    topology, learned = begun()
    table, window = paths[HOST], 1
    while not topology.given:
        window += 1
        take(learned, topology, HOST, table, window)
    topology.given = 0
    rows = [*range(2, len(table)), 0]
    fewer = replace(table, key=tuple(each[rows] for each in table.key), route=table.route[rows])
    for later in (1, 2):
        take(learned, topology, HOST, fewer, window + later)
    assert topology.given == 0
    take(learned, topology, HOST, table, window + 3)  # one that comes is learned alone
    assert topology.given == 1


def known(topology, table):
    """Return what a topology says of the flows of a table."""
    rows = table.rows(np.arange(len(table)))
    return [
        (topology.hops(row.flow, reply=row.reply), topology.ends_after(row.flow, reply=row.reply))
        for row in rows
    ], topology.leaves()


ROWS = st.integers(0, 1000)
CHANGES = st.dictionaries(ROWS, st.tuples(ROWS, st.integers(0, 5)), max_size=5)


@given(st.lists(st.dictionaries(ROWS, st.tuples(ROWS, st.integers(0, 5)), max_size=5), max_size=6))
def test_it_is_as_if_all_were_learned_in_each_window(windows):
    _, paths = fabric()
    (topology, learned), (naive, _) = begun(), begun()
    for window, rows in enumerate(windows, start=2):
        table = changed(paths[HOST], rows)
        take(learned, topology, HOST, table, window)
        take(Learned(), naive, HOST, table, window)
        assert known(topology, table) == known(naive, table)


@pytest.mark.parametrize("is_late", [False, True])
def test_paths_of_an_endpoint_that_moved_are_learned_at_once(is_late):
    """Also one of an endpoint that was not probed when endpoints last moved."""
    before, roster = fabric()[0], deepcopy(fabric()[0])
    topology, learned = begun()
    table = fabric()[1][HOST]
    if is_late:
        few = replace(
            table, endpoints=(), key=tuple(each[:0] for each in table.key), route=table.route[:0]
        )
        learned = Learned()
        take(learned, topology, HOST, few, 1)
        take(learned, topology, HOST, table, 2)
        topology.given = 0
    there = [each.endpoint for each in before.endpoints_of("h1")]
    assert {each.id for each in there} & set(table.endpoints)
    moved = tuple(replace(end, underlay=f"9.9.9.{n}") for n, end in enumerate(there))
    message = Registration(host="h1", instance="i", generation=9, rpc_url="", endpoints=moved)
    roster.apply(message, 10**12)
    at_ns = 3 * WIDTH_NS
    take_of(learned, topology, roster, HOST, table, at_ns=at_ns, now_ns=at_ns)
    assert topology.given == len(table)


@given(st.lists(st.dictionaries(ROWS, st.tuples(ROWS, st.integers(0, 5)), max_size=5), max_size=6))
@example([{}, {}, {1: (2, 3)}, {1: (2, 3)}, {}, {}])
def test_what_differs_leads_to_the_same_as_all_of_it(windows):
    _, paths = fabric()
    (topology, learned), (naive, all_of_it) = begun(), begun()
    base_ns = 2 * WIDTH_NS
    for known, of in ((topology, learned), (naive, all_of_it)):
        take(of, known, HOST, paths[HOST], 2)
    for window, rows in enumerate(windows, start=3):
        table = changed(paths[HOST], rows)
        differ = table.found_in(paths[HOST]) == NOWHERE
        news = replace(
            table, key=tuple(each[differ] for each in table.key), route=table.route[differ],
            whole_ns=base_ns,
        )  # fmt: skip
        take(learned, topology, HOST, news, window)
        take(all_of_it, naive, HOST, table, window)
        assert known_state(topology) == known_state(naive)


def known_state(topology):
    """Return all that was learned."""
    known = topology._traced
    taken, routes = known._taken, [*map(known.routes.shown, range(len(known.routes))), None]
    columns = [[routes[row] for row in each.flat] for each in (taken.newest, taken.latest)]
    earlier = {
        key: [(routes[row], since_ns) for row, since_ns in rows]
        for key, rows in known._earlier.items()
    }
    seen = taken.since_ns.tolist(), taken.seen_ns.tolist()
    return columns, seen, earlier, known.links(), known.left, known.leaf_of


@given(
    st.lists(st.dictionaries(st.sampled_from(["h0", "h1", "h2", "h3"]), CHANGES), max_size=8),
)
def test_hosts_that_come_one_after_the_other_lead_to_the_same(windows):
    """Of what waits for a leaf, only when a trace last showed it is another time."""
    _, paths = fabric()
    (topology, learned), naive = (Counting(), Learned()), Counting()
    for window, hosts in enumerate(windows, start=1):
        for host, rows in hosts.items():
            table = changed(paths[host], rows)
            take(learned, topology, host, table, window)
            take(Learned(), naive, host, table, window)
        (columns, (since, _), *rest), (columns_too, (since_too, _), *rest_too) = map(
            known_state, (topology, naive)
        )
        assert (columns, since, rest) == (columns_too, since_too, rest_too)


@given(
    st.booleans(),
    st.lists(st.dictionaries(st.sampled_from(["h0", "h1", "h2", "h3"]), CHANGES), max_size=6),
)
def test_paths_of_hosts_that_are_learned_together_are_learned_as_one_by_one(is_known, windows):
    roster, paths = fabric()
    together, apart = (Diagnosis(roster, DeclaredTopology()) for _ in range(2))
    every = [{host: {} for host in paths}] * 2 * is_known + windows
    for window, hosts in enumerate(every, start=2):
        at_ns = window * WIDTH_NS
        for host, rows in hosts.items():
            table = changed(paths[host], rows)
            for each in (together, apart):
                each._learn(host, table, at_ns, at_ns, may_wait=each is together)
        together.learn_waiting()
        # To the number of each route.
        saved = [str(each._topology.save(at_ns)) for each in (together, apart)]
        assert saved[0] == saved[1]
        for host in hosts:
            flags = [each._learned._whole[host][1].tolist() for each in (together, apart)]
            assert flags[0] == flags[1]


def test_few_news_of_many_hosts_are_learned_at_once(monkeypatch):
    roster, paths = fabric()
    diagnosis, batches = Diagnosis(roster, DeclaredTopology()), []
    monkeypatch.setattr(
        "analyzer.diagnosis.engine.learn",
        lambda *known: batches.append(len(known[-1])) or learn(*known),
    )
    for window, changes in enumerate([{}, {}, {0: (1, 9)}], start=2):
        for host, table in paths.items():
            at_ns = window * WIDTH_NS
            diagnosis._learn(host, changed(table, changes), at_ns, at_ns, may_wait=True)
        batches.append("end")
        diagnosis.learn_waiting()
    assert batches[-2:] == ["end", len(paths)]
    assert 1 in batches  # of the first, each showed its leaf


def test_nobody_is_charged_with_what_another_host_invents(monkeypatch):
    """Who comes last has the paths of all learned; else one host could have him refused."""
    monkeypatch.setattr("analyzer.diagnosis.engine.LEARNED_AT_ONCE", 2)
    roster, paths = fabric()
    agents = Agents(Clos(Shape(hosts=4, hosts_per_segment=2, spines=3, rails=2, stages=1)))
    summaries = {each.host: each for each in agents.window()}
    diagnosis = Diagnosis(roster, DeclaredTopology())

    def told(host, table, window):
        summary = structs.replace(summaries[host], start_ns=window * WIDTH_NS)
        taken = take_summary(summary, diagnosis._numbers, width_ns=WIDTH_NS)
        taken = replace(taken, paths=table)
        diagnosis.ingest(summary, summary.start_ns, taken, may_wait=True)

    for window in (1, 2):
        for host, table in paths.items():
            told(host, table, window)
    diagnosis._new_flows.clear()
    liar, table = paths["h1"], paths[HOST]
    far = next(n for n, r in enumerate(liar.route) if len(liar.routes[r]) > 1)
    lie = (liar.routes[liar.route[far]][0], *(f"r{n}" for n in range(30)))
    route = liar.route.copy()
    route[far] = len(liar.routes)
    told("h1", replace(liar, routes=(*liar.routes, lie), route=route), 3)
    told(HOST, changed(table, {next(n for n, r in enumerate(table.route) if r): (0, 1)}), 3)
    assert not diagnosis._to_learn
    assert diagnosis._new_flows["h1"] >= 30
    assert diagnosis._new_flows[HOST] < 10


def test_paths_to_a_host_that_traced_nothing_wait_until_it_does():
    _, paths = fabric()
    topology, learned = Counting(), Learned()
    others = [host for host in paths if host != HOST]
    given = []
    for window, hosts in enumerate([others, others, others, [HOST], others, others]):
        for host in hosts:
            take(learned, topology, host, paths[host], window)
        given.append(topology.given)
        topology.given = 0
    every = sum(len(paths[host]) for host in others)
    # The first to come knew no other's leaf, either; then all wait for the one that is missing.
    assert given[0] == every
    assert given[2] == given[5] == 0
    assert 0 < given[1] < every
    assert 0 < given[4] < every


def test_of_paths_that_differ_from_unknown_ones_what_is_said_is_learned():
    _, paths = fabric()
    topology, learned = Counting(), Learned()
    few = replace(
        paths[HOST], key=tuple(each[:3] for each in paths[HOST].key),
        route=paths[HOST].route[:3], whole_ns=WIDTH_NS,
    )  # fmt: skip
    take(learned, topology, HOST, few, 2)
    assert topology.given == 3
    take(learned, topology, HOST, paths[HOST], 3)
    assert topology.given == len(paths[HOST])  # those three were learned


def test_what_comes_after_later_windows_says_nothing_of_where_flows_go_now():
    topology, learned = begun()
    table = fabric()[1][HOST]
    other = changed(table, {n: (n + 1, 9) for n in range(len(table))})
    take(learned, topology, HOST, other, 9)
    shown, given = topology.save(1), topology.given
    take(learned, topology, HOST, table, 4, now=9)
    assert topology.given == given
    assert str(topology.save(1)) == str(shown)
    take(learned, topology, HOST, table, 10)
    assert topology.given > given


def test_windows_of_a_clock_that_went_back_are_learned_from():
    topology, learned = begun()
    table = fabric()[1][HOST]
    take(learned, topology, HOST, table, 900, now=895)
    other = changed(table, {n: (n + 1, 9) for n in range(len(table))})
    before = topology.given
    take(learned, topology, HOST, other, 896, now=897)
    assert topology.given > before
    after = topology.given
    take(learned, topology, HOST, table, 895, now=897)  # of a spool
    assert topology.given == after


def test_where_time_is_set_back_hosts_are_learned_from_again():
    topology, learned = begun()
    table = fabric()[1][HOST]
    take(learned, topology, HOST, table, 900)
    learned.set_back(5 * WIDTH_NS)
    take(learned, topology, HOST, changed(table, {n: (n + 1, 9) for n in range(len(table))}), 5)
    assert topology.given > 0
