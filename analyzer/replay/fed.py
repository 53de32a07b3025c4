# SPDX-License-Identifier: Apache-2.0
"""A roster and a diagnosis that are fed by records: live from the analyzer, or from a recording.

Pure: whoever feeds it reads and writes the records.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzer.diagnosis.engine import Diagnosis
from analyzer.intake.tables import Tables
from analyzer.intake.take import Taken
from analyzer.questions import Question
from analyzer.replay import records
from analyzer.replay.state import thaw
from analyzer.roster.registry import Registry
from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import decode
from netagent.wire.messages import Summary, SummaryHead


@dataclass(frozen=True, slots=True)
class Read:
    """A summary that was read before it is taken."""

    summary: Summary
    taken: Taken | None


def read_ahead(
    diagnosis: Diagnosis, tables: Tables, coming: Sequence[tuple[bytes, int]]
) -> list[Read | None]:
    """Read summaries, and when they were received, before they are taken: at once they cost half.

    None of what is no summary: whoever takes it is told.
    """
    found: dict[int, Summary] = {}
    for n, (payload, _) in enumerate(coming):
        with contextlib.suppress(RemoteProtocolError):
            found[n] = tables.read(payload)
    taken = diagnosis.decoded([(summary, coming[n][1]) for n, summary in found.items()])
    made: list[Read | None] = [None] * len(coming)
    for (n, summary), each in zip(found.items(), taken, strict=True):
        made[n] = Read(summary, each)
    return made


class Fed:
    """Does what records say, in their order."""

    def __init__(self, header: records.Header) -> None:
        self._header = header
        self.roster = Registry()
        self.diagnosis = self._made()
        self._tables = Tables()

    def _made(self) -> Diagnosis:
        return Diagnosis(
            self.roster,
            self._header.topology,
            window_s=self._header.window_s,
            probe_port=self._header.probe_port,
            sensitivity=self._header.sensitivity,
            missing_after_ns=self._header.missing_after_ns,
        )

    def begin(self, record: records.Roster | records.State) -> None:
        """Begin anew, with who was there, or with all that was known."""
        if isinstance(record, records.State):
            self.diagnosis = thaw(record.body, self.roster)
        else:
            self.roster = Registry.restore(record.hosts, record.tasks)
            self.diagnosis = self._made()

    def read(self, coming: Sequence[records.Ingested]) -> list[Read | None]:
        """Read summaries that are taken next; see `read_ahead`."""
        given = [(each.payload, each.now_ns) for each in coming]
        return read_ahead(self.diagnosis, self._tables, given)

    def take(self, record: records.Record, read: Read | None = None) -> list[Question]:
        """Do what `record` says, which was `read` before; return the questions to put to agents.

        What was read before may wait to be learned, see `Diagnosis.learn_waiting`.
        Raises RemoteProtocolError where a summary or a reply is odd; then nothing of it was taken.
        """
        roster = self.roster
        match record:
            case records.Registered():
                _forgiving(lambda: roster.apply(record.registration, record.now_ns))
            case records.Heard():
                roster.heard(record.host, record.start_ns, record.now_ns)
            case records.Forgotten():
                roster.forget(record.host, record.now_ns)
            case records.Expired():
                roster.expire(record.now_ns)
            case records.TaskPut():
                _forgiving(lambda: roster.put_task(record.task, record.now_ns))
            case records.TaskDeleted():
                roster.delete_task(record.task, record.now_ns)
            case _:
                return self._diagnose(record, read)
        return []

    def _diagnose(self, record: records.Record, read: Read | None) -> list[Question]:
        diagnosis = self.diagnosis
        match record:
            case records.Restored():
                diagnosis.restore(record.incidents, record.now_ns)
            case records.Began():
                diagnosis.begin(record.now_ns)
            case records.Ingested():
                self._ingest(record, read)
            case records.Impaired():
                happened = diagnosis.stood_still if record.stood_still else diagnosis.refused
                happened(record.now_ns)
            case records.Arriving():
                diagnosis.arriving(record.since_ns, record.now_ns)
            case records.Stepped():
                return diagnosis.step(record.now_ns)
            case records.PutLate():
                diagnosis.put_late(record.now_ns)
            case records.Answered():
                diagnosis.answer(record.question, records.reply_of(record), record.now_ns)
            case _:
                self._tell(record)
        return []

    def _ingest(self, record: records.Ingested, read: Read | None) -> None:
        is_read = read is not None
        if record.heard:  # also where the rest of it makes no sense
            head = read.summary if read else decode(record.payload, SummaryHead)
            self.roster.heard(head.host, head.start_ns, record.now_ns)
        read = read or Read(self._tables.read(record.payload), None)
        self.diagnosis.ingest(read.summary, record.now_ns, read.taken, may_wait=is_read)

    def _tell(self, record: records.Record) -> None:
        match record:
            case records.Differed():
                self.diagnosis.differed(record.differences, is_young=record.is_young)
            case records.HeldUp():
                self.diagnosis.held_up(record.jobs)
            case _:
                pass  # of the recording itself


def _forgiving(work: Callable[[], object]) -> None:
    """Do what may be refused: whoever asked for it was told so."""
    with contextlib.suppress(RemoteProtocolError):
        work()
