# SPDX-License-Identifier: Apache-2.0
"""One receiver's letters, against receivers and clocks of every kind."""

import math
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.webhooks.answers import Outcome
from analyzer.webhooks.outbox import (
    AFTER_NS,
    CONNECTIONS,
    DOWN,
    FIRST_NS,
    LONGEST_NS,
    PATIENCE_NS,
    Letter,
    Outbox,
)

SECOND = 10**9
TAKEN, LATER, UNWELCOME, REFUSED = Outcome


def letter(seq, incident="i0", size=10):
    return Letter("pager", seq, incident, "opened", "switch s", seq, b"x" * size)


class Bench:
    """An outbox, its clock, and what became of each letter."""

    def __init__(self, most_letters=1000, most_bytes=10**6, jitter=lambda: 1.0):
        self.outbox = Outbox(most_letters=most_letters, most_bytes=most_bytes, jitter=jitter)
        self.most_letters, self.most_bytes = most_letters, most_bytes
        self.now_ns = 5
        self.given: list[Letter] = []
        self.flying: list[Letter] = []
        self.taken: list[Letter] = []
        self.refused: list[Letter] = []
        self.gone: list[str] = []
        self.hollow: set[int] = set()

    def take(self, incident="i0", size=10):
        self.given.append(letter(len(self.given) + 1, incident, size))
        self.outbox.take(self.given[-1], self.now_ns)
        self.look()

    def due(self):
        found = self.outbox.due(self.now_ns)
        self.flying += found
        self.look()
        return [each.seq for each in found]

    def answer(self, outcome, which=0, retry_after_ns=None):
        flown = self.flying.pop(which)
        became = self.outbox.answered(flown, outcome, self.now_ns, retry_after_ns)
        if became in {TAKEN, REFUSED}:
            (self.taken if became is TAKEN else self.refused).append(flown)
        self.look()

    def wait(self, ns):
        self.now_ns += ns

    def until_due(self):
        """Wait for as long as the outbox says; return how long."""
        due_ns = self.outbox.deadline()
        waited = max(0, due_ns - self.now_ns)
        self.now_ns += waited
        return waited

    def look(self):
        """Check what holds at any time."""
        emptied, gone = self.outbox.changes()
        self.hollow |= {each.seq for each in emptied}
        self.gone += gone
        left = self.left()
        assert self.outbox.waiting == len(left)
        assert self.outbox.bytes <= self.most_bytes
        incidents = {each.incident for each in left}
        assert len(left) <= max(self.most_letters, len(incidents) + len(self.flying))
        assert len({each.incident for each in self.flying}) == len(self.flying) <= CONNECTIONS
        for each in self.flying:  # nothing of an incident waits that is before what was sent
            assert not [e for e in left if e.incident == each.incident and e.seq < each.seq]
        assert len(set(self.gone)) == len(self.gone)
        if left and not self.flying:
            assert self.outbox.deadline() is not None

    def left(self):
        gone = set(self.gone)
        return [each for each in self.given if each.key not in gone]


