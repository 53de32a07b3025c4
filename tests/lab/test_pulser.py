# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.lab.pulser import pulse


def test_what_is_bad_ends_whatever_happens() -> None:
    done: list[str] = []

    def fail() -> None:
        raise KeyboardInterrupt

    acts = [(lambda: done.append("begin"), lambda: done.append("end")), (fail, lambda: None)]
    with pytest.raises(KeyboardInterrupt):
        pulse(acts, period_s=1, duty=0.5, limit_s=10)
    assert done == ["begin", "end"]


def test_it_pulses_until_its_limit() -> None:
    done: list[str] = []
    acts = [(lambda: done.append("begin"), lambda: done.append("end"))]
    pulse(acts, period_s=0.01, duty=0.25, limit_s=0.05)
    assert done[:4] == ["begin", "end"] * 2
    assert done[-1] == "end"
