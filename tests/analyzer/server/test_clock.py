# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.server.clock import ALONE_NS, HOLD_NS, RECENT_NS, Steady

S = 10**9
START_S = 1_000_000
HOSTS = 4


class Machine:
    """An analyzer's clocks, and hosts that deliver every five seconds; time is in seconds."""

    def __init__(self, wrong_s=0.0):
        self.real_s, self.wrong_s, self.hosts_s = 0.0, wrong_s, 0.0
        self.hosts = HOSTS
        self.steady = Steady(self.wall, lambda: round(self.real_s * S))
        self.set_s = []

    def wall(self):
        return round((START_S + self.real_s + self.wrong_s) * S)

    @property
    def error_s(self):
        """Return by how much the analyzer's clock is ahead of the real time."""
        return self.steady() / S - START_S - self.real_s

    def live(self, seconds, late_s=0.5):
        for _ in range(seconds):
            self.real_s += 1
            if self.real_s % 5 == 1:
                end_s = START_S + self.real_s - late_s + self.hosts_s
                for n in range(self.hosts):
                    self.steady.heard(f"h{n}", round(end_s * S))
            self.set_s.append(self.steady.look() / S)
        return self.error_s


def test_a_wall_clock_that_is_corrected_slowly_is_followed():
    machine = Machine()
    for _ in range(20):
        machine.wrong_s += 0.4
        machine.live(1)
    assert machine.error_s == pytest.approx(8)
    assert machine.steady.off_ns == 0


@given(st.lists(st.integers(-600, 600).filter(lambda by_s: abs(by_s) != 1), max_size=4))
def test_where_the_hosts_do_not_go_along_it_goes_on_as_before_however_the_wall_is_set(steps):
    machine = Machine()
    machine.live(10)
    for by_s in steps:
        machine.wrong_s = by_s
        assert machine.live(40) == 0
        assert machine.steady.off_ns == by_s * S
    assert not any(machine.set_s)


@pytest.mark.parametrize("wrong_s", [-300, 300])
def test_a_clock_that_was_wrong_and_is_corrected_is_followed_since_hosts_go_by_it(wrong_s):
    machine = Machine(wrong_s)
    assert machine.live(60) == wrong_s
    machine.wrong_s = 0
    assert machine.live(HOLD_NS // S - 1) == wrong_s
    assert machine.live(5) == 0
    assert [each for each in machine.set_s if each] == [-wrong_s]


def test_where_all_clocks_are_set_it_goes_along():
    machine = Machine()
    machine.live(30)
    machine.wrong_s = machine.hosts_s = -120
    assert machine.live(30) == -120


@pytest.mark.parametrize("wrong_s", [-300, 300])
def test_without_any_host_the_wall_is_followed_in_the_end(wrong_s):
    machine = Machine()
    machine.hosts = 0
    machine.live(3)
    machine.wrong_s = wrong_s
    assert machine.live(ALONE_NS // S - 1) == 0
    assert machine.live(5) == wrong_s


def test_hosts_that_were_heard_long_ago_have_no_say():
    machine = Machine()
    machine.live(20)
    machine.hosts, machine.wrong_s = 0, 300
    assert machine.live((ALONE_NS + RECENT_NS) // S + 2) == 300


def test_hosts_that_deliver_what_is_old_do_not_make_it_follow_a_wall_that_is_as_late():
    """A minute of windows, refused before, is delivered oldest first within some seconds."""
    machine = Machine()
    machine.live(20)
    machine.wrong_s = -60
    for late_s in (62, 50, 35, 20, 5):
        machine.live(2, late_s=late_s)
    assert abs(machine.live(60)) < 1
    assert not any(machine.set_s)


def test_a_minority_of_hosts_decides_nothing():
    machine = Machine()
    machine.live(10)
    machine.wrong_s = 300
    for _ in range(12):
        machine.live(5)
        machine.steady.heard("h0", round((START_S + machine.real_s + 300) * S))
    assert machine.error_s == 0
