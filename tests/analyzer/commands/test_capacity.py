# SPDX-License-Identifier: Apache-2.0
"""What the command says of an analyzer's room."""

from analyzer.commands import capacity
from tests.analyzer.test_cli import CAPACITY, fits


def test_capacity_names_what_is_scarce_or_what_is_missing():
    text = fits(capacity.report(CAPACITY))
    assert text.startswith("256 RNICs; it could take 2304, by memory (measured over 290 s)\n")
    assert "memory    1024 MiB     9216 MiB     2304" in text
    assert "judging   0.070 cores  0.700 cores  2560" in text
    assert "12.0 kB/s stored; history reaches back 2.0 h" in text
    nothing = {**CAPACITY, "takes": None, "missing": "measured for 5 s of 60 s so far"}
    assert fits(capacity.report(nothing)) == (
        "cannot tell for 256 RNICs: measured for 5 s of 60 s so far"
    )
