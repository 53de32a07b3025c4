# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from netagent.adapters.clock import STEP_NS, StepDetector, now_ns, wall_ns


def test_both_clocks_run():
    assert now_ns() <= now_ns()
    assert wall_ns() > 1_600_000_000_000_000_000


def test_the_first_look_is_no_step():
    assert StepDetector().observe(wall_ns=10**18, now_ns=5) == 0


def test_a_step_is_told_once_with_its_size():
    detector = StepDetector()
    detector.observe(wall_ns=1000, now_ns=0)
    assert detector.observe(wall_ns=2000 - 10**9, now_ns=1000) == -(10**9)
    assert detector.observe(wall_ns=3000 - 10**9, now_ns=2000) == 0
    assert detector.steps == 1


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(-STEP_NS, STEP_NS))))
def test_a_clock_that_is_merely_slewed_never_steps(looks):
    detector, now, offset = StepDetector(), 0, 10**18
    for after_ns, slew_ns in looks:
        now, offset = now + after_ns, offset + slew_ns
        assert detector.observe(wall_ns=now + offset, now_ns=now) == 0
