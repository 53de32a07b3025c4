# SPDX-License-Identifier: Apache-2.0
"""What agents follow to make their ping lists: groups and tasks, as differences.

Nothing here is stored: a version names the content of a list, so that an analyzer that restarts
goes on with those that agents have.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

from analyzer.roster import pinglist
from analyzer.roster.ledger import Ledger
from analyzer.roster.pinglist import Used, unknown
from analyzer.roster.registry import EndpointRecord, Registry
from netagent.model.endpoint import Endpoint
from netagent.model.pinglist import PingList, Target
from netagent.wire.codec import encode
from netagent.wire.messages import Peer
from netagent.wire.roster import (
    KEY_BYTES,
    Follow,
    Group,
    GroupChange,
    HeldTask,
    Source,
    TaskChange,
    Update,
    digest_of,
    member_of,
    named,
)


@dataclass(slots=True)
class _Task:
    """The hosts that hold endpoints of a task which may be probed."""

    hosts: Ledger = field(default_factory=Ledger)
    held: Counter[str] = field(default_factory=Counter)
    """Host -> how many."""


class Lists:
    """The groups of all tasks, as the registry has them."""

    def __init__(
        self,
        registry: Registry,
        *,
        rare_share: float = 0.1,
        used: Used = unknown,
        secret: bytes = b"",
    ) -> None:
        """`secret` is what keys of groups are made of; without one there are none."""
        self._secret = secret
        self._registry, self._rare_share, self._used = registry, rare_share, used
        self._groups: dict[Group, Ledger] = {}
        self._tasks: dict[str, _Task] = {}
        self._containers: dict[str, tuple[tuple[str, ...], bytes]] = {}  # task -> and their digest
        self._owners: set[str] = set()  # hosts whose own endpoints changed
        for record in registry.endpoints():
            self.moved(None, record)
        registry.watchers.append(self)

    # --- what the registry says ------------------------------------------------------------------

    def moved(self, before: EndpointRecord | None, after: EndpointRecord | None) -> None:
        """Take a change of an endpoint."""
        old, new = (r if r is not None and r.active else None for r in (before, after))
        self._owners.update(r.endpoint.host for r in (old, new) if r is not None)
        if old is not None:
            self._leave(old)
        if new is not None:
            self._join(new)

    def declared(self, task: str) -> None:
        """Take a change of what is declared of `task`."""
        self._containers.pop(task, None)

    def readdressed(self, host: str) -> None:
        """Take that the agent of `host` is reached elsewhere."""
        for task in self._registry.tasks_of(host):
            if task in self._tasks and self._tasks[task].held[host]:
                self._tasks[task].hosts.put(host, self._peer(host))

    def _join(self, record: EndpointRecord) -> None:
        endpoint = record.endpoint
        if not endpoint.task:
            return
        group = Group(endpoint.task, endpoint.id.rail)
        self._groups.setdefault(group, Ledger()).put(endpoint.id.container, member_of(endpoint))
        task = self._tasks.setdefault(endpoint.task, _Task())
        if not task.held[endpoint.host]:
            task.hosts.put(endpoint.host, self._peer(endpoint.host))
        task.held[endpoint.host] += 1

    def _leave(self, record: EndpointRecord) -> None:
        endpoint = record.endpoint
        if not endpoint.task:
            return
        group = Group(endpoint.task, endpoint.id.rail)
        self._groups[group].drop(endpoint.id.container)
        if not len(self._groups[group]):
            del self._groups[group]
        task = self._tasks[endpoint.task]
        task.held[endpoint.host] -= 1
        if not task.held[endpoint.host]:
            del task.held[endpoint.host]
            task.hosts.drop(endpoint.host)
        if not task.held:
            del self._tasks[endpoint.task]
            self._containers.pop(endpoint.task, None)

    def _peer(self, host: str) -> Peer:
        agent = self._registry.agent(host)
        return Peer(host=host, rpc_url=agent.rpc_url if agent is not None else "")

    def take_owners(self) -> set[str]:
        """Return the hosts whose own endpoints changed since the last call."""
        taken, self._owners = self._owners, set()
        return taken

    # --- what agents ask -------------------------------------------------------------------------

    def hosts(self, task: str) -> frozenset[str]:
        """Return the hosts that hold endpoints of `task` which may be probed."""
        return frozenset(self._tasks[task].hosts) if task in self._tasks else frozenset()

    def crowd(self, host: str) -> int:
        """Return how many hosts hear of every change of the tasks of `host` from the analyzer.

        Those of a declared task inform each other.
        """
        tasks = self._registry.tasks_of(host) & self._tasks.keys()
        return sum(len(self._tasks[t].hosts) for t in tasks if not self._declared(t)[0])

    def extent(self, host: str) -> tuple[int, int]:
        """Return how many endpoints of `host` may be probed, and how many targets it has at most.

        Who has many of them in a large task has millions.
        """
        probing = self._probing(host)
        targets = sum(len(self._groups[Group(each.task, each.id.rail)]) for each in probing)
        return len(probing), targets

    def named(self, host: str) -> int:
        """Return what names the endpoints of `host` that may be probed."""
        return named(self._sources(host))

    def version(self, host: str) -> int:
        """Return what names the content of `host`'s list; 0 while it probes nothing."""
        return self._version(self._sources(host))

    def update(self, host: str, asked: Follow) -> Update | None:
        """Return what changed since what the agent of `host` has; None if nothing did."""
        sources = self._sources(host)
        version = self._version(sources)
        held = {each.group: each.digest for each in asked.groups}
        known = {each.task: each for each in asked.tasks}
        changed = (self._changed(group, held.get(group)) for group in _groups(sources))
        groups = tuple(each for each in changed if each is not None)
        news = (self._news(task, known.get(task)) for task in _tasks(sources))
        tasks = tuple(each for each in news if each is not None)
        if version == asked.version and not groups and not tasks:
            return None
        return Update(
            version=version,
            rare_share=self._rare_share,
            sources=sources,
            groups=groups,
            tasks=tasks,
            keys=self._keys(sources),
        )

    def targets(self, host: str) -> tuple[Target, ...]:
        """Return the targets of `host`, in order: what its agent makes of what it follows."""
        return pinglist.active(host, self._probing(host), self._registry.group, self._used)

    def pinglist(self, host: str) -> PingList:
        """Return the list of `host`, whole."""
        expected = pinglist.expected(self._probing(host), lambda task: self._declared(task)[0])
        return PingList(self.version(host), self.targets(host), self._rare_share, expected)

    def _probing(self, host: str) -> list[Endpoint]:
        records = self._registry.endpoints_of(host)
        return [r.endpoint for r in records if r.active and r.endpoint.task]

    def _sources(self, host: str) -> tuple[Source, ...]:
        return tuple(
            Source(each.id, each.task, self._used(each.task, each.id))
            for each in self._probing(host)
        )

    def _version(self, sources: tuple[Source, ...]) -> int:
        if not sources:
            return 0
        states = [self._groups[group].digest for group in _groups(sources)]
        for task in _tasks(sources):
            states += [self._tasks[task].hosts.digest, self._declared(task)[1]]
        return named((self._rare_share, sources, states, self._keys(sources)))

    def _keys(self, sources: tuple[Source, ...]) -> tuple[bytes, ...]:
        if not self._secret:
            return ()
        return tuple(
            blake2b(
                encode(Group(each.task, each.endpoint.rail)),
                key=self._secret,
                digest_size=KEY_BYTES,
            ).digest()
            for each in sources
        )

    def _changed(self, group: Group, digest: bytes | None) -> GroupChange | None:
        if digest == self._groups[group].digest:
            return None
        found = self._groups[group].since(digest)
        return GroupChange(group=group, whole=found.whole, put=found.put, gone=found.gone)

    def _news(self, task: str, held: HeldTask | None) -> TaskChange | None:
        containers, digest = self._declared(task)
        hosts = self._tasks[task].hosts
        if held is not None and (held.hosts, held.containers) == (hosts.digest, digest):
            return None
        found = hosts.since(held.hosts if held is not None else None)
        known = held is not None and held.containers == digest
        return TaskChange(
            task=task, whole=found.whole, put=found.put, gone=found.gone,
            containers=None if known else containers,
        )  # fmt: skip

    def _declared(self, task: str) -> tuple[tuple[str, ...], bytes]:
        """Return the containers that were declared of `task`, and their digest."""
        if task not in self._containers:
            containers = self._registry.containers_of(task)
            self._containers[task] = containers, digest_of(containers)
        return self._containers[task]


def _groups(sources: Iterable[Source]) -> list[Group]:
    return list(dict.fromkeys(Group(each.task, each.endpoint.rail) for each in sources))


def _tasks(sources: Iterable[Source]) -> list[str]:
    return list(dict.fromkeys(each.task for each in sources))
