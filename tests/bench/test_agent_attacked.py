# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.bench.agent_attacked import tenths


@pytest.mark.parametrize(
    ("values", "by_tenth"),
    [
        (range(1, 21), [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]),
        (range(1, 24), [3, 5, 7, 10, 12, 14, 17, 19, 21, 23]),
        (range(1, 4), [1, 1, 1, 2, 2, 2, 3, 3, 3, 3]),
    ],
)
def test_each_tenth_ends_with_its_last_window(values: range, by_tenth: list[int]) -> None:
    assert tenths(values) == by_tenth
