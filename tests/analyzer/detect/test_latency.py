# SPDX-License-Identifier: Apache-2.0
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.contract import Seen
from analyzer.detect.flows import FlowView
from analyzer.detect.latency import BASELINE_WINDOWS, LatencyBaselines, Slowness
from analyzer.intake.flows import FlowNumbers
from analyzer.intake.windows import WindowState
from netagent.collect.windows import WindowTally
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.probing.session import ProbeMeasured
from netagent.wire.messages import Health

A, B = EndpointId("a", 0), EndpointId("b", 0)
FLOW = FlowId(A, B, 1)
NUMBERS = FlowNumbers()


def window(*rtts_ns):
    tally = WindowTally(large_class=0)
    for seq, rtt_ns in enumerate(rtts_ns):
        tally.add(ProbeMeasured(FLOW, seq, rtt_ns, 0, 0))
    summary = tally.close(
        Window(0, 5), host="h", instance="i", paths=(), findings=(), health=Health()
    )
    return NUMBERS.decode(summary)


def learned(*rtts_ns):
    baselines = LatencyBaselines()
    for _ in range(BASELINE_WINDOWS):
        assert not len(baselines.judge(window(*rtts_ns)))
    return baselines


def test_a_shift_by_factor_and_time_is_slow_and_never_becomes_the_norm():
    baselines = learned(200_000, 210_000)
    for _ in range(50):
        assert baselines.judge(window(5_000_000, 5_100_000)).tolist() == [0]
    shift = baselines.shift_ns(0, math.log(5_050_000), 5_000_000)
    assert shift == pytest.approx((205_000, 5_050_000), rel=0.01)


def test_a_large_factor_of_little_time_is_no_shift():
    baselines = learned(20_000, 20_000)
    assert not len(baselines.judge(window(200_000, 200_000)))


def test_a_long_time_of_small_factor_is_no_shift():
    baselines = learned(5_000_000, 5_000_000)
    assert not len(baselines.judge(window(8_000_000, 8_000_000)))


def test_a_way_that_got_longer_is_seen_in_the_least_round_trip_whatever_the_noise():
    noise = (900_000, 4_000_000, 2_000_000, 9_000_000, 3_000_000)
    baselines = learned(*noise)
    longer = [rtt_ns + 2_000_000 for rtt_ns in noise]
    assert not len(baselines.judge(window(*longer[:4])))  # of too few, luck
    assert baselines.judge(window(*longer)).tolist() == [0]
    told = baselines.shift_ns(0, math.log(2_700_000), min(longer))  # the mean is what it was
    assert told == pytest.approx((1_137_000, 2_900_000), rel=0.01)


def test_one_sample_says_nothing():
    baselines = learned(200_000, 200_000)
    assert not len(baselines.judge(window(50_000_000)))


def test_nothing_is_slow_before_there_is_a_baseline():
    assert not len(LatencyBaselines().judge(window(9_000_000, 9_000_000)))


@given(st.lists(st.integers(150_000, 400_000), min_size=2, max_size=20))
def test_ordinary_jitter_is_never_slow(rtts_ns):
    baselines = learned(200_000, 260_000)
    for _ in range(5):
        assert not len(baselines.judge(window(*rtts_ns)))


@pytest.mark.parametrize(("there", "probed", "over"), [
    ((A, B), (), False), ((A, B), ((B, A),), True), ((A,), (), True),
])  # fmt: skip
def test_slowness_is_over_when_its_pairs_were_probed_and_are_not_slow(there, probed, over):
    nobody = frozenset()
    flows = tuple(FlowView(FlowId(*pair, 1), 5, 0, 0, 0, 0, 0, 0) for pair in probed)
    state = WindowState(Window(0, 5))
    seen = Seen(state, FlowNumbers(), flows, dict.fromkeys(there), nobody, nobody, nobody)
    assert Slowness().over([(A, B)], seen) is over
