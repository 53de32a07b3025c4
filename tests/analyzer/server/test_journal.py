# SPDX-License-Identifier: Apache-2.0
import asyncio
from dataclasses import replace

import pytest

from analyzer.server import journal
from analyzer.server.journal import BATCH, Journal
from analyzer.webhooks.outbox import Letter
from netagent.model.errors import CapabilityMissing
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict
from tests.waiting import until

OPEN, CONFIRMED, RECOVERED = IncidentState.OPEN, IncidentState.CONFIRMED, IncidentState.RECOVERED


def incident(name="i1", state=OPEN, updated_ns=1):
    verdict = Verdict(None, None, Symptom.LOSS, 0.1, "cannot tell")
    return Incident(name, state, verdict, 1, 2, updated_ns)


class Disk:
    def __init__(self):
        self.written, self.letters = [], []

    async def put_incidents(self, incidents, letters):
        self.written += incidents
        self.letters += letters


class Bench:
    def __init__(self, *stored, wall_ns=1000):
        self.disk, self.told = Disk(), []
        self.ends = []
        self.journal = Journal(
            stored,
            wall_ns=wall_ns,
            announce=lambda: self.told.append(1),
            settled=lambda error, _: self.ends.append(error),
        )

    def take(self, *changed, wall_ns=2000):
        for incident in changed:
            self.journal.note(incident)
        asyncio.run(self.journal.take(self.disk, wall_ns))

    def events(self, after=0):
        return [(e.event, e.incident.id) for e in self.journal.events(after)]


def test_each_change_is_stored_and_told_once():
    bench = Bench()
    for state in (OPEN, OPEN, CONFIRMED, RECOVERED):
        bench.take(incident(state=state))
    bench.take()
    assert bench.events() == [
        ("opened", "i1"),
        ("confirmed", "i1"),
        ("recovered", "i1"),
    ]  # seen again, with nothing new: stored, not told
    assert len(bench.disk.written) == len(bench.told) == 4


def test_what_is_active_includes_what_nobody_was_told_of_so_far():
    bench = Bench(incident("i0", state=CONFIRMED))
    bench.journal.note(incident("i1"))
    bench.journal.note(incident("i0", state=RECOVERED))
    assert [each.id for each in bench.journal.active()] == ["i1"]
    assert [each.id for each in bench.journal.incidents("active")] == ["i0"]


def test_what_nothing_is_measured_of_is_told_and_that_it_is_again():
    bench = Bench()
    for unobserved_ns in (None, 5, 5, None):
        bench.take(replace(incident(state=CONFIRMED), unobserved_ns=unobserved_ns))
    assert [event for event, _ in bench.events()] == ["confirmed", "unobserved", "observed"]


def test_an_event_says_what_was_before_also_within_one_batch_and_over_restarts():
    bench = Bench(incident("i0", state=CONFIRMED))
    bench.take(incident(), incident(state=CONFIRMED), incident("i0", state=RECOVERED))
    befores = [e.before and e.before.state for e in bench.journal.events(0)]
    assert befores == [None, OPEN, CONFIRMED]


class Mail:
    """Writes a letter of each event."""

    def __init__(self):
        self.taken = []

    def letters(self, events, *, stored):
        return [
            Letter("w", e.seq, e.incident.id, e.event, "", 1, b"stored" * stored) for e in events
        ]

    def take(self, letters, stored):
        self.taken += [(each.event, each.body, each.key in stored) for each in letters]


def test_letters_are_stored_with_their_incident_and_sent_whether_they_could_be_or_not():
    bench = Bench()
    bench.journal._mail = mail = Mail()
    bench.take(incident())
    bench.take(incident())  # no news, no letter
    bench.disk, disk = Full(CapabilityMissing("database", "disk full")), bench.disk
    bench.take(incident(state=CONFIRMED))
    assert [letter.event for letter in disk.letters] == ["opened"]
    assert mail.taken == [("opened", b"stored", True), ("confirmed", b"", False)]


def test_of_more_than_a_batch_only_letters_of_what_is_stored_count_as_stored():
    bench = Bench()
    bench.journal._mail = mail = Mail()
    bench.take(*(incident(f"i{n}") for n in range(BATCH + 2)))
    assert [is_stored for *_, is_stored in mail.taken] == [True] * BATCH + [False] * 2


