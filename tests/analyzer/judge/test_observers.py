# SPDX-License-Identifier: Apache-2.0
from analyzer.judge.observers import Both


class Seen:
    def __init__(self, *, wants=False):
        self.told, self._wants = [], wants

    def wants(self, start_ns):
        return self._wants

    def saw(self, *window):
        self.told.append(window)

    def expire(self, before_ns):
        self.told.append(before_ns)


def test_both_see_what_either_is_shown_and_the_first_one_says_what_it_wants():
    first, other = Seen(wants=True), Seen()
    both = Both(first, other)
    both.saw("table", "endpoints", "topology")
    both.expire(7)
    assert first.told == other.told == [("table", "endpoints", "topology"), 7]
    assert both.wants(1)
    assert not Both(other, first).wants(1)
