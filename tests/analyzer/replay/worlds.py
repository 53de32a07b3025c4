# SPDX-License-Identifier: Apache-2.0
"""Recordings of simulated clusters."""

import io
from collections.abc import Callable, Sequence
from typing import Any

from analyzer.detect.arrival import AFTER_NS
from analyzer.detect.latency.floors import Sensitivity
from analyzer.diagnosis.engine import Diagnosis, Event, IncidentChanged
from analyzer.intake.take import Taken
from analyzer.intent.differences.contract import Difference
from analyzer.questions import Question, Reply
from analyzer.replay import records
from analyzer.replay.frames import frame
from analyzer.replay.tape import TapedRegistry, roster_of
from analyzer.roster.registry import Registry
from netagent.model.path import link, switch
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import Incident
from netagent.wire.codec import encode
from netagent.wire.messages import Registration, Summary
from tests.analyzer.diagnosis.world import HOSTS, START, World

LINK, SPINE = link("leaf-s1-r1", "spine-0"), switch("spine-1")


class TapedDiagnosis(Diagnosis):
    """A diagnosis that writes down what it is given, and what it says of incidents."""

    __slots__ = ("_tape",)  # apart from what it knows, which can be written down itself

    def __init__(
        self,
        roster: Registry,
        topology: DeclaredTopology,
        *,
        window_s: int,
        probe_port: int,
        sensitivity: Sensitivity | None = None,
        missing_after_ns: int = AFTER_NS,
        tape: Callable[[records.Record], None],
    ) -> None:
        super().__init__(
            roster,
            topology,
            window_s=window_s,
            probe_port=probe_port,
            sensitivity=sensitivity,
            missing_after_ns=missing_after_ns,
        )
        self._tape = tape

    def begin(self, now_ns: int) -> None:
        """Judge only what ends later; see `Diagnosis.begin`."""
        self._tape(records.Began(now_ns=now_ns))
        super().begin(now_ns)

    def refused(self, now_ns: int) -> None:
        """Note that a delivery was refused; see `Diagnosis.refused`."""
        self._tape(records.Impaired(now_ns=now_ns))
        super().refused(now_ns)

    def stood_still(self, now_ns: int) -> None:
        """Note that the analyzer did nothing for a while; see `Diagnosis.stood_still`."""
        self._tape(records.Impaired(stood_still=True, now_ns=now_ns))
        super().stood_still(now_ns)

    def restore(self, incidents: Sequence[Incident], now_ns: int) -> None:
        """Take the incidents that were open; see `Diagnosis.restore`."""
        self._tape(records.Restored(incidents=tuple(incidents), now_ns=now_ns))
        super().restore(incidents, now_ns)

    def ingest(
        self, summary: Summary, now_ns: int, taken: Taken | None = None, *, may_wait: bool = False
    ) -> Taken:
        """Take a stored summary; see `Diagnosis.ingest`."""
        self._tape(records.Ingested(payload=encode(summary), now_ns=now_ns))
        return super().ingest(summary, now_ns, taken, may_wait=may_wait)

    def differed(self, differences: Sequence[Difference], *, is_young: bool = False) -> None:
        """Take what stands between controllers and hosts; see `Diagnosis.differed`."""
        record = records.Differed(
            differences=tuple(differences), is_young=is_young, now_ns=self._stepped_ns
        )
        self._tape(record)
        super().differed(differences, is_young=is_young)

    def answer(self, question: int, reply: Reply, now_ns: int) -> None:
        """Take the reply to a question; see `Diagnosis.answer`."""
        self._tape(records.answered(question, reply, now_ns))
        super().answer(question, reply, now_ns)

    def step(self, now_ns: int) -> list[Question]:
        """Do what is due; see `Diagnosis.step`."""
        self._tape(records.Stepped(now_ns=now_ns))
        return super().step(now_ns)

    def next_event(self) -> Event | None:
        """Return what changed; see `Diagnosis.next_event`."""
        event = super().next_event()
        if isinstance(event, IncidentChanged):
            self._tape(records.Told(incident=event.incident))
        return event


class Recorded(World):
    """A world that is recorded from its beginning."""

    def __init__(self, seed: int = 1, **shape: Any) -> None:
        self.file, self.count = io.BytesIO(), 0
        super().__init__(seed, **shape)
        self.write(records.Header(netagent="test", window_s=5, probe_port=18515))
        self.registry = registry = TapedRegistry()
        self.write(roster_of(registry))
        registry.tape = self.write
        for host in HOSTS:
            endpoints = tuple(e for e in self.fabric.endpoints.values() if e.host == host)
            message = Registration(
                host=host, instance="1", generation=1, rpc_url="https://x", endpoints=endpoints
            )
            registry.apply(message, START - 60 * 10**9)
        self.diagnosis = TapedDiagnosis(
            registry, DeclaredTopology(), window_s=5, probe_port=18515, tape=self.write
        )

    def write(self, record: records.Record) -> None:
        """Add a record."""
        self.file.write(frame(records.pack(record)))
        self.count += 1

    def recording(self) -> bytes:
        """Return the recording so far, ended."""
        end = frame(records.pack(records.End(records=self.count)))
        return self.file.getvalue() + end


def eventful(seed: int = 1, **shape: Any) -> Recorded:
    """Return a world in which a link loses, heals, and a spine dies while an agent is silent."""
    world = Recorded(seed, **shape)
    world.live(4)
    world.fabric.loss = {LINK: 0.2}
    world.live(3)
    world.fabric.loss = {}
    world.live(2)
    world.fabric.loss = {SPINE: 1.0}
    world.silent = {"h2": "refused"}
    world.live(3)
    return world
