# SPDX-License-Identifier: Apache-2.0
"""What the judge does with each message: the diagnosis, its recorder, its files."""

import asyncio
import contextlib
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence

from analyzer.diagnosis.engine import IncidentChanged, Remark
from analyzer.diagnosis.together import together
from analyzer.history.figures import Told
from analyzer.judge import messages
from analyzer.judge.history import Historian
from analyzer.judge.kept import BASELINES, ROUTES, Keeper
from analyzer.judge.messages import (
    Down,
    Draw,
    Holds,
    Look,
    NoResult,
    Open,
    Replies,
    Result,
    Up,
    Walk,
)
from analyzer.judge.observers import Both
from analyzer.judge.recorder import Recorder
from analyzer.judge.workers import Workers
from analyzer.localize.story import untold
from analyzer.picture.picture import Picture
from analyzer.questions import Asking
from analyzer.replay import records
from analyzer.replay.fed import Fed, Read
from netagent.model.errors import CapabilityMissing, NetAgentError, RemoteProtocolError
from netagent.wire.codec import decode, encode
from netagent.wire.messages import SummaryHead

TOGETHER = 64
"""Most summaries that are read at once. Chosen: what a call of numpy costs is spread then."""
TOGETHER_BYTES = 1 << 20
"""Bytes of them from which no more are. Chosen: five times what so many mostly have; each byte may
be sixteen once it is inflated, and more as objects."""
MAX_WALKS = 64
"""Most walks under way. Chosen: a person asks for one, an inquiry for sixteen."""


