# SPDX-License-Identifier: Apache-2.0
"""Steps the judge, and puts its questions to agents."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from analyzer.diagnosis.engine import Event, IncidentChanged
from analyzer.questions import (
    Answer,
    Ask,
    Failed,
    MeaningReply,
    MeaningRequest,
    Question,
    Reply,
    Request,
    StatusRequest,
    Why,
)
from analyzer.replay.records import Arriving, Impaired, PutLate
from analyzer.server.judge import Judge
from netagent.model.errors import CapabilityMissing, NetAgentError, TooSoon, Unreachable
from netagent.model.verdict import Incident
from netagent.wire.messages import CheckReply, CheckRequest, PathReply, PathRequest, Status
from netagent.wire.trace import TraceReply, TraceRequest
from netagent.wire.validate import ValidateReply, ValidateRequest

TICK_S = 0.1
"""Seconds from a summary to the step that judges it. Chosen: summaries of one window come together,
and one step takes them all."""
IDLE_S = 1.0
"""Longest pause between two steps, in seconds. Chosen: the wall clock may be set meanwhile."""
LEAST_S = 0.05
"""Shortest pause between two steps, and shortest deadline of a question, in seconds. Chosen: a
diagnosis that is due at once must not take the whole loop."""
WALK_S = 5.0
"""Seconds an agent may take to answer a question of `put`. Chosen: a person waits for it."""
VALIDATE_S = 30.0
"""The same for a comparison of tables. Chosen: the agent gives up after 15 s, and a person asked
for it."""

BEAT_S = 0.25
"""Seconds between two looks at whether the event loop goes on. Chosen: as agents look at theirs."""
STOOD_S = 2.0
"""Seconds by which such a look is late from which the analyzer stood still. Chosen: as long as an
agent has to answer a status request; judging has a process of its own."""
LATE_NS = 1_000_000_000
"""Nanoseconds that a step takes from which what it says is marked as late. Chosen: a fifth of a
window."""

KINDS: dict[type[Request], str] = {
    StatusRequest: "status", CheckRequest: "check", PathRequest: "path", TraceRequest: "trace",
    ValidateRequest: "validate", MeaningRequest: "meaning",
}  # fmt: skip
"""What questions are called."""
ANSWERED = "answered"
"""What came of a question; else a `Why`."""

log = structlog.get_logger()


class Agents(Protocol):
    """Puts questions to agents; `analyzer.fleet.Fleet` in production."""

    async def status(self, host: str, *, deadline_s: float = ...) -> Status:
        """Return the agent's status; raises Unreachable."""

    async def check(
        self, host: str, request: CheckRequest, *, deadline_s: float = ...
    ) -> CheckReply:
        """Return walks through the host's flow tables; raises Unreachable."""

    async def path(self, host: str, request: PathRequest, *, deadline_s: float = ...) -> PathReply:
        """Return outer paths, and counts per router if asked for; raises Unreachable."""

    async def trace(
        self, host: str, request: TraceRequest, *, deadline_s: float = ...
    ) -> TraceReply:
        """Return what a host's trace saw; raises Unreachable, or RemoteProtocolError if refused."""

    async def validate(
        self, host: str, request: ValidateRequest, *, deadline_s: float = ...
    ) -> ValidateReply:
        """Return what a host's tables disagree about; raises Unreachable or TooSoon."""


Meanings = Callable[[str, MeaningRequest, float], Awaitable[MeaningReply]]


