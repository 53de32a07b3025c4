# SPDX-License-Identifier: Apache-2.0
"""The analyzer's side of its judge: records go to it in order, steps and queries are awaited.

Theory of operation. A judge is a process that runs the diagnosis. It is told all that happens, as
records, and that time has come to step, which it answers with what it asks and says. One step is
under way at a time. So a judge that takes long delays what it says, and nothing else: summaries are
stored and acknowledged meanwhile, and lie before it, in the order in which they came, when it
decides next. Where it dies, another one is started and told of the newest minutes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from analyzer.diagnosis.engine import Event, IncidentChanged, Remark
from analyzer.judge import messages
from analyzer.judge.messages import Down, Up
from analyzer.picture.asked import Question as Picture
from analyzer.questions import Ask, Question, Reply
from analyzer.replay import records
from analyzer.server.link import Link, LinkClosed
from netagent.model.errors import CapabilityMissing, LocalProtocolError, RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.wire.codec import decode
from netagent.wire.messages import Service

T = TypeVar("T")

log = structlog.get_logger()

AGAIN_MIN_S, AGAIN_MAX_S = 0.5, 30.0
"""Least and most seconds from the end of a judge to the next; they double. Chosen: one that died is
soon replaced, and one that cannot live costs little CPU."""
QUERY_S = 40.0
"""Seconds that a query may take. Chosen: a comparison of tables takes up to 30."""
BACKLOG_BYTES = 1 << 30
"""Bytes that may wait for the judge. Chosen: a minute and a half of a thousand hosts, as long as a
judge takes that begins anew among them; bounds memory."""

Since = Callable[[], Awaitable[int]]
"""Returns, once a judge was told an `Open` and a roster, from which instant on it has to be told
what was received; 0: of all. Raises LinkClosed."""
Recall = Callable[[Since], AsyncIterator[Down]]
"""Yields what a new judge is told first: an `Open`, a roster, then records."""


@dataclass(slots=True)
class Stepped:
    """What came of a step."""

    questions: list[Question] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    deadline_ns: int | None = None
    """When to step again even without news."""


class Judge:
    """One judge after the other."""

    def __init__(self, open_link: Callable[[], Awaitable[Link]]) -> None:
        self._open_link = open_link
        self._recall: Recall = _nothing
        self._refused: Callable[[messages.Refused], None] = _refused
        self._link: Link | None = None
        self._held: list[bytes] | None = None
        """Frames of what happened while a new judge is told what was before."""
        self._held_bytes = 0
        self._lasting: dict[object, records.Record] = {}
        """What each new judge is told: the newest trouble of the analyzer itself, by whether it
        stood still, and what differs between controllers and their hosts."""
        self._stepped = Stepped()
        """What came since the newest step ended: of the next one, and what is said between both."""
        self._stepping: asyncio.Future[None] | None = None
        self._queries: dict[int, asyncio.Queue[Up]] = {}
        self._query = 0
        self.starts = 0
        """How often a judge was started; questions of an earlier one are nobody's any more."""
        self.pid: int | None = None
        self._since_ns: int | None = None
        """Instant of the step under way."""

    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that wait for the judge."""
        waiting = self._link.backlog_bytes if self._link is not None else 0
        return waiting + self._held_bytes  # each delivery asks

    def late_ns(self, now_ns: int) -> int:
        """Return for how long the judge has been at the step under way; 0 without one."""
        return 0 if self._since_ns is None else max(0, now_ns - self._since_ns)

    async def begin(self, recall: Recall, refused: Callable[[messages.Refused], None]) -> None:
        """Start the first judge; `recall` says what it and each later one is told first.

        `refused` is told which summaries a judge could not use. Raises OSError, LinkClosed.
        """
        self._recall, self._refused = recall, refused
        await self._start()

    async def _start(self) -> None:
        self._held, self._held_bytes = [], 0
        self._link = link = await self._open_link()
        self.starts += 1
        try:
            await self._tell(link)
        except BaseException:
            await self._drop()
            raise

    async def _tell(self, link: Link) -> None:
        """Tell a new judge what was before, and then what happened meanwhile."""
        ready = await link.receive()
        if not isinstance(ready, messages.Ready):
            raise LinkClosed
        self.pid = ready.pid

        async def since() -> int:
            holds = await link.receive()
            if not isinstance(holds, messages.Holds):
                raise LinkClosed
            return holds.since_ns

        async for message in self._recall(since):
            link.send(messages.framed(message))
            await link.drain()  # what is remembered must not fill the memory
        held, self._held, self._held_bytes = self._held, None, 0
        for frame in [*map(messages.framed, self._lasting.values()), *(held or ())]:
            link.send(frame)

    async def run(self) -> None:
        """Read what the judge says; start another one where it dies."""
        pause_s = AGAIN_MIN_S
        while True:
            began_s = asyncio.get_running_loop().time()
            try:
                if self._link is None:
                    await self._start()
                await self._read()
            except (OSError, LinkClosed, LocalProtocolError) as error:
                log.warning("judge_gone", pid=self.pid, error=str(error) or "it ended")
            await self._drop()
            if asyncio.get_running_loop().time() - began_s > AGAIN_MAX_S:
                pause_s = AGAIN_MIN_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_MAX_S)

    async def _read(self) -> None:
        link = self._link
        while link is not None:
            self._take(await link.receive())

    async def _drop(self) -> None:
        link, self._link, self._held, self._held_bytes = self._link, None, None, 0
        self.pid = None
        self._end_step()
        for query, waiting in self._queries.items():
            waiting.put_nowait(_gone(query))
        if link is not None:
            await link.close()

    async def stop(self) -> None:
        """Let the judge end."""
        await self._drop()

    # --- down -----------------------------------------------------------------------------------

    def give(self, record: records.Record) -> None:
        """Tell the judge what happened; a later one is told what is stored.

        Raises LocalProtocolError where it cannot be told at all, whether or not there is a judge.
        """
        frame = messages.framed(record)
        if isinstance(record, records.Impaired):
            self._lasting[record.stood_still] = record
        elif isinstance(record, records.Differed | records.HeldUp):
            self._lasting[type(record)] = record
        if self._held is not None:
            self._held.append(frame)
            self._held_bytes += len(frame)
        elif self._link is not None:
            self._link.send(frame)

    async def step(self, now_ns: int) -> Stepped:
        """Let the judge do what is due at `now_ns`; without one, nothing is."""
        if self._link is None or self._held is not None:
            return Stepped()
        self._since_ns = now_ns
        self._stepping = asyncio.get_running_loop().create_future()
        self.give(records.Stepped(now_ns=now_ns))
        await self._stepping
        stepped, self._stepped = self._stepped, Stepped()
        return stepped

    def answer(self, start: int, question: int, reply: Reply, now_ns: int) -> None:
        """Bring the reply to a question of the judge that was started as number `start`."""
        if start == self.starts:
            self.give(records.answered(question, reply, now_ns))

    # --- up -------------------------------------------------------------------------------------

    def _take(self, message: Up) -> None:
        match message:
            case messages.Put():
                self._stepped.questions.append(messages.question_of(message))
            case records.Told():
                self._stepped.events.append(IncidentChanged(message.incident))
            case messages.Said():
                error = JudgeError(message.error) if message.error is not None else None
                self._stepped.events.append(Remark(message.event, message.values, error))
            case messages.Done():
                self._stepped.deadline_ns = message.deadline_ns
                self._end_step()
            case messages.Refused():
                self._refused(message)
            case messages.Asking() | messages.Result() | messages.NoResult():
                waiting = self._queries.get(message.query)
                if waiting is not None:
                    waiting.put_nowait(message)
            case messages.Ready() | messages.Holds():
                raise LinkClosed

    def _end_step(self) -> None:
        self._since_ns = None
        if self._stepping is not None and not self._stepping.done():
            self._stepping.set_result(None)

    # --- queries --------------------------------------------------------------------------------

    async def look(self, what: str, kind: type[T]) -> T:
        """Return what is known, as a `kind`; see `messages.Look`. Raises CapabilityMissing."""
        return decode(await self._ask(messages.Look(query=self._next(), what=what)), kind)

    async def draw(self, asked: Picture) -> dict[str, Any]:
        """Return what the newest window shows. Raises CapabilityMissing."""
        return decode(
            await self._ask(messages.Draw(query=self._next(), asked=asked)), dict[str, Any]
        )

    async def walk(
        self,
        source: EndpointId,
        target: EndpointId,
        put: Callable[[Sequence[Ask]], Awaitable[Sequence[Reply]]],
        *,
        layers: bool = False,
        service: Service | None = None,
    ) -> dict[str, object]:
        """Walk from one endpoint to another; `put` puts its questions to agents.

        Raises RemoteProtocolError where an endpoint is not known, or CapabilityMissing.
        """
        services = [service] if service else []
        [walk] = await self.walks([(source, target)], put, layers=layers, services=services)
        return walk

    async def walks(
        self,
        pairs: Sequence[tuple[EndpointId, EndpointId]],
        put: Callable[[Sequence[Ask]], Awaitable[Sequence[Reply]]],
        *,
        layers: bool = False,
        services: Sequence[Service | None] = (),
    ) -> list[dict[str, object]]:
        """Walk several pairs at once; each host is asked twice, whatever their number.

        `services` are what each asks for, where that is not a probe. Of several, one with an
        endpoint that is not known is answered by why. Raises as `walk`.
        """
        asked = messages.Walk(
            query=self._next(), pairs=tuple(pairs), layers=layers, services=tuple(services)
        )
        return decode(await self._ask(asked, put), list[dict[str, object]])

    def _next(self) -> int:
        self._query += 1
        return self._query

    async def _ask(
        self,
        asked: messages.Query,
        put: Callable[[Sequence[Ask]], Awaitable[Sequence[Reply]]] | None = None,
    ) -> bytes:
        link = self._link
        if link is None or self._held is not None:
            raise _away()
        self._queries[asked.query] = waiting = asyncio.Queue[Up]()
        link.send(messages.framed(asked))
        try:
            async with asyncio.timeout(QUERY_S):
                while isinstance(said := await waiting.get(), messages.Asking):
                    asks = [Ask(each.host, messages.request_of(each)) for each in said.asks]
                    replies = tuple(await put(asks)) if put is not None else ()
                    # To no later judge, which knows nothing of it.
                    link.send(messages.framed(messages.replies(asked.query, replies)))
        except TimeoutError:
            raise CapabilityMissing("an answer", "the judge is busy: ask again later") from None
        finally:
            del self._queries[asked.query]
        return _body(said)


class JudgeError(Exception):
    """A bug in the judge; its text is the traceback."""


async def _nothing(_since: Since) -> AsyncIterator[Down]:
    nothing: tuple[Down, ...] = ()
    for message in nothing:
        yield message


def _refused(_why: messages.Refused) -> None:
    pass


def _gone(query: int) -> messages.NoResult:
    missing = _away()
    return messages.NoResult(query=query, error=missing.remedy, capability=missing.capability)


def _away() -> CapabilityMissing:
    return CapabilityMissing("the judge", "it is being started: ask again in some seconds")


def _body(said: Up) -> bytes:
    if isinstance(said, messages.Result):
        return said.body
    if not isinstance(said, messages.NoResult):
        raise JudgeError(f"{type(said).__name__} is no answer")
    if said.bug:
        raise JudgeError(said.error)
    if said.capability:
        raise CapabilityMissing(said.capability, said.error)
    raise RemoteProtocolError(said.error)
