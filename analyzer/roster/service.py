# SPDX-License-Identifier: Apache-2.0
"""The analyzer's methods: decoded message in, message out, idempotent, no transport."""

import itertools
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Protocol

from analyzer.roster.lists import Lists
from analyzer.roster.registry import HostState, Registry
from netagent.model.endpoint import RAILS
from netagent.model.errors import CapabilityMissing, RemoteProtocolError
from netagent.model.task import Task
from netagent.wire.messages import (
    SCHEMA,
    Accepted,
    Registered,
    Registration,
    SummaryHead,
    SummaryKey,
)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,252}")
"""Form of the name of a host, an agent's instance, a task or a container."""

MAX_NS = 2**63
"""First instant, in Unix nanoseconds, that no signed 64-bit integer holds: the store's BIGINT."""


MAX_ENDPOINTS = 4096
"""Most endpoints of one host. Chosen: eight RNICs of each of 512 containers."""


class Storage(Protocol):
    """Stores what must survive a restart; each method returns once it is on disk."""

    async def put(self, key: SummaryKey, received_ns: int, payload: bytes) -> bool:
        """Store a summary; return False if one of this key is there already."""

    async def put_host(self, state: HostState) -> None:
        """Store one host's part of the registry."""

    async def forget_host(self, host: str) -> None:
        """Drop one host's part of the registry."""

    async def put_task(self, task: Task) -> None:
        """Store a declared task."""

    async def delete_task(self, task: str) -> None:
        """Drop a declared task."""


ARRIVALS_NS = 10**9
"""Nanoseconds between two writes of who came of one task. Chosen: the containers of a large task
come within seconds, and each write has all that are still awaited."""


def _nothing(*_: object) -> None:
    """Ignore an event."""


