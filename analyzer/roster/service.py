# SPDX-License-Identifier: Apache-2.0
"""The analyzer's methods: decoded message in, message out, idempotent, no transport."""

import re
from collections.abc import Callable, Collection
from typing import Protocol

from analyzer.roster import pinglist
from analyzer.roster.pinglist import ListVersion, PingLists, Uses, all_used
from analyzer.roster.registry import HostState, Registry
from netagent.model.endpoint import RAILS
from netagent.model.errors import CapabilityMissing, RemoteProtocolError
from netagent.model.pinglist import PingList
from netagent.model.task import Task
from netagent.wire.messages import SCHEMA, Accepted, Peer, Registered, Registration, SummaryHead

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,252}")
"""Form of the name of a host, an agent's instance, a task or a container."""

MAX_NS = 2**63
"""First instant, in Unix nanoseconds, that no signed 64-bit integer holds: the store's BIGINT."""


class Storage(Protocol):
    """Stores what must survive a restart; each method returns once it is on disk."""

    async def put(self, host: str, start_ns: int, received_ns: int, payload: bytes) -> bool:
        """Store a summary; return False if (host, start_ns) is there already."""

    async def put_host(self, state: HostState) -> None:
        """Store one host's part of the registry."""

    async def forget_host(self, host: str) -> None:
        """Drop one host's part of the registry."""

    async def put_task(self, task: Task) -> None:
        """Store a declared task."""

    async def delete_task(self, task: str) -> None:
        """Drop a declared task."""

    async def put_versions(self, versions: Collection[ListVersion]) -> None:
        """Store versions of ping lists."""


def _nothing(*_: object) -> None:
    """Ignore an event."""


