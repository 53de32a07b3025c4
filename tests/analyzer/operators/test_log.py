# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.operators.log import NEVER, UNKNOWN, Kind, State, log_of


def test_what_a_source_does_not_say_is_unknown() -> None:
    log = log_of({"rank": [0, 3]})
    assert len(log) == 2
    assert log.world == 4
    assert log.kind.tolist() == [Kind.OTHER] * 2
    assert log.state.tolist() == [State.UNKNOWN] * 2
    assert log.sequence.tolist() == [UNKNOWN] * 2
    assert log.ended_ns.tolist() == [NEVER] * 2
    assert log.duration_ns.tolist() == [UNKNOWN] * 2


def test_a_duration_is_known_where_both_ends_are() -> None:
    log = log_of({"rank": [0, 0, 0], "started_ns": [-5, NEVER, 3], "ended_ns": [5, 7, NEVER]})
    assert log.duration_ns.tolist() == [10, UNKNOWN, UNKNOWN]


def test_rows_are_taken_by_mask_and_by_place() -> None:
    log = log_of({"rank": [0, 1, 2], "step": [5, 6, 7]}, ops=("a",), source="import")
    assert log.take(log.rank > 0).step.tolist() == [6, 7]
    assert log.take(np.array([2, 0])).rank.tolist() == [2, 0]
    assert log.take(log.rank > 9).source == "import"


def test_a_column_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no such column: colour"):
        log_of({"rank": [0], "colour": [1]})


def test_columns_are_of_one_length() -> None:
    with pytest.raises(ValueError, match="unequal length"):
        log_of({"rank": [0, 1], "step": [1]})
