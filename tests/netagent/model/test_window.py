# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.window import Window


@given(st.integers(0, 2**63), st.integers(1, 10**11))
def test_the_window_that_covers_an_instant_holds_it_and_is_aligned(at_ns, width_ns):
    window = Window.covering(at_ns, width_ns=width_ns)
    assert window.start_ns <= at_ns < window.end_ns
    assert window.start_ns % width_ns == 0


@given(st.integers(0, 2**63), st.integers(1, 10**11))
def test_the_instant_a_window_ends_is_in_the_next(at_ns, width_ns):
    window = Window.covering(at_ns, width_ns=width_ns)
    after = Window.covering(window.end_ns, width_ns=width_ns)
    assert (after.start_ns, after.width_ns) == (window.end_ns, width_ns)
