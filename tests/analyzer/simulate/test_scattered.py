# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.operators.log import GroupKind
from analyzer.simulate.scattered import Scatter, scatter
from analyzer.simulate.workload import Template, generate
from analyzer.skeleton.series import basic_edges
from netagent.model.errors import LocalProtocolError
from netagent.model.task import Parallelism

JOB = Parallelism(4, 4)
WORK = generate(JOB, seed=1, ticks=50)


def named(series, edges):
    return {tuple(sorted((series.names[a], series.names[b]))) for a, b in edges.tolist()}


@pytest.mark.parametrize(
    ("job", "chunks"),
    [(JOB, 1), (JOB, 2), (Parallelism(4, 2, 4), 1), (Parallelism(2, 4, 8, 2), 2)],
)
def test_a_job_that_is_left_as_it_is_has_the_truth_it_had(job, chunks):
    work = generate(job, seed=1, ticks=50, template=Template(chunks=chunks))
    made = scatter(work, Scatter(missing=0.0, shuffled=False), seed=1).work
    assert np.array_equal(made.series.rate, work.series.rate)
    assert made.series.ordered
    assert np.array_equal(made.series.host, work.series.host)
    assert np.array_equal(made.truth.edges, work.truth.edges)


def test_hosts_and_rows_in_another_order_talk_as_before():
    plain = scatter(WORK, Scatter(missing=0.0, shuffled=False), seed=1).work
    mixed = scatter(WORK, Scatter(missing=0.0), seed=2).work
    assert not mixed.series.ordered
    assert mixed.series.host.tolist() != plain.series.host.tolist()
    assert len(mixed.truth.edges) == len(plain.truth.edges)
    sent = {row.tobytes() for row in plain.series.rate}
    assert {row.tobytes() for row in mixed.series.rate} == sent


def test_a_tenth_of_the_rnics_is_missing_and_so_are_their_pairs():
    whole, part = (scatter(WORK, Scatter(missing=m), seed=3).work for m in (0.0, 0.1))
    assert 0.8 < len(part.series) / len(whole.series) < 0.97
    assert len(part.truth.edges) < len(whole.truth.edges)
    assert named(part.series, part.truth.edges) <= named(
        part.series, basic_edges(part.series.host, part.series.rail)
    )


def test_two_ranks_that_share_an_rnic_send_what_both_do():
    made = scatter(WORK, Scatter(missing=0.0, shared=1.0, shuffled=False), seed=1).work
    assert len(made.series) == len(WORK.series) // 2
    assert set(made.series.rail.tolist()) == {0, 1, 2, 3}
    assert made.series.rate[0] == pytest.approx(WORK.series.rate[:2].sum(axis=0))
    with pytest.raises(LocalProtocolError, match="share an RNIC"):
        scatter(generate(Parallelism(8, 2, 1), seed=1, ticks=9), Scatter(shared=0.5), seed=1)


def test_two_containers_of_a_host_have_a_function_on_each_rail_and_no_network_between_them():
    made = scatter(WORK, Scatter(missing=0.0, paired=1.0), seed=1).work.series
    assert len(np.unique(made.host)) == 8
    assert made.shared(made.host)
    assert len(np.unique(made.machine)) == 16
    basic = basic_edges(made.host, made.rail)
    assert not (made.host[basic[:, 0]] == made.host[basic[:, 1]]).any()


def test_the_log_says_where_ranks_are_and_whom_they_send_to():
    work = generate(Parallelism(2, 4, 8, 2), seed=1, ticks=50, template=Template(chunks=2))
    made = scatter(work, Scatter(missing=0.1, shared=0.4), seed=1)
    sizes = {group.kind: len(group.members) for group in made.log.groups}
    assert sizes == {
        GroupKind.DATA: 2, GroupKind.PIPELINE: 4, GroupKind.EXPERT: 2, GroupKind.TENSOR: 8,
    }  # fmt: skip
    assert made.log.world == 128
    place = made.log.places[8 * 2 * 3 + 8 + 5]
    assert (place.dp, place.pp, place.tp, place.ep) == (0, 3, 5, 1)
    told = {name for each in made.log.places.values() for name in each.endpoints}
    assert told == set(made.work.series.names)
    sent = set(zip(made.log.rank.tolist(), made.log.peer.tolist(), strict=True))
    assert {(0, 16), (48, 0)} <= sent  # the next stage, and from the last one to the first


def test_a_job_of_which_nothing_is_left_is_refused():
    with pytest.raises(LocalProtocolError, match="no RNIC is left"):
        scatter(WORK, Scatter(missing=1.0), seed=1)
