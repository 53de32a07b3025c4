# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest

from analyzer.simulate.scattered import Scatter, scatter
from analyzer.simulate.workload import Disturbance, Template, generate
from analyzer.skeleton.fidelity import fingerprint, misfit
from analyzer.skeleton.infer import infer
from analyzer.skeleton.series import TrafficSeries
from netagent.model.task import Parallelism

JOB = Parallelism(4, 4)
HISTORY = 1200
LONG = generate(JOB, seed=3, ticks=4000, disturbance=Disturbance(noise=0.1, checkpoints=(30,)))
RATE = LONG.series.rate


def told(rate):
    return replace(LONG.series, rate=rate)


PAST = told(RATE[:, :HISTORY])
PRINT = fingerprint(PAST, infer(PAST))


def misfits(rate):
    ends = range(PRINT.ticks, rate.shape[1] + 1, PRINT.ticks // 2)
    return [misfit(rate[:, end - PRINT.ticks : end], PRINT) for end in ends]


def test_the_same_job_goes_on_fitting():
    before_the_checkpoint = RATE[:, HISTORY : 25 * 80]
    assert set(misfits(before_the_checkpoint)) == {""}


@pytest.mark.parametrize(
    ("job", "template"),
    [
        (Parallelism(16, 1), Template()),
        (Parallelism(2, 8), Template()),
        (Parallelism(1, 16), Template()),
        (JOB, Template(period_s=50, plateau_s=28)),
        (JOB, Template(period_s=120)),
        (JOB, Template(plateau_bps=2e8, burst_bps=1e9)),
    ],
)
def test_another_job_on_the_same_hosts_does_not_fit(job, template):
    other = generate(job, seed=9, template=template, disturbance=Disturbance(noise=0.1))
    assert all(misfits(other.series.rate))


def test_a_pause_is_told_as_one():
    rate = RATE[:, HISTORY : HISTORY + PRINT.ticks].copy()
    rate[:, -125:] *= 0.001
    assert "next to nothing" in misfit(rate, PRINT)


def test_an_evaluation_without_gradient_exchange_is_another_phase():
    forward_only = Template(period_s=8, plateau_s=7, burst_bps=2e8, burst_s=0.5)
    other = generate(JOB, seed=9, template=forward_only, disturbance=Disturbance(noise=0.1))
    assert all(misfits(other.series.rate))


def test_endpoints_that_swap_places_leave_their_groups():
    rng = np.random.default_rng(1)
    rate = RATE[rng.permutation(len(RATE)), HISTORY : HISTORY + PRINT.ticks]
    assert "their group" in misfit(rate, PRINT)


def test_missing_series_are_named():
    rate = RATE[:, HISTORY : HISTORY + PRINT.ticks].copy()
    rate[:8] = np.nan
    assert misfit(rate, PRINT) == "the series of 8 endpoints are missing"


def test_a_few_missing_ticks_do_no_harm():
    rng = np.random.default_rng(1)
    rate = RATE[:, HISTORY : 25 * 80].copy()
    rate[rng.random(rate.shape) < 0.05] = np.nan
    assert set(misfits(rate)) == {""}


def test_one_replica_alone_is_checked_by_its_rhythm():
    alone = generate(Parallelism(1, 8), seed=4, ticks=2400)
    past = replace(alone.series, rate=alone.series.rate[:, :HISTORY])
    found = fingerprint(past, infer(past))
    later = alone.series.rate[:, HISTORY : HISTORY + found.ticks]
    assert misfit(later, found) == ""
    rng = np.random.default_rng(1)
    shuffled = later[:, rng.permutation(later.shape[1])]
    assert misfit(shuffled, found) == "its iterations no longer repeat as they did"


def test_rates_are_relative():
    scaled = TrafficSeries(PAST.rate * 1e-3, 1.0, PAST.host, PAST.rail)
    small = fingerprint(scaled, infer(scaled))
    assert misfit(RATE[:, HISTORY : HISTORY + small.ticks] * 1e-3, small) == ""


@pytest.mark.parametrize("how", [Scatter(missing=0.1), Scatter(missing=0.1, paired=0.4)])
def test_a_superset_is_held_against_traffic_too(how):
    long = generate(Parallelism(4, 6), seed=3, ticks=2400, disturbance=Disturbance(straggler_s=2))
    other = generate(Parallelism(8, 3), seed=9, ticks=2400, disturbance=Disturbance(noise=0.1))
    series, foreign = (scatter(each, how, seed=5).work.series for each in (long, other))
    past = replace(series, rate=series.rate[:, :HISTORY])
    skeleton = infer(past)
    assert skeleton.superset
    mine = fingerprint(past, skeleton)
    ends = range(HISTORY + mine.ticks, 2401, mine.ticks // 2)
    for rate, fits in ((series.rate, True), (foreign.rate, False)):
        assert {not misfit(rate[:, end - mine.ticks : end], mine) for end in ends} == {fits}