class AnalyzerService:
    """The analyzer's methods. `wall_ns` is the analyzer's Unix time at the call."""

    def __init__(
        self,
        registry: Registry,
        lists: PingLists,
        store: Storage,
        *,
        observe: Callable[[SummaryHead, bytes, int], None] = _nothing,
        changed: Callable[[Collection[str]], None] = _nothing,
        uses: Uses = all_used,
        settled: Callable[[str | None, int], None] = _nothing,
    ) -> None:
        """Serve over `registry`; `settled` is told why a summary was not stored, or None."""
        self._registry, self._lists, self._store = registry, lists, store
        self._observe = observe
        self._changed = changed
        self._uses, self._settled = uses, settled
        self._dirty = {agent.host for agent in registry.agents()}  # lists to build when asked for

    async def register(self, registration: Registration, wall_ns: int) -> Registered:
        """Take a host's endpoints; return its ping list and its peers. Idempotent.

        Raises RemoteProtocolError for a registration that contradicts itself or has a later schema.
        """
        _check_schema(registration.schema)
        _check_names("host", [registration.host])
        _check_names("instance", [registration.instance])
        _check_names("container", {e.id.container for e in registration.endpoints})
        if not 0 <= registration.generation < MAX_NS:
            raise RemoteProtocolError(f"generation {registration.generation} is out of range")
        host = registration.host
        before = self._registry.tasks_of(host)
        touched = self._registry.apply(registration, wall_ns) | {host}
        tasks = before | self._registry.tasks_of(host)
        # This host's agent announces its containers to the agents that expect them. So this takes
        # one message here, and not one per host of the task. Their next lists have them too.
        self._dirty.update(touched)
        if not all(self._containers(task) for task in tasks):
            self._changed(touched)
        await self._keep(host)
        while arrivals := self._registry.arrivals():
            task = min(arrivals)  # one at a time: another may be withdrawn meanwhile
            await self._store.put_task(self._registry.export_task(task))
            self._registry.noted(task)
        pinglist = await self.pinglist(host, wall_ns)
        return Registered(pinglist=pinglist, peers=self._peers(host, tasks))

    async def pinglist(self, host: str, wall_ns: int) -> PingList:
        """Return the current list of `host`; its version is on disk before anybody sees it."""
        if host in self._dirty:
            self._dirty.discard(host)
            mine = [r.endpoint for r in self._registry.endpoints_of(host) if r.active]
            targets = pinglist.active(host, mine, self._registry.group, self._uses)
            awaited = pinglist.expected(mine, self._containers)
            version = self._lists.update(host, targets, wall_ns, awaited)
            if version is not None:
                await self._store.put_versions([version])
        return self._lists.get(host)

    async def push(self, summary: SummaryHead, payload: bytes, wall_ns: int) -> Accepted:
        """Store one host's closed window, as msgpack `payload`. Idempotent on (host, start_ns).

        The summary is on disk when this returns. Raises RemoteProtocolError for what no agent
        sends.
        """
        _check_schema(summary.schema)
        _check_names("host", [summary.host])
        if not 0 <= summary.start_ns < MAX_NS or not 0 < summary.width_ns < MAX_NS:
            raise RemoteProtocolError(
                f"window {summary.start_ns} of {summary.width_ns} ns is out of range"
            )
        # Whether the disk takes it or not: the agent lives.
        self._registry.heard(summary.host, summary.start_ns, wall_ns)
        try:
            new = await self._store.put(summary.host, summary.start_ns, wall_ns, payload)
        except CapabilityMissing as error:
            self._settled(error.remedy, wall_ns)
            raise
        self._settled(None, wall_ns)
        if new:
            self._observe(summary, payload, wall_ns)
        return Accepted(duplicate=not new)

    async def put_task(self, task: Task, wall_ns: int) -> Task:
        """Declare a task. Idempotent. Raises RemoteProtocolError, also for a container taken."""
        _check_names("task", [task.id])
        _check_names("container", task.containers)
        if any(not 0 <= rail < RAILS for rail in task.rails) or task.rnics_per_container < 0:
            raise RemoteProtocolError("rails are 0..1023, rnics_per_container is not negative")
        self._touch(self._registry.put_task(task, wall_ns))
        declared = self._registry.task(task.id) or task
        await self._store.put_task(self._registry.export_task(task.id))
        return declared

    async def delete_task(self, task: str, wall_ns: int) -> bool:
        """Withdraw a declared task; return False if none was declared. Idempotent."""
        touched = self._registry.delete_task(task, wall_ns)
        await self._store.delete_task(task)
        self._touch(touched or set())
        return touched is not None

    async def forget(self, host: str, wall_ns: int) -> bool:
        """Drop a host that left the cluster; return False if it is unknown. Idempotent."""
        known = self._registry.agent(host) is not None
        touched = self._registry.forget(host, wall_ns)
        await self._store.forget_host(host)
        self._touch(touched | {host})
        return known

    async def expire(self, wall_ns: int) -> None:
        """Drop endpoints that vanished long ago."""
        for host in self._registry.expire(wall_ns):
            await self._keep(host)

    def replan(self, hosts: Collection[str]) -> None:
        """Build the ping lists of `hosts` anew: what their tasks use is seen differently now."""
        self._touch(hosts)

    def _containers(self, task: str) -> tuple[str, ...]:
        """Return the containers that were declared of a task; none of one that only agents know."""
        known = self._registry.task(task)
        return known.containers if known is not None and known.declared else ()

    def _peers(self, host: str, tasks: Collection[str]) -> tuple[Peer, ...]:
        there = {each.host for task in tasks for each in self._registry.active_endpoints(task)}
        agents = (self._registry.agent(name) for name in sorted(there - {host}))
        return tuple(Peer(host=a.host, rpc_url=a.rpc_url) for a in agents if a is not None)

    async def _keep(self, host: str) -> None:
        state = self._registry.export_host(host)
        if state is not None:
            await self._store.put_host(state)

    def _touch(self, hosts: Collection[str]) -> None:
        self._dirty.update(hosts)
        self._changed(hosts)


def _check_schema(schema: int) -> None:
    if schema > SCHEMA:
        raise RemoteProtocolError(
            f"schema {schema}; this analyzer speaks up to {SCHEMA}: update it"
        )


def _check_names(what: str, names: Collection[str]) -> None:
    for name in names:
        if not NAME.fullmatch(name):
            raise RemoteProtocolError(f"{name[:80]!r} can name no {what}")
