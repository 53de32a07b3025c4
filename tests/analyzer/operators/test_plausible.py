# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.operators import plausible
from analyzer.operators.log import UNKNOWN, Group, Kind, log_of
from analyzer.operators.plausible import FARTHEST_NS, LONGEST_NS, are_plausible, of_members

NOW = 1_795_793_135_520_946_329
TIMES = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(NOW - 10**12, NOW + 10**12))


@pytest.mark.parametrize(
    ("begun", "ended", "right"),
    [
        (NOW, NOW, True), (NOW, NOW + LONGEST_NS // 2, True), (NOW, NOW - 1, False),
        (NOW, NOW + 2 * LONGEST_NS, False), (NOW - 2 * FARTHEST_NS, NOW - 2 * FARTHEST_NS, False),
        (NOW, 2**63 - 1, False), (-(2**63), 2**63 - 1, False),
    ],
)  # fmt: skip
def test_an_operator_ends_after_it_begins_and_within_an_hour(begun, ended, right):
    usual = [NOW + n for n in range(5)]
    found = are_plausible(np.array([*usual, begun]), np.array([*usual, ended]), np.ones(6, bool))
    assert found.tolist() == [True] * 5 + [right]


def test_of_what_has_not_ended_the_end_is_not_looked_at():
    assert are_plausible(np.array([NOW]), np.array([0]), np.zeros(1, bool)).all()


@given(st.lists(st.tuples(TIMES, TIMES), max_size=20))
def test_what_is_kept_has_room_in_milliseconds(times):
    begun, ended = (np.array([each[n] for each in times], np.int64) for n in (0, 1))
    kept = are_plausible(begun, ended, np.ones(len(times), bool))
    took = [int(b) - int(a) for a, b in zip(begun[kept], ended[kept], strict=True)]
    assert all(0 <= each <= 1.01 * LONGEST_NS for each in took)


def _log(ranks, group, groups):
    return log_of(
        {"rank": ranks, "group": group, "kind": [Kind.COLLECTIVE] * len(ranks)},
        ops=("all_reduce",), groups=groups,
    )  # fmt: skip


@pytest.mark.parametrize("cells", [1 << 26, 0])
def test_who_is_not_listed_does_not_take_part(cells, monkeypatch):
    monkeypatch.setattr(plausible, "_MOST_CELLS", cells)
    groups = (Group("a", members=(0, 1)), Group("b", members=(4, 500)), Group("c"))
    log = of_members(_log([0, 1, 2, 0, 4, 2], [0, 0, 0, 1, 1, 2], groups))
    assert log.group.tolist() == [0, 0, UNKNOWN, UNKNOWN, 1, 2]
    assert log.notes == ("2 operators are in groups that do not list their ranks (0, 2)",)


def test_a_log_of_members_alone_is_as_it_was():
    log = _log([0, 1], [0, 0], (Group("a", members=(0, 1)),))
    assert of_members(log) is log
    assert of_members(empty := _log([], [], ())) is empty
