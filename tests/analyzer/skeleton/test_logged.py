# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.operators.log import Group, GroupKind, Kind, Place, log_of
from analyzer.simulate.scattered import Scatter, scatter
from analyzer.simulate.workload import Template, generate
from analyzer.skeleton.infer import infer
from analyzer.skeleton.logged import Ends, disagreement, logged
from analyzer.skeleton.series import basic_edges
from netagent.model.task import Parallelism

JOBS = (Parallelism(4, 6), Parallelism(4, 4, 4), Parallelism(8, 2, 1), Parallelism(2, 4, 8, 2))


def ends(series):
    return Ends(series.names, series.host, series.rail)


def is_basic(found, those):
    return not found.confident and np.array_equal(found.edges, basic_edges(those.host, those.rail))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from(JOBS), st.sampled_from([1, 2]),
    st.sampled_from([0.0, 0.1, 0.5]), st.sampled_from([0.0, 0.4]), st.sampled_from([0.0, 0.4]),
)  # fmt: skip
def test_a_log_has_the_pairs_of_any_job_exactly(seed, job, chunks, missing, shared, paired):
    work = generate(job, seed=1, ticks=5, template=Template(chunks=chunks))
    how = Scatter(missing=missing, shared=shared if job.tp > 1 else 0.0, paired=paired)
    made = scatter(work, how, seed=seed)
    found = logged(made.log, ends(made.work.series))
    assert found.confident
    assert (found.dp, found.pp, found.tp, found.ep) == (job.dp, job.pp, job.tp, job.ep)
    assert np.array_equal(found.edges, made.work.truth.edges)


def test_groups_are_those_of_the_log():
    work = generate(Parallelism(2, 4, 8, 2), seed=1, ticks=5)
    made = scatter(work, Scatter(missing=0.0, shuffled=False), seed=1)
    found = logged(made.log, ends(made.work.series))
    assert {kind: sorted(rows) for kind, rows in found.groups.items()} == {
        kind: sorted(rows) for kind, rows in work.truth.groups.items()
    }


FOUR = Ends(("a/rail0", "b/rail0", "c/rail0", "d/rail0"), np.arange(4), np.zeros(4, np.int64))
PLACES = {n: Place(f"h{n}", (name,)) for n, name in enumerate(FOUR.names)}
DP = tuple(Group(f"dp{n}", GroupKind.DATA, members) for n, members in enumerate([(0, 1), (2, 3)]))
ALL = Group("all", GroupKind.UNKNOWN, (0, 1, 2, 3))


def log(columns=None, **changes):
    whole = {"groups": DP, "places": PLACES, "world": 4} | changes
    return log_of(columns or {"rank": [0]}, **whole)


def edges(made):
    return logged(made, FOUR).edges.tolist()


def test_stages_follow_each_other_in_the_order_that_places_say_else_by_rank():
    chain = (Group("pp", GroupKind.PIPELINE, (0, 1, 2, 3)),)
    assert edges(log(groups=chain)) == [[0, 1], [1, 2], [2, 3]]
    order = {rank: replace(PLACES[rank], pp=pp) for rank, pp in enumerate([2, 0, 3, 1])}
    assert edges(log(groups=chain, places=order)) == [[0, 2], [0, 3], [1, 3]]


def test_who_was_seen_to_send_is_a_pair_whatever_groups_say():
    sent = {"rank": [0, 1, 2], "peer": [3, -1, 3], "kind": [Kind.SEND, Kind.RECV, Kind.COMPUTE]}
    assert edges(log(sent)) == [[0, 1], [0, 3], [2, 3]]


def test_a_group_of_no_known_kind_is_a_clique_unless_it_is_everybody():
    some = Group("x", GroupKind.UNKNOWN, (1, 2, 3))
    assert edges(log(groups=(*DP, some, ALL))) == [[0, 1], [1, 2], [1, 3], [2, 3]]


def test_members_that_are_not_said_are_those_seen():
    groups = (Group("x", GroupKind.DATA), *DP)
    seen = {"rank": [0, 2, 1], "group": [0, 0, 1]}
    assert edges(log(seen, groups=groups)) == [[0, 1], [0, 2], [2, 3]]