outcomes = st.sampled_from([*Outcome, LATER, LATER])
pauses = st.none() | st.integers(0, 10**6).map(lambda s: s * SECOND)
steps = st.one_of(
    st.tuples(st.just("take"), st.integers(0, 4), st.integers(0, 60)),
    st.tuples(st.just("answer"), st.integers(0, 3), outcomes, pauses),
    st.tuples(st.just("wait"), st.integers(0, 400).map(lambda tenths: tenths * SECOND // 10)),
    st.tuples(st.just("due")),
)


@given(
    st.lists(steps, max_size=80),
    st.integers(1, 12),
    st.integers(1, 300),
    st.floats(0, 1),
)
def test_each_event_is_taken_in_its_incidents_order_or_counted_and_the_last_always_is(
    script, most_letters, most_bytes, jitter
):
    """Whatever happens first; the receiver is well in the end."""
    bench = Bench(most_letters, most_bytes, lambda: jitter)
    for name, *values in script:
        if name == "take":
            bench.take(f"i{values[0]}", values[1])
        elif name == "wait":
            bench.wait(*values)
        elif name == "due":
            bench.due()
        elif bench.flying:
            which, outcome, retry_after_ns = values
            bench.answer(outcome, which % len(bench.flying), retry_after_ns)
    healed_ns = bench.now_ns
    while bench.left():
        if not bench.flying:
            bench.until_due()
            assert bench.due()
        bench.answer(TAKEN)
    assert bench.now_ns - healed_ns <= max(LONGEST_NS, AFTER_NS) + FIRST_NS
    counts = bench.outbox.counts
    assert counts.sent == len(bench.taken)
    assert counts.refused == len(bench.refused)
    assert counts.sent + counts.refused + counts.dropped == len(bench.given)
    assert sorted(bench.gone) == sorted(each.key for each in bench.given)
    settled = bench.taken + bench.refused
    for incident, mine in groupby(
        sorted(bench.given, key=lambda e: e.incident), lambda e: e.incident
    ):
        taken = [each.seq for each in bench.taken if each.incident == incident]
        assert taken == sorted(set(taken))
        assert [*mine][-1].seq in {each.seq for each in settled}
    assert bench.outbox.deadline() is None
    assert bench.outbox.waiting == bench.outbox.bytes == 0
    assert bench.outbox.oldest_ns is None


def test_the_next_event_of_an_incident_waits_for_the_one_before_and_others_do_not():
    bench = Bench()
    for incident in ("a", "a", "b", "c"):
        bench.take(incident)
    assert bench.due() == [1, 3, 4]
    bench.answer(LATER)  # of a
    assert bench.due() == []
    bench.answer(TAKEN)
    bench.answer(TAKEN)
    assert bench.until_due() == FIRST_NS
    assert bench.due() == [1]
    bench.answer(TAKEN)
    assert bench.due() == [2]


def test_attempts_are_ever_further_apart_up_to_five_minutes():
    bench = Bench()
    bench.take()
    waited = []
    for _ in range(12):
        assert bench.due() == [1]
        bench.answer(LATER)
        waited.append(bench.until_due() // SECOND)
    assert waited == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert bench.outbox.counts.retried == 12


def test_by_chance_they_are_up_to_half_as_far_apart():
    bench = Bench(jitter=lambda: 0.0)
    bench.take()
    bench.due()
    bench.answer(LATER)
    assert bench.until_due() == FIRST_NS // 2


def fails(bench, times):
    for _ in range(times):
        bench.until_due()
        bench.due()
        bench.answer(LATER)


def test_a_receiver_that_is_down_is_asked_one_at_a_time_and_told_all_once_it_is_back():
    bench = Bench()
    for n in range(40):
        bench.take(f"i{n}")
    assert bench.due() == [1, 2, 3, 4]
    for _ in range(4):
        bench.answer(LATER)
    assert bench.outbox.is_down
    assert bench.until_due() == FIRST_NS
    assert len(bench.due()) == 1
    assert bench.outbox.deadline() is None
    bench.answer(LATER)
    fails(bench, 60)
    assert bench.now_ns > 30 * SECOND
    bench.take("new")
    assert bench.until_due() <= FIRST_NS  # what is new is tried at once, whatever was not taken
    assert bench.due() == [41]
    bench.answer(TAKEN)
    assert not bench.outbox.is_down
    assert bench.due() == [1, 2, 3, 4]
    for _ in range(40):
        bench.answer(TAKEN)
        bench.due()
    assert bench.left() == []


def test_one_event_that_is_not_taken_slows_no_other():
    bench = Bench()
    bench.take("poison")
    fails(bench, 12)
    assert bench.outbox.is_down
    assert bench.outbox.is_retrying
    for n in range(20):
        bench.take(f"i{n}")
        bench.until_due()
        while bench.due():
            while bench.flying:
                bench.answer(LATER if bench.flying[0].incident == "poison" else TAKEN)
        assert [each.incident for each in bench.left()] == ["poison"]
    assert bench.now_ns < sum(min(2**n, 300) for n in range(12)) * SECOND + 25 * SECOND


def test_retry_after_is_obeyed_within_bounds_and_nobody_is_sent_anything():
    bench = Bench()
    bench.take("a")
    bench.due()
    bench.answer(LATER, retry_after_ns=120 * SECOND)
    bench.take("b")
    assert bench.due() == []
    assert bench.until_due() == 120 * SECOND
    assert sorted(bench.due()) == [1, 2]
    bench.answer(TAKEN, which=bench.flying[0].seq == 1)
    bench.answer(LATER, retry_after_ns=10**9 * SECOND)
    assert bench.until_due() == AFTER_NS
    assert bench.due() == [1]


def test_what_is_refused_for_good_blocks_nothing():
    bench = Bench()
    bench.take("a")
    bench.take("a")
    assert bench.due() == [1]
    bench.answer(REFUSED)
    assert bench.due() == [2]
    bench.answer(TAKEN)
    assert (bench.outbox.counts.refused, bench.outbox.counts.sent) == (1, 1)


def test_what_is_turned_away_for_an_hour_is_refused():
    bench = Bench()
    bench.take("a")
    bench.take("a")
    began_ns, tries = bench.now_ns, 0
    while not bench.refused:
        bench.until_due()
        assert bench.due() == [1]
        bench.answer(UNWELCOME)
        tries += 1
    assert PATIENCE_NS <= bench.now_ns - began_ns <= PATIENCE_NS + LONGEST_NS
    assert tries < 30
    assert bench.until_due() <= FIRST_NS
    assert bench.due() == [2]  # and has an hour of its own
    bench.answer(UNWELCOME)
    assert bench.left()


def test_the_oldest_that_is_superseded_goes_first():
    bench = Bench(most_letters=4)
    for incident in ("a", "b", "b", "a"):
        bench.take(incident)
    bench.take("c")
    assert [each.seq for each in bench.left()] == [2, 3, 4, 5]
    bench.take("b")
    assert [each.seq for each in bench.left()] == [3, 4, 5, 6]
    bench.take("d")
    bench.take("e")
    assert [each.seq for each in bench.left()] == [4, 5, 6, 7, 8]  # none of these is superseded
    assert bench.outbox.counts.dropped == 3
    assert bench.outbox.oldest_ns == 4


def test_what_is_under_way_is_not_dropped():
    bench = Bench(most_letters=1)
    bench.take()
    assert bench.due() == [1]
    bench.take()
    bench.take()
    assert [each.seq for each in bench.left()] == [1, 3]
    bench.answer(LATER)
    assert [each.seq for each in bench.left()] == [3]
    bench.until_due()
    assert bench.due() == [3]


def test_where_nothing_is_superseded_bodies_go_and_each_incident_is_told_all_the_same():
    bench = Bench(most_bytes=100)
    for n in range(50):
        bench.take(f"i{n}", size=40)
    assert len(bench.left()) == 50
    assert bench.outbox.bytes <= 100
    assert bench.hollow == set(range(1, 49))
    seen = {}
    while bench.left():
        bench.due()
        seen[bench.flying[0].seq] = len(bench.flying[0].body)
        bench.answer(TAKEN)
    assert seen == {n: 40 if n in {49, 50} else 0 for n in range(1, 51)}


def test_a_letter_that_cannot_be_made_any_more_is_counted_and_blocks_nothing():
    bench = Bench()
    bench.take()
    bench.take()
    bench.due()
    bench.outbox.given_up(bench.flying.pop(), bench.now_ns)
    bench.look()
    assert bench.outbox.counts.dropped == 1
    assert bench.due() == [2]


def test_a_letter_is_known_by_the_same_name_however_often_it_is_sent():
    assert letter(7, "i1a2b-77").id == "i1a2b-77.7"
    assert letter(7).key == "pager 7"


@pytest.mark.parametrize("lines", [2000])
def test_what_waits_for_a_dead_receiver_is_looked_through_seldom(lines):
    """Looking through all of it with each letter would take the square."""
    bench = Outbox(most_letters=lines // 2, most_bytes=10**9, jitter=lambda: 1.0)
    looked = 0

    def counting(inner=bench._superseded):
        nonlocal looked
        looked += 1
        return inner()

    bench._superseded = counting
    for seq in range(1, lines + 1):
        bench.take(letter(seq, f"i{seq % 10}"), seq)
    assert bench.waiting <= lines // 2
    assert looked <= math.ceil(lines / 2 / (lines // 2 // 16)) + 1


def test_three_failures_in_a_row_are_what_down_means():
    bench = Bench()
    bench.take()
    fails(bench, DOWN - 1)
    assert not bench.outbox.is_down
    fails(bench, 1)
    assert bench.outbox.is_down
