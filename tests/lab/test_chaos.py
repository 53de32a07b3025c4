# SPDX-License-Identifier: Apache-2.0
from collections import Counter

from tests.lab.chaos import DISK, Report


def test_how_many_summaries_were_there_is_told_beside_those_that_may_be_gone() -> None:
    report = Report(Counter({"agent": 6, DISK: 1}), windows=2052, freed=1916)
    lines = report.lines()
    assert lines[0] == "kills: 6; times at which the disk was full: 1"
    assert any("deleted to make room: 1916, there: 136, lost: 0" in line for line in lines)
