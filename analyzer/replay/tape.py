# SPDX-License-Identifier: Apache-2.0
"""A registry and a diagnosis that write down what they are given.

They do what their bases do; a record goes to `Tape.write` before each change, so that a recording
holds the calls in the order in which they were made.
"""

from collections.abc import Callable, Sequence

from analyzer.detect.arrival import AFTER_NS
from analyzer.detect.latency.floors import Sensitivity
from analyzer.diagnosis.engine import Diagnosis, Event, IncidentChanged
from analyzer.intake.take import Taken
from analyzer.questions import Question, Reply
from analyzer.replay import records
from analyzer.roster.registry import Registry
from netagent.model.task import Task
from netagent.model.topology import DeclaredTopology
from netagent.model.verdict import Incident
from netagent.wire.codec import encode
from netagent.wire.messages import Registration, Summary

Tape = Callable[[records.Record], None]
"""Takes a record."""


def nowhere(_record: records.Record) -> None:
    """Write nothing down."""


class TapedRegistry(Registry):
    """A registry whose changes are written down."""

    def __init__(self) -> None:
        super().__init__()
        self.tape: Tape = nowhere

    def apply(self, registration: Registration, wall_ns: int) -> set[str]:
        """Take a host's full state; see `Registry.apply`."""
        self.tape(records.Registered(registration=registration, now_ns=wall_ns))
        return super().apply(registration, wall_ns)

    def heard(self, host: str, window_start_ns: int, wall_ns: int) -> None:
        """Note that a summary of `host` came; see `Registry.heard`."""
        self.tape(records.Heard(host=host, start_ns=window_start_ns, now_ns=wall_ns))
        super().heard(host, window_start_ns, wall_ns)

    def forget(self, host: str, wall_ns: int) -> set[str]:
        """Drop a host; see `Registry.forget`."""
        self.tape(records.Forgotten(host=host, now_ns=wall_ns))
        return super().forget(host, wall_ns)

    def expire(self, wall_ns: int) -> set[str]:
        """Drop endpoints that vanished long ago; see `Registry.expire`."""
        self.tape(records.Expired(now_ns=wall_ns))
        return super().expire(wall_ns)

    def put_task(self, task: Task, wall_ns: int) -> set[str]:
        """Declare a task; see `Registry.put_task`."""
        self.tape(records.TaskPut(task=task, now_ns=wall_ns))
        return super().put_task(task, wall_ns)

    def delete_task(self, task: str, wall_ns: int) -> set[str] | None:
        """Withdraw a declaration; see `Registry.delete_task`."""
        self.tape(records.TaskDeleted(task=task, now_ns=wall_ns))
        return super().delete_task(task, wall_ns)

    def roster(self) -> records.Roster:
        """Return who is in the cluster now, as a record."""
        states = [self.export_host(agent.host) for agent in self.agents()]
        return records.Roster(
            hosts=tuple(state for state in states if state is not None),
            tasks=tuple(self.export_task(task.id) for task in self.tasks() if task.declared),
        )


class TapedDiagnosis(Diagnosis):
    """A diagnosis that writes down what it is given, and what it says of incidents."""

    def __init__(
        self,
        roster: Registry,
        topology: DeclaredTopology,
        *,
        window_s: int,
        probe_port: int,
        sensitivity: Sensitivity | None = None,
        missing_after_ns: int = AFTER_NS,
        tape: Tape,
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

    def ingest(self, summary: Summary, now_ns: int) -> Taken:
        """Take a stored summary; see `Diagnosis.ingest`."""
        self._tape(records.Ingested(payload=encode(summary), now_ns=now_ns))
        return super().ingest(summary, now_ns)

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