class Asker:
    """Runs a judge against the agents of a cluster."""

    def __init__(
        self,
        judge: Judge,
        agents: Agents,
        clock: Callable[[], int],
        tell: Callable[[Incident], None],
    ) -> None:
        self._judge, self._agents, self._clock = judge, agents, clock
        self._tell = tell
        self.arriving_ns: Callable[[], int | None] = lambda: None
        """Returns when the oldest summary came that is still being stored; None without one."""
        self.meaning: Meanings = _no_controller
        """Says what a controller wants where walks end."""
        self.asked = Counter[tuple[str, str]]()
        """Questions put to agents since the start, by kind and what came of them."""
        self._wake = asyncio.Event()
        self._ticking = False
        self._asking: set[asyncio.Task[None]] = set()
        self._beat_s: float | None = None
        """When the event loop was last seen to go on, by its own clock."""
        self.stood_still = 0
        """How often it stood still since the start."""
        self._due_ns: int | None = None
        """When to step again even without news."""
        self.late_ns = 0
        """Nanoseconds that the newest step took."""

    async def run(self) -> None:
        """Step whenever a summary or an answer came or a deadline passed, until cancelled."""
        beat = asyncio.create_task(self._watch())
        try:
            while True:
                await self._step()
                await self._rest()
        finally:
            beat.cancel()
            for task in self._asking:
                task.cancel()
            await asyncio.gather(beat, *self._asking, return_exceptions=True)
            self._beat_s = None

    def news(self) -> None:
        """Note that summaries were ingested: step within TICK_S."""
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self._wake.set()

    async def _watch(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(BEAT_S)

    def _look(self) -> None:
        """Tell the judge if the loop stood still: what agents sent meanwhile is not read."""
        now_s = asyncio.get_running_loop().time()
        before_s, self._beat_s = self._beat_s, now_s
        if before_s is not None and now_s - before_s > BEAT_S + STOOD_S:
            self.stood_still += 1
            log.warning("stood_still", seconds=round(now_s - before_s, 1))
            self._judge.give(Impaired(stood_still=True, now_ns=self._clock()))

    async def _step(self) -> None:
        self._look()  # before a window is closed without what waits to be read
        loop, began_ns, start = asyncio.get_running_loop(), self._clock(), self._judge.starts
        began_s = loop.time()  # the wall clock may be set meanwhile
        if (since_ns := self.arriving_ns()) is not None:
            self._judge.give(Arriving(since_ns=since_ns, now_ns=began_ns))
        stepped = await self._judge.step(began_ns)
        self._due_ns, self.late_ns = stepped.deadline_ns, round((loop.time() - began_s) * 1e9)
        if stepped.questions:
            self._judge.give(PutLate(now_ns=began_ns + self.late_ns))
        for question in stepped.questions:
            left_s = max(LEAST_S, (question.deadline_ns - began_ns) / 1e9)
            task = asyncio.create_task(self._ask(start, question, left_s))
            self._asking.add(task)
            task.add_done_callback(self._asked)
        for event in stepped.events:
            self._say(event)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("answer_not_taken", exc_info=error)  # a bug; its deadline answers for it

    async def _rest(self) -> None:
        due_ns, now_ns = self._due_ns, self._clock()
        rest_s = IDLE_S if due_ns is None else (due_ns - now_ns) / 1e9
        try:
            async with asyncio.timeout(min(max(rest_s, LEAST_S), IDLE_S)):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _ask(self, start: int, question: Question, left_s: float) -> None:
        reply = await self._put(question.host, question.request, left_s)
        self._judge.answer(start, question.id, reply, self._clock())
        self._wake.set()

    async def put(self, asks: Sequence[Ask]) -> Sequence[Reply]:
        """Put questions to agents, and return their replies in the same order."""
        return await asyncio.gather(*map(self._answer, asks))

    async def _answer(self, ask: Ask) -> Reply:
        limit_s = VALIDATE_S if isinstance(ask.request, ValidateRequest) else WALK_S
        return await self._put(ask.host, ask.request, limit_s)

    async def _put(self, host: str, request: Request, deadline_s: float) -> Reply:
        reply = await self._reply(host, request, deadline_s)
        outcome = reply.why.value if isinstance(reply, Failed) else ANSWERED
        self.asked[KINDS[type(request)], outcome] += 1
        return reply

    async def _reply(self, host: str, request: Request, deadline_s: float) -> Reply:
        try:
            return await self._call(host, request, deadline_s)
        except Unreachable as error:
            failed = Failed(_WHY.get(error.reason, Why.UNREACHABLE), error.reason)
        except CapabilityMissing as error:
            failed = Failed(Why.CANNOT, str(error))
        except TooSoon as error:
            failed = Failed(Why.BUSY, error.reason)
        except NetAgentError as error:
            failed = Failed(Why.ODD, str(error))
        except Exception as error:  # supervision: the question is answered, whatever it was
            log.exception("question_failed", host=host, request=type(request).__name__)
            return Failed(Why.ODD, f"{type(error).__name__}: {error}")
        if not isinstance(request, StatusRequest) or failed.why is Why.ODD:
            values = {"why": failed.why.value, "text": failed.text}
            log.warning("not_answered", host=host, request=type(request).__name__, **values)
        return failed

    async def _call(self, host: str, request: Request, deadline_s: float) -> Answer:
        match request:
            case StatusRequest():
                return await self._agents.status(host, deadline_s=deadline_s)
            case CheckRequest():
                return await self._agents.check(host, request, deadline_s=deadline_s)
            case PathRequest():
                return await self._agents.path(host, request, deadline_s=deadline_s)
            case TraceRequest():
                return await self._agents.trace(host, request, deadline_s=deadline_s)
            case ValidateRequest():
                return await self._agents.validate(host, request, deadline_s=deadline_s)
            case MeaningRequest():
                return await self.meaning(host, request, deadline_s)

    def _say(self, event: Event) -> None:
        if isinstance(event, IncidentChanged):
            late_ns = self.late_ns if self.late_ns > LATE_NS else 0
            incident = replace(event.incident, late_ns=late_ns)
            log.info(
                "incident_changed",
                incident=incident.id,
                state=incident.state.value,
                component=str(incident.verdict.component or "insufficient evidence"),
                symptom=incident.verdict.symptom.value,
                confidence=incident.verdict.confidence,
            )
            self._tell(incident)
        elif event.error is not None:
            log.error(event.event, exc_info=event.error, **event.values)
        else:
            log.info(event.event, **event.values)


async def _no_controller(host: str, _asked: MeaningRequest, _deadline_s: float) -> MeaningReply:
    raise CapabilityMissing(
        f"the intent of {host}", "only OVN's databases say it: [controllers.ovn]"
    )


_WHY = {"refused": Why.REFUSED, "timeout": Why.TIMEOUT}
