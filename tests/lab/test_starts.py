# SPDX-License-Identifier: Apache-2.0
"""What counts as right after a start."""

import pytest

from tests.lab.starts import Start, lines


def start(delay_s: float = 0, named_s: float | None = 9.5, *others: str) -> Start:
    return Start("spine-down", None, delay_s, "switch spine-0", named_s, others)


@pytest.mark.parametrize(
    ("made", "right"),
    [
        (start(), True),
        (start(0, None), False),
        (start(0, 9.5, "switch spine-1"), False),
        (start(0, None, "switch spine-1"), False),
    ],
)
def test_only_the_truth_alone_is_right(made: Start, *, right: bool) -> None:
    assert made.right is right


def test_each_delay_has_its_own_line() -> None:
    assert lines([start(0), start(20), start(0, None)]) == [
        "  0 s after up: 1 of 2 right",
        " 20 s after up: 1 of 1 right",
    ]
