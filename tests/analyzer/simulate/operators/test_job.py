# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.simulate.operators.job import Job

JOB = Job(data=6, stages=3, tensor=2, experts=3)


def test_every_rank_is_where_it_says():
    assert [JOB.rank(*JOB.where(rank)) for rank in range(JOB.world)] == list(range(36))


def test_a_place_names_all_that_a_log_may():
    place = JOB.place(JOB.rank(2, 4, 1))
    assert (place.pp, place.dp, place.tp, place.ep, place.host) == (2, 4, 1, 1, "host-4")
    assert Job().place(0).ep == -1


@pytest.mark.parametrize("sizes", [{"data": 4, "experts": 3}, {"chunks": 2, "microbatches": 6}])
def test_sizes_that_do_not_fit_are_refused(sizes):
    with pytest.raises(ValueError, match=r"experts|interleaved"):
        Job(**sizes)
