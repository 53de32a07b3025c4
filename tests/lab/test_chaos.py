# SPDX-License-Identifier: Apache-2.0
from collections import Counter

from tests.lab.chaos import DISK, Report


def test_how_many_summaries_were_there_is_told_beside_those_that_may_be_gone() -> None:
    report = Report(Counter({"agent": 6, DISK: 1}), windows=2052, freed=1916)
    lines = report.lines()
    assert lines[0] == "kills: 6; times at which the disk was full: 1"
    assert any("deleted to make room: 1916, there: 136, lost: 0" in line for line in lines)


def test_who_names_nobody_in_the_end_has_shown_nothing() -> None:
    kills = Counter({"agent": 6})
    held = Report(kills, windows=2052)
    assert not held.good
    assert "a link that was cut in the end was NOT named" in held.lines()
    held = Report(kills, windows=2052, named_s=4.2)
    assert held.good
    assert "a link that was cut in the end was named after 4 s" in held.lines()


def test_the_median_of_two_is_neither() -> None:
    report = Report(Counter({"analyzer": 2}), {"analyzer": [134.0, 126.0]})
    assert any("after 130 s (median), 134 s (longest)" in line for line in report.lines())
