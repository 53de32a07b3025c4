# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.latency import drift as drift_module
from analyzer.detect.latency import spread as spread_module
from analyzer.detect.latency.drift import Drift
from analyzer.detect.latency.floors import FACTOR, SHIFT_NS
from analyzer.detect.latency.merged import P50, merge
from analyzer.detect.latency.spread import LEAST_BACK, LEAST_COUNT, LOOK_BACK, Spread
from analyzer.intake.flows import FlowNumbers
from tests.analyzer.detect.latency.trips import flow, window

RNG = np.random.default_rng(7)


class Judged:
    """Half minutes of one flow, judged in turn."""

    def __init__(self):
        self.numbers, self.spread = FlowNumbers(), Spread()

    def judge(self, rtts_ns):
        merged = merge([window(self.numbers, {flow(): rtts_ns})])
        count = len(merged.flow)
        odd, again = self.spread.judge(merged, np.full(count, FACTOR), np.full(count, SHIFT_NS))
        return len(odd), len(again)


def usual(us=15, count=17, sigma=0.06, rng=RNG):
    return 1_000 * us * rng.lognormal(0, sigma, count)


def known(windows=LOOK_BACK, **how):
    judged = Judged()
    for _ in range(windows):
        assert judged.judge(usual(**how)) == (0, 0)
    return judged


def test_a_distribution_that_moved_fits_none_of_the_last_ones():
    judged = known()
    assert judged.judge(usual(25)) == (1, 0)
    assert judged.judge(usual(25)) == (1, 1)
    assert judged.judge(usual(15)) == (0, 0)
    assert judged.judge(usual(25)) == (1, 0)


def test_it_never_becomes_what_is_usual():
    judged = known()
    for _ in range(4 * LOOK_BACK):
        assert judged.judge(usual(25))[0] == 1
    assert judged.spread.before_ns(0)[P50] == pytest.approx(15_000, rel=0.05)


def test_a_quarter_that_is_late_is_seen_though_the_middle_is_as_ever():
    judged = known()
    late = usual()
    late[:5] += 60_000
    assert judged.judge(late) == (1, 0)


@pytest.mark.parametrize("us", [100, 400, 20_000])
def test_one_late_round_trip_is_nothing(us):
    judged = known()
    late = usual()
    late[0] = 1_000 * us
    assert judged.judge(late) == (0, 0)


def test_what_comes_every_other_half_minute_is_usual():
    judged = Judged()
    found = [judged.judge(usual(15 if n % 2 else 22))[0] for n in range(4 * LOOK_BACK)]
    assert sum(found[LOOK_BACK:]) == 0


@pytest.mark.parametrize("back", [0, 1, LEAST_BACK - 1])
def test_there_is_no_verdict_on_what_is_hardly_known(back):
    assert known(back).judge(usual(250)) == (0, 0)
    assert known(LEAST_BACK).judge(usual(250)) == (1, 0)


def test_few_round_trips_are_not_judged():
    judged = known()
    assert judged.judge(usual(25, count=LEAST_COUNT - 1)) == (0, 0)
    assert judged.judge(usual(25, count=LEAST_COUNT)) == (1, 0)


def test_a_number_that_is_another_flow_now_begins_anew():
    judged = known()
    judged.spread.forget(np.array([0]))
    assert judged.judge(usual(250)) == (0, 0)


@given(st.integers(0, 10_000), st.floats(0.01, 1.0))
def test_health_is_seldom_odd_and_never_twice(seed, sigma):
    rng, judged = np.random.default_rng(seed), Judged()
    found = [judged.judge(usual(sigma=sigma, rng=rng)) for _ in range(30)]
    assert sum(odd for odd, _ in found) <= 6


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_it_is_the_same_however_many_flows_are_judged_at_once(seed, together):
    said = []
    for most in (together, spread_module.AT_ONCE):
        rng, numbers, spread, drift = np.random.default_rng(seed), FlowNumbers(), Spread(), Drift()
        with pytest.MonkeyPatch.context() as patch:
            for module in (spread_module, drift_module):
                patch.setattr(module, "AT_ONCE", most)
            for half in range(LEAST_BACK + 2):
                slow = 25 if half >= LEAST_BACK else 15
                trips = {
                    flow(port): usual(slow if port % 2 else 15, rng=rng)
                    for port in rng.permutation(6).tolist()
                }
                merged = merge([window(numbers, trips)])
                floors = np.full(6, FACTOR), np.full(6, float(SHIFT_NS))
                said.append([each.tolist() for each in spread.judge(merged, *floors)])
                drift.add(merged, np.zeros(0, np.int64), floors[1], start_ns=0)
        said.append(spread.columns(np.arange(6)) | drift.columns(np.arange(6)))
    half = len(said) // 2
    assert said[: half - 1] == said[half:-1]
    odd, again = said[half - 2]
    assert (len(odd), again) == (3, odd)
    for name, of in said[half - 1].items():
        assert np.array_equal(of, said[-1][name])