def test_a_tensor_group_over_hosts_uses_the_network():
    tp = Group("tp", GroupKind.TENSOR, (1, 2))
    assert edges(log(groups=(*DP, tp))) == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize(
    ("changes", "lack"),
    [
        ({"places": {n: PLACES[n] for n in (0, 1, 2)}}, "where 1 of 4 ranks are"),
        ({"world": 5}, "where 1 of 5 ranks are"),
        ({"places": PLACES | {3: Place("h3")}}, "no rank of the log is at 1 of 4 endpoints"),
        ({"groups": DP[:1]}, "no group of the log is said to have 2 of 4 ranks"),
        ({"groups": (ALL,)}, "no group of the log is said to have 4 of 4 ranks"),
        (
            {"groups": (replace(ALL, kind=GroupKind.WORLD),)},
            "no group of the log is said to have 4 of 4 ranks",
        ),
        (
            {"groups": (*DP, Group("x", GroupKind.DATA)), "unseen": (3,)},
            "members of 1 groups are not said",
        ),
        (
            {"places": {n: replace(place, pp=n // 2) for n, place in PLACES.items()}},
            "the log has 2 stages, and not who sends to whom",
        ),
    ],
)
def test_what_a_log_does_not_say_leaves_the_basic_list(changes, lack):
    found = logged(log(**changes), FOUR)
    assert lack in found.reason
    assert is_basic(found, FOUR)


def test_more_pairs_than_any_job_has_leave_the_basic_list(monkeypatch):
    monkeypatch.setattr("analyzer.skeleton.logged.MOST_PAIRS", 1)
    found = logged(log(), FOUR)
    assert found.reason == "its ranks' endpoints make more than 1 pairs"
    assert is_basic(found, FOUR)


def test_traffic_and_operators_of_one_job_agree_and_of_two_they_do_not():
    job = Parallelism(4, 6)
    made = scatter(generate(job, seed=1), Scatter(missing=0.1), seed=1)
    those = ends(made.work.series)
    told, found = logged(made.log, those), infer(made.work.series)
    assert found.superset
    assert disagreement(found, told, those) is None
    # Two hosts have each other's ranks: what they send is not what their operators do.
    places = dict(made.log.places)
    for rank in range(8):
        places[rank], places[rank + 24] = (
            replace(places[rank], endpoints=places[rank + 24].endpoints),
            replace(places[rank + 24], endpoints=places[rank].endpoints),
        )
    wrong = logged(replace(made.log, places=places), those)
    assert wrong.confident
    differs = disagreement(found, wrong, those)
    assert differs is not None
    assert differs.unsent > 0
    assert differs.untold == 0
    assert f"use {differs.unsent} pairs that the traffic's leave out" in differs.text
    assert " and " in differs.evidence[0]
    assert differs.evidence[-1] == "operators: DP 4 PP 6 TP 8 EP 1; traffic: 6 stages of 4"


def test_an_exact_skeleton_may_have_too_many_pairs_as_well():
    work = generate(Parallelism(4, 4), seed=1)
    made = scatter(work, Scatter(missing=0.0, shuffled=False), seed=1)
    those = ends(made.work.series)
    found, told = infer(made.work.series), logged(made.log, those)
    assert disagreement(found, told, those) is None
    fewer = replace(told, edges=told.edges[2:])
    differs = disagreement(found, fewer, those)
    assert differs is not None
    assert (differs.unsent, differs.untold) == (0, 2)
    name = made.work.series.names
    assert f"{name[told.edges[0, 0]]} - {name[told.edges[0, 1]]}" in differs.evidence[0]


def test_where_either_is_not_sure_nothing_is_said():
    work = generate(Parallelism(4, 4), seed=1)
    made = scatter(work, Scatter(missing=0.0, shuffled=False), seed=1)
    those = ends(made.work.series)
    found, told = infer(made.work.series), logged(made.log, those)
    other = replace(told, edges=told.edges[2:])
    assert disagreement(replace(found, confidence=0.5), other, those) is None
    assert disagreement(found, replace(other, confidence=0.0), those) is None
