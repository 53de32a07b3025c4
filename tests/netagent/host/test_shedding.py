# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.host.shedding import Load, Shed, Shedding

LOADS = st.builds(Load, st.none() | st.floats(0, 2), st.none() | st.floats(0, 1))


@pytest.mark.parametrize(
    ("load", "level"),
    [
        (Load(), Shed.NOTHING),
        (Load(0.64, 0.29), Shed.NOTHING),
        (Load(0.65), Shed.TRACES),
        (Load(None, 0.3), Shed.TRACES),
        (Load(0.75, 0.0), Shed.WALKS),
        (Load(0.1, 0.5), Shed.WALKS),
        (Load(0.85), Shed.RARE),
        (Load(0.0, 1.0), Shed.RARE),
        (Load(1.2, 1.0), Shed.RARE),
    ],
)
def test_the_nearer_to_a_limit_the_more_is_left_undone(load, level):
    shedding = Shedding()
    shedding.observe(load)
    assert shedding.observe(load) is level


def test_a_walk_that_uses_up_the_quota_once_is_no_reason_to_do_less():
    shedding = Shedding()
    assert [shedding.observe(Load(0.1, share)) for share in (1.0, 0.0, 1.0, 0.4)] == [
        Shed.NOTHING, Shed.NOTHING, Shed.NOTHING, Shed.TRACES
    ]  # fmt: skip


def test_what_was_left_undone_is_taken_up_again_step_by_step_and_well_below_the_limit():
    shedding = Shedding()
    shedding.observe(Load(0.9, 0.0))
    seen = [shedding.observe(Load(share, 0.0)) for share in (0.81, 0.8, 0.7, 0.71, 0.61, 0.59, 0.5)]
    assert seen == [
        Shed.RARE, Shed.RARE, Shed.WALKS, Shed.WALKS, Shed.TRACES, Shed.NOTHING, Shed.NOTHING
    ]  # fmt: skip


@given(st.lists(LOADS, max_size=20))
def test_it_never_falls_by_more_than_a_step_and_never_below_what_the_load_asks_for(loads):
    shedding, before = Shedding(), Shed.NOTHING
    for load in loads:
        after = shedding.observe(load)
        assert Shedding().observe(replace(load, throttled=None)) <= after
        assert after >= before - 1
        before = after


@given(LOADS)
def test_a_load_that_stays_far_below_ends_with_nothing_left_undone(load):
    shedding = Shedding()
    shedding.observe(load)
    shedding.observe(load)
    for _ in Shed:
        shedding.observe(Load(0.1, 0.0))
    assert shedding.level is Shed.NOTHING
