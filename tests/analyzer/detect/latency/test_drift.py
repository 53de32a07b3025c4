# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest

from analyzer.detect.latency.drift import KEPT_NS, LEAST_COUNT, WIDTH_NS, Drift, drifts
from analyzer.detect.latency.merged import Merged

HALF_MINUTE_NS = 30_000_000_000
NOBODY = np.zeros(0, np.int64)


def columns(mu, sigma, count=1_000, wander=0.0):
    return np.array([[count], [mu], [sigma**2], [60], [mu], [wander**2]], float)


@pytest.mark.parametrize(("mu", "sigma", "anomaly"), [
    (4.882, 0.141, False), (5.062, 0.176, True), (5.198, 0.236, True),
])  # fmt: skip
@pytest.mark.parametrize("count", [LEAST_COUNT, 1_000, 100_000])
def test_the_published_half_hours_are_normal_anomaly_and_anomaly(mu, sigma, anomaly, count):
    """SkeletonHunter, Figure 14: against mu 4.848, sigma 0.139, in ln(us)."""
    ln_us = math.log(1_000)
    reference = columns(ln_us + 4.848, 0.139, count)
    now = columns(ln_us + mu, sigma, count)
    assert drifts(reference, now, np.array([4_000.0])).tolist() == [anomaly]


def test_what_wanders_by_as_much_anyway_has_not_drifted():
    reference, now = columns(12.0, 0.1, wander=0.2), columns(12.2, 0.1)
    assert not drifts(reference, now, np.array([4_000.0]))[0]
    assert drifts(columns(12.0, 0.1), now, np.array([4_000.0]))[0]


def half_minute(mean_ln, count=17, var=0.01):
    """Return half a minute of flow 0."""
    return Merged(
        np.array([0]), np.array([count]), np.array([mean_ln]), np.array([var]), np.array([0]),
        np.zeros((7, 1)),
    )  # fmt: skip


def fill(drift, means, start_ns=0, *, slow=NOBODY):
    for n, mean in enumerate(means):
        at_ns = start_ns + n * HALF_MINUTE_NS
        drift.add(half_minute(mean), slow, np.array([4_000.0]), start_ns=at_ns)
    return start_ns + len(means) * HALF_MINUTE_NS


LN = math.log(100_000)


def test_what_creeps_is_seen_against_what_it_was_once():
    drift, at_ns = Drift(), 0
    creep = [LN + 0.02 * hour for hour in range(8)]
    slow = []
    for mean in creep:
        at_ns = fill(drift, [mean] * 60, at_ns)
        slow.append(drift.slow().tolist())
    assert slow[:3] == [[], [], []]  # two hundredths are normal
    assert slow[-1] == [0]
    before_ns, now_ns = drift.shift_ns(0)
    assert before_ns == pytest.approx(100_000, rel=0.001)
    assert now_ns > 1.05 * before_ns


def test_half_a_minute_as_before_ends_it_at_once():
    drift = Drift()
    at_ns = fill(drift, [LN] * 60 + [LN + 0.3] * 60)
    at_ns = fill(drift, [LN + 0.3], at_ns)
    assert drift.slow().tolist() == [0]
    fill(drift, [LN], at_ns)
    assert drift.slow().tolist() == []


def test_a_slow_half_minute_makes_no_reference():
    drift = Drift()
    at_ns = fill(drift, [LN + 0.3] * 60, slow=np.array([0]))
    at_ns = fill(drift, [LN] * 60, at_ns)
    fill(drift, [LN + 0.3] * 61, at_ns)
    assert drift.slow().tolist() == [0]


def test_the_reference_is_renewed_after_a_day_by_what_fits():
    drift = Drift()
    at_ns = fill(drift, [LN] * 60)
    at_ns = fill(drift, [LN + 0.04] * 60 * (KEPT_NS // WIDTH_NS + 1), at_ns)
    at_ns = fill(drift, [LN + 0.08] * 61, at_ns)
    assert drift.slow().tolist() == []  # against the first day it were


def test_few_round_trips_are_not_judged():
    drift = Drift()
    at_ns = fill(drift, [LN] * 60)
    fill(drift, [LN + 1] * 8, at_ns)
    fill(drift, [LN], at_ns + WIDTH_NS)
    assert drift.slow().tolist() == []


def test_a_number_that_is_another_flow_now_begins_anew():
    drift = Drift()
    at_ns = fill(drift, [LN] * 60 + [LN + 0.3] * 61)
    drift.forget(np.array([0]))
    assert drift.slow().tolist() == []
    fill(drift, [LN + 0.6] * 61, at_ns)
    assert drift.slow().tolist() == []


def test_parts_make_the_moments_of_the_whole():
    rng, drift = np.random.default_rng(1), Drift()
    parts = [rng.normal(LN, 0.2, size) for size in rng.integers(5, 40, size=30)]
    for n, part in enumerate(parts):
        merged = half_minute(part.mean(), len(part), part.var())
        drift.add(merged, NOBODY, np.array([4_000.0]), start_ns=n * HALF_MINUTE_NS)
    every, means = np.concatenate(parts), [part.mean() for part in parts]
    expected = [len(every), every.mean(), every.var(), 30, np.mean(means), np.var(means)]
    assert drift._now[:, 0] == pytest.approx(expected)
