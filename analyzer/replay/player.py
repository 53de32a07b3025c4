# SPDX-License-Identifier: Apache-2.0
"""Runs a recording: the same code over the same input, as fast as it goes. Pure."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import BinaryIO

from analyzer.diagnosis.engine import IncidentChanged, Remark
from analyzer.replay import records
from analyzer.replay.fed import Fed
from analyzer.replay.frames import DamagedRecording, payloads
from netagent.model.errors import RemoteProtocolError
from netagent.model.verdict import Incident


@dataclass(slots=True)
class Played:
    """The result of a replay."""

    header: records.Header
    incidents: dict[str, Incident] = field(default_factory=dict)
    """Id -> the incident as last reported, in the order in which they opened."""
    differences: list[str] = field(default_factory=list)
    """Differences between the replay's reports and the recording's; empty where there are none."""
    whole: bool = True
    """Whether the replay began with all that the diagnosis knew when the recording began."""
    told: int = 0
    """Number of reported changes of incidents."""
    summaries: int = 0
    first_ns: int = 0
    last_ns: int = 0
    until_ns: int | None = None
    """Where it was ended on request, before the recording's end."""

    @property
    def seconds(self) -> float:
        """Return how much time the recording covers."""
        return (self.last_ns - self.first_ns) / 1e9


def read(source: BinaryIO) -> Iterator[records.Record]:
    """Yield the records of a recording.

    Raises DamagedRecording, which names the place, also where the end is missing.
    """
    ended, number, offset = False, -1, 0
    for offset, number, payload in payloads(source):
        if ended:
            raise DamagedRecording(offset, number, "it goes on after its end")
        try:
            record = records.unpack(payload)
        except RemoteProtocolError as error:
            raise DamagedRecording(offset, number, str(error)) from error
        if not number and not isinstance(record, records.Header):
            raise DamagedRecording(offset, number, "it does not begin with a header")
        if isinstance(record, records.End):
            ended = True
            if record.records != number:
                why = f"{number} frames before its end, which counts {record.records}"
                raise DamagedRecording(offset, number, why)
        yield record
    if not ended:
        raise DamagedRecording(offset, max(number, 0), "its end is missing")


def play(recording: Iterator[records.Record], *, until_ns: int | None = None) -> Played:
    """Run a recording, at most up to the instant `until_ns`.

    Raises DamagedRecording, and RemoteProtocolError where it does not begin with a header.
    """
    header = next(recording, None)
    if not isinstance(header, records.Header):
        raise RemoteProtocolError("no recording: it does not begin with a header")
    player = _Player(header)
    for record in recording:
        if until_ns is not None and getattr(record, "now_ns", 0) > until_ns:
            player.played.until_ns = until_ns
            break
        player.take(record)
    if until_ns is not None and not player.played.first_ns:
        raise RemoteProtocolError("it begins later than the instant asked for")
    player.compare()
    return player.played


class _Player:
    def __init__(self, header: records.Header) -> None:
        self.played = Played(header, whole=header.whole)
        self._goes_on = False
        """Whether the newest header is that of a further part of the same run."""
        self._fed = Fed(header)
        self._recorded: list[Incident] = []
        self._replayed: list[Incident] = []

    def take(self, record: records.Record) -> None:
        now_ns = getattr(record, "now_ns", 0)
        if now_ns:
            self.played.first_ns = self.played.first_ns or now_ns
            self.played.last_ns = max(self.played.last_ns, now_ns)
        match record:
            case records.Told():
                self._recorded.append(record.incident)
            case records.Lost():
                self.played.differences.append(f"{record.records} records were lost here")
            case records.Header():
                self._goes_on = record.run == self.played.header.run
                self.played.header = record
                if not self._goes_on:
                    self._fed = Fed(record)
            case records.Roster() | records.State():
                if not self._goes_on:  # else known: the recording was put together from parts
                    self._fed.begin(record)
            case _:
                self._join(record)
        self._drain()

    def _join(self, record: records.Record) -> None:
        if isinstance(record, records.Ingested):
            self.played.summaries += 1
            with contextlib.suppress(RemoteProtocolError):  # it was refused then, too
                self._fed.take(record)
        else:
            self._fed.take(record)

    def _drain(self) -> None:
        while (event := self._fed.diagnosis.next_event()) is not None:
            if isinstance(event, IncidentChanged):
                self._tell(event.incident)
            elif isinstance(event, Remark) and event.error is not None:
                self.played.differences.append(f"{event.event}: {event.error!r}")

    def _tell(self, incident: Incident) -> None:
        self.played.told += 1
        self.played.incidents[incident.id] = incident
        self._replayed.append(incident)

    def compare(self) -> None:
        """Compare the replay's reports with the recording's, in order."""
        for number, (then, now) in enumerate(zip(self._recorded, self._replayed, strict=False)):
            if not records.same(then, now):
                self.played.differences.append(f"change {number}: {_difference(then, now)}")
                return
        then_count, now_count = len(self._recorded), len(self._replayed)
        if then_count != now_count and self.played.until_ns is None:
            self.played.differences.append(f"{then_count} changes then, {now_count} now")


def _difference(then: Incident, now: Incident) -> str:
    """Return in words how an incident differs from that of a recording."""
    named = [str(each.verdict.component or "nobody") for each in (then, now)]
    if named[0] != named[1]:
        return f"{then.id} named {named[0]} then, {now.id} names {named[1]} now"
    both = ((then, now), (then.verdict, now.verdict))
    unlike = [
        each.name
        for one, other in both
        for each in fields(one)
        if each.name != "verdict" and getattr(one, each.name) != getattr(other, each.name)
    ]
    return f"{now.id} names {named[0]} as then, with another {', '.join(unlike)}"