class AnalyzerService:
    """The analyzer's methods. `wall_ns` is the analyzer's Unix time at the call."""

    def __init__(
        self,
        registry: Registry,
        lists: Lists,
        store: Storage,
        *,
        observe: Callable[[SummaryHead, bytes, int], bool] = lambda *_: False,
        changed: Callable[[Collection[str]], None] = _nothing,
        settled: Callable[[str | None, int], None] = _nothing,
    ) -> None:
        """Serve over `registry`.

        `changed` is told whose lists change, and `settled` why a summary was not stored, or None.
        """
        self._registry, self._lists, self._store = registry, lists, store
        self._observe = observe
        self._arrivals = itertools.count()
        self._arriving: dict[int, int] = {}
        """Number of a summary that is being stored -> when it came, in that order."""
        self._changed = changed
        self._settled = settled
        self._noted: dict[str, int] = {}
        """Task -> when it was last tried to store who came of it."""
        states = (registry.export_host(agent.host) for agent in registry.agents())
        self._stored = {state.agent.host: _lasting(state) for state in states if state is not None}
        """Host -> its part as it is on disk."""

    async def register(self, registration: Registration, wall_ns: int) -> Registered:
        """Take a host's endpoints; return what names those that may be probed. Idempotent.

        Raises RemoteProtocolError for a registration that contradicts itself or has a later schema.
        """
        check_schema(registration.schema)
        _check_names("host", [registration.host])
        _check_names("instance", [registration.instance])
        _check_names("container", {e.id.container for e in registration.endpoints})
        if len(registration.endpoints) > MAX_ENDPOINTS:
            raise RemoteProtocolError(
                f"{len(registration.endpoints)} endpoints of one host; {MAX_ENDPOINTS} at most"
            )
        if not 0 <= registration.generation < MAX_NS:
            raise RemoteProtocolError(f"generation {registration.generation} is out of range")
        host, before = registration.host, self._registry.export_host(registration.host)
        touched = self._registry.apply(registration, wall_ns)
        after = self._registry.export_host(host)
        if before is not None and after is not None and before.agent.rpc_url != after.agent.rpc_url:
            self._lists.readdressed(host)
        # This host's agent announces its containers to the agents that expect them. So this takes
        # one message here, and not one per host of the task. Their next lists have them too.
        crowds = self._hosts(task for task in touched if not self._expects(task))
        self._changed({host} | self._lists.take_owners() | crowds)
        if after is not None and self._stored.get(host) != _lasting(after):
            await self._keep(after)
        await self._note_arrivals(wall_ns, wait_ns=ARRIVALS_NS)
        return Registered(sources=self._lists.named(host))

    async def push(self, summary: SummaryHead, payload: bytes, wall_ns: int) -> Accepted:
        """Store one host's closed window, as msgpack `payload`. Idempotent on its key.

        The summary is on disk when this returns. Raises RemoteProtocolError for what no agent
        sends.
        """
        check_schema(summary.schema)
        _check_names("host", [summary.host])
        if not 0 <= summary.start_ns < MAX_NS or not 0 < summary.width_ns < MAX_NS:
            raise RemoteProtocolError(
                f"window {summary.start_ns} of {summary.width_ns} ns is out of range"
            )
        # Whether the disk takes it or not: the agent lives.
        heard = summary.host, summary.start_ns, wall_ns
        is_told = not self._registry.is_heard(summary.host, wall_ns)  # who is back may take much
        if is_told:
            self._registry.heard(*heard)
        else:
            self._registry.hear(*heard)
        arrival = next(self._arrivals)
        self._arriving[arrival] = wall_ns
        try:
            new = await self._store.put(summary.key, wall_ns, payload)
            self._settled(None, wall_ns)
            if new:
                is_told |= self._observe(summary, payload, wall_ns)
        except CapabilityMissing as error:
            self._settled(error.remedy, wall_ns)
            raise
        finally:
            del self._arriving[arrival]
            if not is_told:
                self._registry.heard(*heard)
        return Accepted(duplicate=not new)

    def arriving_ns(self) -> int | None:
        """Return when the oldest summary came that is still being stored; None without one."""
        return next(iter(self._arriving.values()), None)

    async def put_task(self, task: Task, wall_ns: int) -> Task:
        """Declare a task. Idempotent.

        Raises RemoteProtocolError, also where another source declared it, or one of its containers.
        """
        _check_names("task", [task.id])
        _check_names("container", task.containers)
        _check_names("host", {host for host in task.hosts if host})
        if len(task.hosts) not in {0, len(task.containers)}:
            raise RemoteProtocolError("hosts are none, or one for each container")
        if any(not 0 <= rail < RAILS for rail in task.rails) or task.rnics_per_container < 0:
            raise RemoteProtocolError("rails are 0..1023, rnics_per_container is not negative")
        self._check_source(task.id, task.source)
        touched = self._registry.put_task(task, wall_ns)
        self._changed(self._lists.take_owners() | self._hosts({task.id, *touched}))
        declared = self._registry.task(task.id) or task
        await self._store.put_task(self._registry.export_task(task.id))
        return declared

    async def delete_task(self, task: str, wall_ns: int, *, source: str = "") -> bool:
        """Withdraw a declared task; return False if none was declared. Idempotent.

        Raises RemoteProtocolError where another source than `source` declared it.
        """
        self._check_source(task, source)
        hosts = self._lists.hosts(task)
        touched = self._registry.delete_task(task, wall_ns)
        await self._store.delete_task(task)
        self._noted.pop(task, None)
        self._changed(hosts | self._lists.take_owners() | self._hosts(touched or ()))
        return touched is not None

    async def forget(self, host: str, wall_ns: int) -> bool:
        """Drop a host that left the cluster; return False if it is unknown. Idempotent."""
        known = self._registry.agent(host) is not None
        touched = self._registry.forget(host, wall_ns)
        self._stored.pop(host, None)
        await self._store.forget_host(host)
        self._changed({host} | self._lists.take_owners() | self._hosts(touched))
        return known

    async def expire(self, wall_ns: int) -> None:
        """Drop endpoints that vanished long ago, and store what waits to be."""
        for host in self._registry.expire(wall_ns):
            state = self._registry.export_host(host)
            if state is not None:
                await self._keep(state)
        await self._note_arrivals(wall_ns)

    def replan(self, hosts: Collection[str]) -> None:
        """Build the ping lists of `hosts` anew: what their tasks use is seen differently now."""
        self._changed(hosts)

    def _check_source(self, task: str, source: str) -> None:
        known = self._registry.task(task)
        if known is not None and known.declared and known.source != source:
            by = known.source or "a call of the API"
            raise RemoteProtocolError(f"task {task} was declared by {by}")

    def _expects(self, task: str) -> bool:
        """Return whether agents expect the containers of `task`, and hear of them by themselves."""
        return bool(self._registry.containers_of(task))

    def _hosts(self, tasks: Iterable[str]) -> set[str]:
        return {host for task in tasks for host in self._lists.hosts(task)}

    async def _keep(self, state: HostState) -> None:
        await self._store.put_host(state)
        self._stored[state.agent.host] = _lasting(state)

    async def _note_arrivals(self, wall_ns: int, *, wait_ns: int = 0) -> None:
        """Store who came of declared tasks; one that was stored within `wait_ns` waits.

        Nothing is lost meanwhile: the hosts of who came are stored, and name them again.
        """
        for task in sorted(self._registry.arrivals()):
            if abs(wall_ns - self._noted.get(task, -wait_ns)) < wait_ns:
                continue
            if not self._expects(task):  # another may be withdrawn meanwhile
                self._registry.noted(task)
                continue
            self._noted[task] = wall_ns
            exported = self._registry.export_task(task)
            await self._store.put_task(exported)
            if self._expects(task) and self._registry.export_task(task) == exported:
                self._registry.noted(task)  # else more of it came while this was written


def _lasting(state: HostState) -> HostState:
    """Return what of a host's part is worth a write: not when it was heard last."""
    return replace(state, agent=replace(state.agent, last_seen_ns=0, last_window_ns=0))


def check_schema(schema: int) -> None:
    """Raise RemoteProtocolError for a schema that is later than this analyzer's."""
    if schema > SCHEMA:
        raise RemoteProtocolError(
            f"schema {schema}; this analyzer speaks up to {SCHEMA}: update it"
        )


def _check_names(what: str, names: Collection[str]) -> None:
    for name in names:
        if not NAME.fullmatch(name):
            raise RemoteProtocolError(f"{name[:80]!r} can name no {what}")