def test_what_changes_is_taken_as_it_comes_and_in_order():
    bench = Bench()
    bench.take(incident(), incident(state=CONFIRMED), incident("i2"))
    assert bench.events() == [("opened", "i1"), ("confirmed", "i1"), ("opened", "i2")]

    async def follow():
        work = asyncio.create_task(bench.journal.follow(bench.disk, lambda: 3000))
        bench.journal.note(incident("i3"))
        await until(lambda: bench.events(after=2003))
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(follow())
    assert bench.events()[-1] == ("opened", "i3")


def test_event_numbers_grow_whatever_the_clock_does():
    bench = Bench()
    bench.take(incident("i1"), incident("i2"), wall_ns=5000)
    bench.take(incident("i3"), wall_ns=10)
    numbers = [event.seq for event in bench.journal.events(0)]
    assert numbers == [5000, 5001, 5002] == sorted(set(numbers))
    assert bench.journal.seq == 5002
    assert bench.events(after=5001) == [("opened", "i3")]


class Full(Disk):
    """Refuses, or does not answer."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    async def put_incidents(self, incidents, letters):
        if self.error is None:
            await asyncio.Event().wait()
        raise self.error


@pytest.mark.parametrize(
    "error",
    [CapabilityMissing("database", "disk full"), OSError("disk full"), ZeroDivisionError(), None],
    ids=["full", "odd", "a bug", "slow"],
)
def test_what_could_not_be_stored_is_told_all_the_same_and_stored_later(error, monkeypatch):
    monkeypatch.setattr(journal, "STORE_S", 0.01)
    bench = Bench()
    disk, bench.disk = bench.disk, Full(error)
    bench.take(incident())
    bench.take(incident(state=CONFIRMED))
    assert bench.events() == [("opened", "i1"), ("confirmed", "i1")]
    assert (bench.journal.is_stored("i1"), bench.journal.unstored) == (False, 1)
    bench.disk = disk
    bench.take()
    assert bench.events() == [("opened", "i1"), ("confirmed", "i1")]
    assert [each.state for each in disk.written] == [CONFIRMED]
    assert bench.journal.is_stored("i1")
    assert [error is None for error in bench.ends] == [False, False, True]


def test_it_tries_by_itself_to_store_what_was_refused(monkeypatch):
    monkeypatch.setattr(journal, "RETRY_S", 0.01)
    bench = Bench()
    bench.disk = Full(CapabilityMissing("database", "disk full"))

    async def follow():
        work = asyncio.create_task(bench.journal.follow(bench.disk, lambda: 3000))
        bench.journal.note(incident())
        await until(lambda: len(bench.ends) >= 3)
        bench.disk.put_incidents = Disk.put_incidents.__get__(bench.disk)
        await until(lambda: bench.journal.is_stored("i1"))
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(follow())
    assert [each.id for each in bench.disk.written] == ["i1"]
    assert bench.events() == [("opened", "i1")]


def test_what_waited_is_stored_in_batches_and_none_is_given_up():
    bench = Bench()
    bench.disk = Full(CapabilityMissing("database", "disk full"))
    names = [f"i{n}" for n in range(2 * BATCH + 5)]

    async def follow():
        work = asyncio.create_task(bench.journal.follow(bench.disk, lambda: 3000))
        for name in names:
            bench.journal.note(incident(name))
        await until(lambda: bench.journal.unstored == len(names))
        assert len(bench.events()) == len(names)
        bench.disk.put_incidents = Disk.put_incidents.__get__(bench.disk)
        bench.journal.note(incident("another"))
        await until(lambda: bench.journal.unstored == 0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(follow())
    assert sorted(each.id for each in bench.disk.written) == sorted([*names, "another"])


def test_old_recovered_incidents_are_forgotten():
    bench = Bench(incident("a", RECOVERED, 1), incident("b", RECOVERED, 5), incident("c", OPEN, 1))
    bench.journal.forget(5)
    assert {i.id for i in bench.journal.incidents()} == {"b", "c"}


def test_incidents_are_listed_latest_first():
    early, late = incident("early"), replace(incident("late"), detected_ns=9)
    bench = Bench(early, late)
    assert [i.id for i in bench.journal.incidents()] == ["late", "early"]
