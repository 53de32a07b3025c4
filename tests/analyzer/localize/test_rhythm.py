# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.localize.rhythm import EVEN, LEAST_CYCLES, LEAST_WINDOWS, rhythm_of

WIDTH_S = 5
SENT = 200


def flapping(rng, period_s, lasts_s, rate, windows):
    """Return what windows lose of something that is away for some seconds, again and again."""
    seconds = np.arange(windows * WIDTH_S) + rng.integers(0, period_s)
    away = (seconds % period_s < lasts_s).reshape(windows, WIDTH_S).mean(axis=1)
    return rng.binomial(SENT, away * rate).tolist()


@pytest.mark.parametrize("rate", [0.05, 0.3, 1.0])
@pytest.mark.parametrize(
    ("period_s", "lasts_s"), [(23, 8), (30, 10), (37, 12), (45, 20), (60, 30), (90, 20), (120, 60)]
)
def test_what_flaps_is_told_with_its_period(period_s, lasts_s, rate):
    rng = np.random.default_rng(period_s)
    windows = period_s * 8 // WIDTH_S
    found = [
        rhythm_of([SENT] * windows, flapping(rng, period_s, lasts_s, rate, windows))
        for _ in range(50)
    ]
    told = [each for each in found if each is not None]
    assert len(told) >= 35
    for each in told:
        assert each.period * WIDTH_S == pytest.approx(period_s, abs=0.07 * period_s)
        assert lasts_s - 5 <= each.lasts * WIDTH_S <= lasts_s + 10
        assert each.cycles >= LEAST_CYCLES


def white(rng, n):
    return SENT * (rng.random(n) < rng.choice([0.02, 0.1, 0.3, 0.5, 0.7]))


def telegraph(rng, n):
    """Begins and ends at random."""
    begins, ends = 1 / rng.uniform(1, 12, 2)
    state, made = False, []
    for chance in rng.random(n):
        state = chance > ends if state else chance < begins
        made.append(SENT * state)
    return made


def scarce(rng, n):
    return rng.poisson(rng.choice([0.1, 0.3, 1, 3]), n)


def wandering(rng, n):
    walk = np.cumsum(rng.normal(size=n))
    return np.clip(10 * (walk - np.quantile(walk, rng.uniform(0.2, 0.9))), 0, SENT)


def bursts(rng, n):
    made = np.zeros(n)
    for at in rng.integers(0, n, rng.integers(1, 12)):
        made[at : at + rng.integers(1, 15)] = rng.integers(1, 40)
    return made


def renewed(rng, n):
    """Comes at intervals that are far more alike than those of chance."""
    made, at = np.zeros(n), 0.0
    shape, mean = rng.uniform(1, 4), rng.uniform(4, 20)
    while (at := at + max(2, rng.gamma(shape, mean / shape))) < n:
        made[int(at) : int(at) + rng.integers(1, 3)] = 20
    return made


@pytest.mark.parametrize("noise", [white, telegraph, scarce, wandering, bursts, renewed])
@pytest.mark.parametrize("windows", [60, 360])
def test_less_than_one_in_a_hundred_series_of_noise_has_a_period(noise, windows):
    rng = np.random.default_rng(windows)
    series = [np.asarray(noise(rng, windows), int).tolist() for _ in range(400)]
    told = [each for each in series if rhythm_of([SENT] * windows, each) is not None]
    assert len(told) < 4


EVENLY = ([0] * 6 + [50] * 3) * 8


def test_a_fault_that_stopped_or_came_to_stay_comes_and_goes_no_more():
    series = [0] * 30 + EVENLY
    assert rhythm_of([SENT] * len(series), series) is not None
    for then in ([0] * 20, [50] * 20):
        assert rhythm_of([SENT] * (len(series) + 20), series + then) is None


def test_four_times_are_too_few_and_every_other_window_is_a_beat():
    few = EVENLY[: 9 * LEAST_CYCLES]
    assert rhythm_of([SENT] * len(few), few) is None
    assert rhythm_of([SENT] * 60, [0, 50] * 30) is None


def test_stray_losses_are_none():
    series = list(EVENLY)
    series[1] = series[30] = 1
    assert rhythm_of([SENT] * len(series), series).cycles == 7


def test_what_was_before_a_window_without_probes_is_not_looked_at():
    sent = [SENT] * len(EVENLY)
    assert rhythm_of(sent, EVENLY).cycles == 7
    sent[30] = 0
    assert rhythm_of(sent, EVENLY) is None
    assert rhythm_of([], []) is None
    assert rhythm_of([0] * 9, [0] * 9) is None


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=40),
    st.integers(0, 2),
    st.integers(1, 50),
)
def test_what_is_told_fits_the_series(runs, jitter, lost):
    series = [n for gap, lasts in runs for n in [0] * (gap % (jitter + 1) + 5) + [lost] * lasts]
    found = rhythm_of([SENT] * len(series), series)
    if found is None:
        return
    begins = [n for n in range(1, len(series)) if series[n] and not series[n - 1]]
    mine = begins[-found.cycles - 1 :]
    assert found.windows == mine[-1] - mine[0] == pytest.approx(found.period * found.cycles)
    assert found.lossy == sum(map(bool, series[mine[0] : mine[-1]]))
    assert found.lossy == pytest.approx(found.lasts * found.cycles)
    assert 0 < found.lossy < found.windows
    assert found.period >= LEAST_WINDOWS
    assert np.diff(mine).std() <= EVEN * np.diff(mine).mean()
