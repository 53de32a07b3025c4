# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.bench.agent_churn import EVERY, of_second_half


def slope(memory_mb: list[float]) -> list[float]:
    row = of_second_half([(EVERY * n, mb) for n, mb in enumerate(memory_mb, start=1)])
    rates = row["mb_per_1000_starts"]
    assert isinstance(rates, list)
    return rates


def test_what_levels_off_has_no_slope_in_the_second_half() -> None:
    assert slope([38.0 + min(n, 9) for n in range(20)]) == [0, 0, 0]


def test_what_goes_on_has() -> None:
    least, middle, most = slope([38.0 + 0.1 * n for n in range(20)])
    assert least == middle == most == pytest.approx(1000 / EVERY * 0.1)


def test_too_few_rows_have_none() -> None:
    assert slope([38.0]) == []
