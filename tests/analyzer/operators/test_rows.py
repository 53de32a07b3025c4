# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np

from analyzer.operators.aggregate import IDLE, aggregate
from analyzer.operators.log import Kind, log_of
from analyzer.simulate.operators.job import Job
from tests.analyzer.detect.operators.jobs import logged
from tests.analyzer.operators.test_aggregate import STEPS, _log, _sum


def test_a_send_that_others_work_goes_on_beside_is_no_wait():
    rows = [(0, Kind.SEND, 1, 0, 30, -1, 1), (0, Kind.COLLECTIVE, 3, 10, 20, -1, -1)]
    assert _sum(_log(rows)).own_us[0, 0].tolist() == [10.0]
    rows = [(0, Kind.SEND, 1, 0, 10, -1, 1), (0, Kind.COLLECTIVE, 3, 12, 20, -1, -1)]
    assert _sum(_log(rows)).own_us[0, 0].tolist() == [2.0]


def test_rows_need_not_be_in_order():
    log = logged(Job(data=2, stages=2, steps=5))
    shuffled = log.take(np.random.default_rng(1).permutation(len(log)))
    for name in ("own_us", "length_us"):
        one, other = (
            getattr(aggregate(each, each.step, np.unique(each.step)), name)
            for each in (log, shuffled)
        )
        assert np.allclose(one, other)


def test_what_has_never_ended_is_left_out():
    log = log_of({"rank": [0, 0], "step": [0, 0], "started_ns": [0, 5]})
    assert np.isnan(aggregate(log, log.step, STEPS).length_us).all()


def test_numbers_of_steps_may_be_far_apart():
    log = logged(Job(data=2, stages=1, steps=5))
    far = np.where(log.step == log.step.max(), 2_000_000_000, log.step).astype(np.int32)
    made = aggregate(replace(log, step=far), far, np.unique(far))
    assert np.allclose(made.own_us, aggregate(log, log.step, np.unique(log.step)).own_us, atol=0.01)


def _gap(steps, ends, starts):
    """Return what one rank did by itself, by step, between operations that begin and end then."""
    log = log_of({
        "rank": [0] * len(steps), "step": steps, "kind": [Kind.COLLECTIVE] * len(steps),
        "started_ns": [1000 * each for each in starts], "ended_ns": [1000 * each for each in ends],
    }, ops=("all_reduce",))  # fmt: skip
    made = aggregate(log, log.step, np.unique(log.step).astype(np.int64))
    assert made.labels == (IDLE,)
    return made.own_us[:, 0, 0].tolist(), made.length_us[:, 0].tolist()


def test_what_is_between_two_steps_is_a_ranks_own_however_long_it_is():
    assert _gap([0, 1, 2], ends=[10, 110, 130], starts=[0, 100, 125]) == (
        [0, 90, 15], [10, 100, 20]
    )  # fmt: skip


def test_what_may_hold_steps_that_were_left_out_counts_only_where_it_is_short():
    own, length = _gap([0, 3, 6], ends=[10, 110, 130], starts=[0, 100, 125])
    assert (own, length) == ([0, 0, 0], [10, 10, 5])
    assert _gap([0, 3], ends=[10, 40], starts=[0, 15])[0] == [0, 5]


def test_between_times_that_begin_anew_is_nothing():
    assert _gap([0, 1], ends=[100, 100], starts=[0, 20]) == ([0, 0], [100, 80])