class Bench:
    """One diagnosis, told what happens by messages; what it asks and says goes to `say`."""

    def __init__(
        self,
        opening: Open,
        roster: records.Roster,
        clock: Callable[[], int],
        say: Callable[[Up], None],
    ) -> None:
        self.fed = Fed(opening.header)
        self.fed.begin(roster)
        self.recorder = Recorder(opening, self.fed)
        kept = opening.database, self.fed.diagnosis, clock
        self.baselines, self.routes = Keeper(BASELINES, *kept), Keeper(ROUTES, *kept)
        self.history = Historian(opening.database, opening.history, clock)
        self.picture = Picture()
        self.fed.diagnosis.observer = Both(self.history, self.picture)
        self._say = say
        self._walks: dict[int, Asking[list[dict[str, object]]]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._preparing = False
        self._workers = Workers()

    async def start(self) -> None:
        """Take what was saved before a restart, and begin to record."""
        await self.baselines.restore()  # first, so that a recording begins with them
        self._say(Holds(since_ns=await self.routes.restore()))
        await self.history.begin()
        self.recorder.begin()
        self._workers.start("history", self.history.run)
        self._workers.start("recorder", self.recorder.run)
        self._workers.start("baselines", self.baselines.run)
        self._workers.start("routes", self.routes.run)

    async def stop(self) -> None:
        """Write what is still in memory."""
        self.history.stop()
        await self._workers.stop()
        await asyncio.gather(*self._answering, return_exceptions=True)
        await self.recorder.stop()

    def take_all(self, received: Iterable[tuple[Down, bytes]]) -> None:
        """Do what messages say, in their order; summaries that come together cost less."""
        run: list[tuple[records.Ingested, bytes]] = []
        size = 0
        for message, payload in received:
            if isinstance(message, records.Ingested):
                run.append((message, payload))
                size += len(payload)
                if len(run) < TOGETHER and size < TOGETHER_BYTES:
                    continue
            self._take_run(run)
            run, size = [], 0
            if not isinstance(message, records.Ingested):
                self.take(message, payload)
        self._take_run(run)

    def _take_run(self, run: Sequence[tuple[records.Ingested, bytes]]) -> None:
        for (record, payload), read in zip(run, self._read([each for each, _ in run]), strict=True):
            self._record(record, payload)  # a recording may begin with what is known just now
            self._feed(record, read)
        try:
            self.fed.diagnosis.learn_waiting()
        except Exception as error:  # noqa: BLE001 - what comes next is worth taking all the same
            self._say(messages.Said(event="not_learned", error=_traced(error)))

    def _read(self, run: Sequence[records.Ingested]) -> Sequence[Read | None]:
        try:
            return self.fed.read(run)
        except Exception as error:  # noqa: BLE001 - one by one they are worth taking all the same
            self._say(messages.Said(event="not_read_ahead", error=_traced(error)))
            return [None] * len(run)

    def take(self, message: Down, payload: bytes | None = None) -> None:
        """Do what a message says; `payload` are its bytes, where it came in such."""
        match message:
            case Walk():
                self._walk(message)
            case Replies():
                self._go_on(message.query, message.replies)
            case Look(what="recording"):
                self._later(self._export(message.query))
            case Look():
                self._answer(message.query, lambda: self._known(message.what))
            case Draw():
                self._later(self._draw(message))
            case Open():
                raise RemoteProtocolError("opened twice")
            case records.Stepped():
                self._step(message, payload)
            case _:
                self._record(message, payload)
                self._feed(message)

    def _record(self, record: records.Record, payload: bytes | None = None) -> None:
        try:
            self.recorder.write(record, payload)
        except Exception as error:  # noqa: BLE001 - judging goes on without a recording
            self._say(messages.Said(event="not_recorded", error=_traced(error)))

    def _feed(self, record: records.Record, read: Read | None = None) -> None:
        try:
            self.fed.take(record, read)
        except RemoteProtocolError as error:
            self._say(messages.Refused(host=_host_of(record), error=str(error)))
        except Exception as error:  # noqa: BLE001 - the next one is worth taking whatever this was
            self._say(messages.Refused(host=_host_of(record), error=_traced(error), bug=True))

    def _step(self, record: records.Stepped, payload: bytes | None) -> None:
        self._record(record, payload)
        diagnosis = self.fed.diagnosis
        try:
            for question in self.fed.take(record):
                self._say(messages.put(question))
            while (event := diagnosis.next_event()) is not None:
                self._tell(event)
        except Exception as error:  # noqa: BLE001 - the analyzer waits for the end of the step
            self._say(messages.Said(event="step_failed", error=_traced(error)))
        self._say(messages.Done(deadline_ns=diagnosis.deadline()))

    def _tell(self, event: IncidentChanged | Remark) -> None:
        if isinstance(event, IncidentChanged):
            told = records.Told(incident=event.incident)
            self._record(told)
            self.recorder.saw(event.incident)
            self._say(told)
            return
        error = _traced(event.error) if event.error is not None else None
        self._say(messages.Said(event=event.event, values=dict(event.values), error=error))

    # --- queries --------------------------------------------------------------------------------

    def _walk(self, asked: Walk) -> None:
        self._walks[asked.query] = self._walked(asked)
        while len(self._walks) > MAX_WALKS:
            self._walks.pop(next(iter(self._walks))).close()  # nobody answers it any more
        self._go_on(asked.query, None)

    def _walked(self, asked: Walk) -> Asking[list[dict[str, object]]]:
        diagnose = self.fed.diagnosis.diagnose
        services = asked.services or (None,) * len(asked.pairs)
        askings = [
            diagnose(*pair, layers=asked.layers, service=service)
            for pair, service in zip(asked.pairs, services, strict=True)
        ]
        found = yield from together(askings)
        if len(found) == 1 and isinstance(found[0], NetAgentError):
            raise found[0]
        return [
            untold(pair, str(each)) if isinstance(each, NetAgentError) else each
            for pair, each in zip(asked.pairs, found, strict=True)
        ]

    def _go_on(self, query: int, answered: Sequence[records.Answered] | None) -> None:
        walking = self._walks.get(query)
        if walking is None:
            self._say(NoResult(query=query, error="too many walks at once", capability="walks"))
            return
        try:
            if answered is None:
                asks = next(walking)
            else:
                asks = walking.send([records.reply_of(each) for each in answered])
        except StopIteration as done:
            walk = done.value
            del self._walks[query]
            self._answer(query, lambda: walk)
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            del self._walks[query]
            self._say(_no_result(query, error))
        else:
            self._say(messages.Asking(query=query, asks=tuple(map(messages.put, asks))))

    def _known(self, what: str) -> object:
        match what:
            case "findings":
                return self.fed.diagnosis.findings()
            case "topology":
                return self.fed.diagnosis.topology()
            case "history":
                return self.history.counts()
            case "figures":
                return self._figures()
        raise RemoteProtocolError(f"nothing is known by the name {what!r}")

    def _figures(self) -> Told:
        findings = Counter(each.kind.value for each in self.fed.diagnosis.findings())
        return self.history.figures.told(findings=findings, history=self.history.counts())

    def _answer(self, query: int, look: Callable[[], object]) -> None:
        try:
            self._say(Result(query=query, body=encode(look())))
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            self._say(_no_result(query, error))

    def _later(self, answering: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(answering)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _draw(self, wanted: Draw) -> None:
        """Draw piece by piece: between two of them it is judged."""
        drawing = self.picture.draw(wanted.asked)
        try:
            while True:
                next(drawing)
                await asyncio.sleep(0)
        except StopIteration as drawn:
            body = drawn.value
            self._answer(wanted.query, lambda: body)
            self._prepare()
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            self._say(_no_result(wanted.query, error))

    def _prepare(self) -> None:
        """Be ready for the next question of who looks on, unless that is under way."""
        if not self._preparing:
            self._preparing = True
            self._later(self._prepared())

    async def _prepared(self) -> None:
        try:
            for _ in self.picture.prepare():
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - who asks next is told what is wrong
            self._say(messages.Said(event="not_prepared", error=_traced(error)))
        finally:
            self._preparing = False

    async def _export(self, query: int) -> None:
        try:
            path = str(await self.recorder.export())
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            self._say(_no_result(query, error))
        else:
            self._say(Result(query=query, body=encode(path)))


def _host_of(record: records.Record) -> str:
    """Return whose summary a record is; nothing where it is none, or cannot be read."""
    if isinstance(record, records.Ingested):
        with contextlib.suppress(RemoteProtocolError):
            return decode(record.payload, SummaryHead).host
    return ""


def _traced(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def _no_result(query: int, error: Exception) -> NoResult:
    match error:
        case CapabilityMissing():
            return NoResult(query=query, error=error.remedy, capability=error.capability)
        case NetAgentError():
            return NoResult(query=query, error=str(error))
    return NoResult(query=query, error=_traced(error), bug=True)
