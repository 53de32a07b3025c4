# SPDX-License-Identifier: Apache-2.0
import asyncio
from dataclasses import replace

import pytest

from analyzer.server.journal import ADOPT_NS, Journal
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict

OPEN, CONFIRMED, RECOVERED = IncidentState.OPEN, IncidentState.CONFIRMED, IncidentState.RECOVERED


def incident(name="i1", state=OPEN, updated_ns=1):
    verdict = Verdict(None, None, Symptom.LOSS, 0.1, "cannot tell")
    return Incident(name, state, verdict, 1, 2, updated_ns)


class Disk:
    def __init__(self):
        self.written = []

    async def put_incidents(self, incidents):
        self.written += incidents


class Bench:
    def __init__(self, *stored, wall_ns=1000):
        self.disk, self.told = Disk(), []
        self.journal = Journal(stored, wall_ns=wall_ns, announce=lambda: self.told.append(1))

    def take(self, *current, wall_ns=2000):
        asyncio.run(self.journal.take(current, self.disk, wall_ns))

    def events(self, after=0):
        return [(e.event, e.incident.id) for e in self.journal.events(after)]


def test_each_change_is_stored_and_told_once():
    bench = Bench()
    for state in (OPEN, OPEN, CONFIRMED, RECOVERED, RECOVERED):
        bench.take(incident(state=state))
    bench.take(incident(state=RECOVERED, updated_ns=9))
    assert bench.events() == [
        ("opened", "i1"),
        ("confirmed", "i1"),
        ("recovered", "i1"),
    ]  # seen again later, with nothing new: stored, not told
    assert len(bench.disk.written) == len(bench.told) == 4


def test_event_numbers_grow_whatever_the_clock_does():
    bench = Bench()
    bench.take(incident("i1"), incident("i2"), wall_ns=5000)
    bench.take(incident("i1"), incident("i2"), incident("i3"), wall_ns=10)
    numbers = [event.seq for event in bench.journal.events(0)]
    assert numbers == [5000, 5001, 5002] == sorted(set(numbers))
    assert bench.journal.seq == 5002
    assert bench.events(after=5001) == [("opened", "i3")]


def test_what_could_not_be_stored_is_not_told_and_tried_again():
    class Full(Disk):
        async def put_incidents(self, _):
            raise OSError("disk full")

    bench = Bench()
    disk, bench.disk = bench.disk, Full()
    with pytest.raises(OSError):
        bench.take(incident())
    assert bench.events() == []
    bench.disk = disk
    bench.take(incident())
    assert bench.events() == [("opened", "i1")]


def test_an_open_incident_that_nothing_bears_out_after_a_restart_is_closed_in_time():
    kept, lost = incident("kept"), incident("lost", CONFIRMED)
    done = incident("done", RECOVERED)
    bench = Bench(kept, lost, done, wall_ns=1000)
    bench.take(kept, wall_ns=1000 + ADOPT_NS - 1)
    assert bench.events() == []
    bench.take(wall_ns=1000 + ADOPT_NS)
    assert bench.events() == [("recovered", "lost")]
    closed = bench.journal.get("lost")
    assert (closed.state, closed.recovered_ns) == (RECOVERED, 1000 + ADOPT_NS)
    assert "restarted" in closed.notes[-1]
    assert bench.journal.get("kept") == kept


def test_old_recovered_incidents_are_forgotten():
    bench = Bench(incident("a", RECOVERED, 1), incident("b", RECOVERED, 5), incident("c", OPEN, 1))
    bench.journal.forget(5)
    assert {i.id for i in bench.journal.incidents()} == {"b", "c"}


def test_incidents_are_listed_latest_first():
    early, late = incident("early"), replace(incident("late"), detected_ns=9)
    bench = Bench(early, late)
    assert [i.id for i in bench.journal.incidents()] == ["late", "early"]
