# SPDX-License-Identifier: Apache-2.0
"""Puts into practice what the broker decides: agents and the hook are asked, and answer it.

What is about to be done is in the trail's file before it is done; where it cannot be written,
nothing is done.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import structlog

from analyzer.actions.broker import Action, Broker, Entry, Limits, Mode
from analyzer.actions.verbs import CORDON, DISABLE, ENABLE, UNCORDON, Remedy, Verb
from analyzer.fleet import Refused
from analyzer.intent.ovn import SOURCE
from analyzer.roster.driven import DrivenHosts
from analyzer.roster.registry import Registry
from analyzer.server import hook
from analyzer.server.ports import Ports
from netagent.model.errors import CapabilityMissing, NetAgentError, TooSoon, Unreachable
from netagent.model.verdict import Incident
from netagent.wire.actions import ActionReply, ActionRequest, HostVerb

DRY_S = 12.0
"""Seconds that an agent may take to say what it would do. Chosen: it asks two daemons, with three
seconds each."""
IDLE_S = 5.0
"""Longest pause between two steps, in seconds. Chosen: the wall clock may be set meanwhile."""
LEAST_S = 0.05
RETRY_S = 5.0
"""Seconds between two attempts to write what the disk refused."""

log = structlog.get_logger()

T = TypeVar("T")

_NOT_REACHED = {"refused", "no route", "connect timeout", "unknown host"}
"""Reasons of Unreachable with which nothing was even asked."""


class Agents(Protocol):
    """Has hosts do things; `analyzer.fleet.Fleet` in production."""

    async def act(
        self, host: str, request: ActionRequest, *, deadline_s: float = ...
    ) -> ActionReply:
        """Return what a host did, or would do."""


class Storage(Protocol):
    """Keeps the trail; `analyzer.store.trail.Trail` in production."""

    def read(self) -> list[Entry]:
        """Return all entries, oldest first; raises OSError."""

    def add(self, entries: Iterable[Entry]) -> None:
        """Append entries; they are on disk when this returns. Raises OSError."""


class Acting:
    """The broker at work. `take` is told of each incident; `run` does what is due."""

    def __init__(
        self,
        limits: Limits,
        trail: Storage,
        agents: Agents,
        clock: Callable[[], int],
        *,
        bridge_of: Callable[[str], str],
        hosts: Callable[[], int],
        ports: Ports | None = None,
    ) -> None:
        self.broker = Broker(limits, bridge_of)
        self._trail, self._agents, self._clock, self._hosts = trail, agents, clock, hosts
        self._ports = ports
        """Disables ports, where no command does."""
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._doing: set[asyncio.Task[Any]] = set()
        self._undoing = asyncio.Lock()
        self._left: Sequence[Action] = ()
        """What was begun, and whoever did it ended."""
        self.is_written = True
        """Whether the disk took the newest entries."""

    @property
    def mode(self) -> Mode:
        """Return what is permitted."""
        return self.broker.limits.mode

    def begin(self, incidents: Iterable[Incident]) -> None:
        """Know again what was done, and how the incidents are that go on, or are over."""
        try:
            self.broker.restore(self._trail.read())
        except OSError as error:
            log.warning("trail_unreadable", error=str(error))
            # Who knows what was done lately? A person.
            self.broker.opened = f"the trail cannot be read: {error}"
        self._left = self.broker.unfinished()
        for incident in incidents:
            self.broker.take(incident, self._clock())

    def take(self, incident: Incident) -> None:
        """Take an incident as it is told."""
        self.broker.take(incident, self._clock())
        self._wake.set()

    async def run(self) -> None:
        """Do what is due, until cancelled."""
        try:
            left, self._left = self._left, ()
            for action in left:
                self._start(self._again(action))
            while True:
                self._wake.clear()
                starting = self.broker.step(self._clock(), hosts=self._hosts())
                await self._write()
                for action in starting:
                    self._start(self._do(action))
                await self._rest()
        finally:
            for task in self._doing:
                task.cancel()
            await asyncio.gather(*self._doing, return_exceptions=True)
            self._left = self.broker.unfinished()

    # --- persons ---------------------------------------------------------------------------------

    async def look(self, incident: str, by: str) -> list[tuple[Action, ActionReply | None, str]]:
        """Return what could be done about an incident, what its host says of it, or why not.

        No host is asked about what is none of its verbs.
        """
        found = []
        for each in self.broker.offers(incident):
            reply, problem = await self._dry(each, by)
            if not problem and not (reply is not None and reply.refused):
                problem = self.broker.held(each, self._clock(), hosts=self._hosts())
            found.append((each, reply, problem))
        return found

    async def do(self, action_id: str, by: str) -> str:
        """Do something that a person wants; return why it was not done, "" where it was."""
        action = self.broker.begin(action_id, by, self._clock(), hosts=self._hosts())
        if isinstance(action, str):
            return action
        await self._write()
        task = self._start(self._do(action, by))
        await asyncio.shield(task)  # who hangs up leaves it to itself
        last = self._last(action_id)
        return "" if last is None or last.step in _GOOD else last.text or last.step.value

    async def undo(self, action_id: str, by: str) -> str:
        """Take back what was done; return why it was not, "" where it was."""
        async with self._undoing:
            action = self.broker.undo(action_id)
            if action is None:
                return "there is nothing to undo: it was not done, was undone, or left nothing"
            return await asyncio.shield(self._start(self._undo(action, by)))

    async def close(self, by: str, why: str = "") -> None:
        """Close the breaker."""
        self.broker.close(by, self._clock(), why)
        log.warning("breaker_closed", by=by)
        await self._write()

    def _last(self, action_id: str) -> Entry | None:
        found = (e for e in reversed(self.broker.trail) if e.action and e.action.id == action_id)
        return next(found, None)

    def last_of(self, action: Action) -> str:
        """Return what became of an action so far; "" where nothing did."""
        last = self._last(action.id)
        return last.step.value if last is not None else ""

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        """Return entries of the trail since the start, by verb and step."""
        return self.broker.counts

    # --- doing -----------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(work)
        self._doing.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._doing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("action_lost", exc_info=error)  # a bug; it is in the trail as started

    async def _again(self, action: Action) -> None:
        """Ask again for what an earlier analyzer began; agents do an id once."""
        if action.remedy.verb in _HERE:
            why = "the analyzer ended while it was done: see whether it was"
            self.broker.ended(action, why, self._clock())
            await self._write()
        else:
            await self._do(action)

    async def _do(self, action: Action, by: str = "netagent") -> None:
        problem, refusal = "", ""
        if not self.is_written:
            refusal = "the trail cannot be written: the disk refuses it"
        elif action.remedy.verb is Verb.CORDON:
            problem = await self._cordon(action.remedy, CORDON)
        elif action.remedy.verb is Verb.DISABLE_PORT:
            problem, refusal = await self._disable(action)
        else:
            problem, refusal = await self._ask(action, by)
        if refusal:
            self.broker.refused(action, refusal, self._clock())
        else:
            self.broker.ended(action, problem, self._clock())
        await self._write()
        self._wake.set()

    async def _undo(self, action: Action, by: str) -> str:
        if action.remedy.verb is Verb.DISABLE_PORT:
            problem = await self._enable(action)
        else:
            problem = await self._cordon(action.remedy, UNCORDON)
        self.broker.undone(action, by, problem, self._clock())
        await self._write()
        return problem

    async def _cordon(self, remedy: Remedy, do: str) -> str:
        command = self.broker.limits.cordon
        if not command:
            return "no command is configured that does it (actions.cordon_command)"
        return await hook.run((*command, do, remedy.host))

    async def _disable(self, action: Action, *, dry_run: bool = False) -> tuple[str, str]:
        """Return why it failed, and why it was not begun at all."""
        way, port = self.broker.limits.port, action.remedy.object
        if way is not None and way.command:
            return "" if dry_run else await hook.run((*way.command, DISABLE, port)), ""
        if self._ports is None:
            return "", _NO_WAY
        return await self._ports.disable(port, action.id, dry_run=dry_run)

    async def _enable(self, action: Action) -> str:
        way, port = self.broker.limits.port, action.remedy.object
        if way is not None and way.command:
            return await hook.run((*way.command, ENABLE, port))
        return _NO_WAY if self._ports is None else await self._ports.enable(port, action.id)

    async def _ask(self, action: Action, by: str) -> tuple[str, str]:
        """Return why it failed, and why it was not begun at all."""
        request = _request(action, by, dry_run=False)
        try:
            reply = await self._agents.act(action.remedy.host, request)
        except NetAgentError as error:
            return ("", str(error)) if _is_refusal(error) else (str(error), "")
        if reply.refused:
            return "", reply.refused
        return "" if reply.done else reply.problem or "it was not done", ""

    async def _dry(self, action: Action, by: str) -> tuple[ActionReply | None, str]:
        if action.remedy.verb is Verb.CORDON:
            can = self.broker.limits.can(Verb.CORDON)
            return None, "" if can else "no command is configured (actions.cordon_command)"
        if action.remedy.verb is Verb.DISABLE_PORT:
            problem, refusal = await self._disable(action, dry_run=True)
            return None, problem or refusal
        request = _request(action, by, dry_run=True)
        try:
            return await self._agents.act(action.remedy.host, request, deadline_s=DRY_S), ""
        except NetAgentError as error:
            return None, str(error)

    # --- the trail -------------------------------------------------------------------------------

    async def _write(self) -> None:
        """Write down what is new; what the disk refuses is tried again."""
        async with self._writing:
            news = list(self.broker.news)
            if not news:
                return
            try:
                await asyncio.to_thread(self._trail.add, news)
            except OSError as error:
                if self.is_written:
                    log.warning("trail_not_written", error=str(error))
                self.is_written = False
                return
            self.is_written = True
            for entry in news:
                with suppress(ValueError):
                    self.broker.news.remove(entry)
                _tell(entry)

    async def _rest(self) -> None:
        due_ns = self.broker.deadline_ns()
        rest_s = IDLE_S if due_ns is None else (due_ns - self._clock()) / 1e9
        limit_s = IDLE_S if self.is_written else RETRY_S
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(rest_s, LEAST_S), limit_s)):
                await self._wake.wait()


_GOOD = {"done", "helped"}
_HERE = {Verb.CORDON, Verb.DISABLE_PORT}
"""What no agent does, which would do an action once however often it is asked for."""
_NO_WAY = "nothing is configured that disables ports (actions.port_command, actions.northbound)"


def _is_refusal(error: NetAgentError) -> bool:
    """Whether an error says that nothing was begun."""
    match error:
        case Refused():
            return error.status < 500
        case Unreachable():
            return error.reason in _NOT_REACHED
        case _:
            return isinstance(error, TooSoon | CapabilityMissing)


def _request(action: Action, by: str, *, dry_run: bool) -> ActionRequest:
    return ActionRequest(
        id=action.id,
        verb=HostVerb(action.remedy.verb.value),
        bridge=action.remedy.object,
        dry_run=dry_run,
        by=by,
    )


def _tell(entry: Entry) -> None:
    action = entry.action
    about = {} if action is None else {
        "action": action.id, "verb": action.remedy.verb.value, "host": action.remedy.host,
        "incident": action.incident,
    }  # fmt: skip
    log.warning("action", step=entry.step.value, by=entry.by, text=entry.text, **about)


def driven_bridge(registry: Registry, driven: DrivenHosts, host: str) -> str:
    """Return the bridge of a host that OVN drives; "" where it does not: no verb is of others.

    It is the one that its endpoints are plugged into; the agent compares it with its own.
    """
    said = driven.said.get(host)
    if said is None or said.state.source != SOURCE:
        return ""
    bridges = Counter(
        record.endpoint.bridge for record in registry.endpoints_of(host) if record.endpoint.bridge
    )
    return max(sorted(bridges), key=lambda each: bridges[each], default="")
