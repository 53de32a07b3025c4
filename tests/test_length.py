# SPDX-License-Identifier: Apache-2.0
import pytest

from tests import length


def test_some_are_spread_and_the_first_is_among_them(monkeypatch):
    monkeypatch.setattr(length, "PROFILE", "ci")
    assert length.some(range(12), 4) == [0, 3, 6, 9]
    assert length.some("abcde", 2) == ["a", "c"]


@pytest.mark.parametrize(("profile", "count"), [("thorough", 2), ("ci", 5), ("ci", 9)])
def test_all_are_tried_where_there_is_time_or_they_are_few(monkeypatch, profile, count):
    monkeypatch.setattr(length, "PROFILE", profile)
    assert length.some("abcde", count) == "abcde"
