# SPDX-License-Identifier: Apache-2.0
"""What samples of an analyzer say of the RNICs that it could take."""

import dataclasses
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.server.capacity import LEAST_S, Meter, Sample, capacity

GIB = 1 << 30
BEGAN = Sample(
    at_s=0.0, rnics=256, judge=7, receive_cpu_s=10.0, judge_cpu_s=3.0, memory_bytes=GIB,
    free_bytes=100 * GIB, files=100, stored_bytes=0,
)  # fmt: skip
AFTER = dataclasses.replace(
    BEGAN, at_s=100.0, receive_cpu_s=17.0, judge_cpu_s=4.0, stored_bytes=1_000_000
)


def told(*samples, files=20_000, cores=8):
    return capacity(samples, files=files, cores=cores)


def test_the_scarcest_resource_says_how_many_it_takes():
    found = told(BEGAN, AFTER)
    scarcest, *others = found.resources
    assert scarcest.name == "receiving"
    assert scarcest.takes == pytest.approx(2_560, abs=1)  # 7 % of a core, of 70 %
    assert all(each.takes >= scarcest.takes for each in others)
    assert {each.name for each in others} == {"judging", "cores", "memory", "files"}
    assert found.bytes_per_s == 10_000


@pytest.mark.parametrize(
    ("samples", "missing"),
    [
        ((), "measured for 0 s"),
        ((AFTER,), "measured for 0 s"),
        ((BEGAN, dataclasses.replace(AFTER, at_s=LEAST_S - 1)), "measured for 59 s"),
        ((BEGAN, dataclasses.replace(AFTER, judge=None)), "measured for 0 s"),
        ((dataclasses.replace(BEGAN, rnics=0), AFTER), "no RNIC"),
    ],
)
def test_too_little_is_said_as_that(samples, missing):
    found = told(*samples)
    assert not found.resources
    assert found.missing.startswith(missing)


def test_a_judge_is_not_charged_with_what_another_one_used():
    new = dataclasses.replace(BEGAN, at_s=200.0, judge=8, judge_cpu_s=0.0)
    later = dataclasses.replace(AFTER, at_s=300.0, judge=8, judge_cpu_s=7.0, receive_cpu_s=12.0)
    found = {each.name: each.used for each in told(BEGAN, AFTER, new, later).resources}
    assert found["judging"] == pytest.approx(0.07)


@given(factor=st.integers(2, 50))
def test_twice_the_load_leaves_the_same_room(factor):
    small = told(BEGAN, AFTER, cores=1000)
    grown = dataclasses.replace(
        AFTER, rnics=256 * factor, receive_cpu_s=10.0 + 7.0 * factor, judge_cpu_s=3.0 + factor
    )
    large = told(dataclasses.replace(BEGAN, rnics=256 * factor), grown, cores=1000)
    takes = [{e.name: e.takes for e in found.resources} for found in (small, large)]
    assert takes[0]["receiving"] == pytest.approx(takes[1]["receiving"], rel=0.01)
    assert takes[0]["judging"] == pytest.approx(takes[1]["judging"], rel=0.01)


def test_history_is_as_long_as_the_bytes_last():
    found = told(BEGAN, AFTER)
    assert found.history_s(most_bytes=100_000, most_s=3600) == 10
    assert found.history_s(most_bytes=1 << 40, most_s=3600) == 3600
    assert told().history_s(most_bytes=1, most_s=60) == 60


def test_a_meter_reads_what_this_process_uses():
    meter = Meter(lambda: (8, os.getpid(), 5))
    first, second = meter.sample(), meter.sample()
    assert (first.rnics, first.stored_bytes) == (8, 5)
    assert first.memory_bytes > 10 << 20
    assert first.free_bytes > 0
    assert first.files > 2
    assert second.judge_cpu_s >= first.judge_cpu_s > 0


def test_a_judge_that_is_gone_is_nobody():
    gone = int(Path("/proc/sys/kernel/pid_max").read_text("ascii")) + 1
    assert Meter(lambda: (8, gone, 5)).sample().judge_cpu_s == 0
