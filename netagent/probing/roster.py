# SPDX-License-Identifier: Apache-2.0
"""Who is in the groups of this host's endpoints, and the ping list that follows. Pure.

The list is the full mesh of a task minus pairs that cross rails and pairs on one host; RDMA and UDP
endpoints do not answer each other, nor do those with IPv4 and IPv6 addresses. Which of the pairs
are rare is a rule, not a row: all but those that the task uses.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from netagent.model.endpoint import may_answer
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.pinglist import Expected, PingList, Target
from netagent.wire.codec import decode
from netagent.wire.messages import Peer
from netagent.wire.roster import (
    Follow,
    Group,
    GroupChange,
    HeldGroup,
    HeldTask,
    Member,
    Source,
    TaskChange,
    Update,
    digest_of,
    digest_of_all,
    named,
)

E = TypeVar("E", Member, Peer)


@dataclass
class _Set(Generic[E]):
    """Entries by key, and the digest of all."""

    entries: dict[str, E] = field(default_factory=dict)
    digests: dict[str, bytes] = field(default_factory=dict)

    @property
    def digest(self) -> bytes:
        """The name of these entries."""
        return digest_of_all(sorted(self.digests.values()))

    def changed(self, put: Iterable[tuple[str, E]], gone: Iterable[str]) -> "_Set[E]":
        """Return the set after a change; this one stays as it is."""
        made, digests = dict(self.entries), dict(self.digests)
        for key in gone:
            made.pop(key, None)
            digests.pop(key, None)
        for key, entry in put:
            made[key], digests[key] = entry, digest_of(entry)
        return _Set(made, digests)


class Roster:
    """What the analyzer said last of the groups and tasks of this host's endpoints."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._version = 0
        self._rare_share = PingList(0).rare_share
        self._sources: tuple[Source, ...] = ()
        self._keys: dict[EndpointId, bytes] = {}
        self._groups: dict[Group, _Set[Member]] = {}
        self._tasks: dict[str, _Set[Peer]] = {}
        self._containers: dict[str, tuple[str, ...]] = {}

    @property
    def version(self) -> int:
        """Version of the list; 0 before the first."""
        return self._version

    @property
    def keys(self) -> dict[EndpointId, bytes]:
        """The key of each local endpoint's group; none of an analyzer that has no keys."""
        return self._keys

    @property
    def sources(self) -> int:
        """What names the endpoints of this host that the analyzer lets be probed."""
        return named(self._sources)

    def asks(self, wait_s: float = 0.0) -> Follow:
        """Return the question after what changed since."""
        return Follow(
            version=self._version,
            wait_s=wait_s,
            groups=tuple(HeldGroup(g, s.digest) for g, s in self._groups.items()),
            tasks=tuple(
                HeldTask(task, s.digest, digest_of(self._containers[task]))
                for task, s in self._tasks.items()
            ),
        )

    def take(self, news: Update) -> None:
        """Take an answer, whole. Raises RemoteProtocolError if it makes no sense; nothing is taken.

        An answer that does not lead on from what is here shows in the next question's digests, and
        is mended by its answer.
        """
        if len(news.keys) not in {0, len(news.sources)}:
            raise RemoteProtocolError(f"{len(news.keys)} keys for {len(news.sources)} endpoints")
        ids = [source.endpoint for source in news.sources]
        keys = dict(zip(ids, news.keys, strict=True)) if news.keys else {}
        groups = {each.group: self._group_after(each) for each in news.groups}
        tasks = {each.task: self._task_after(each) for each in news.tasks}
        containers = {t.task: t.containers for t in news.tasks if t.containers is not None}
        kept = dict.fromkeys(Group(s.task, s.endpoint.rail) for s in news.sources)
        self._groups = {g: groups.get(g) or self._groups.get(g) or _Set() for g in kept}
        names = dict.fromkeys(source.task for source in news.sources)
        self._tasks = {t: tasks.get(t) or self._tasks.get(t) or _Set() for t in names}
        self._containers = {t: containers.get(t, self._containers.get(t, ())) for t in names}
        self._version, self._sources = news.version, news.sources
        self._keys = keys
        self._rare_share = news.rare_share

    def pinglist(self) -> PingList:
        """Return the list that follows."""
        targets = [target for source in self._sources for target in self._targets(source)]
        targets.sort(key=lambda t: (t.source, t.target))
        return PingList(self._version, tuple(targets), self._rare_share, self._expected())

    def peers(self) -> tuple[Peer, ...]:
        """Return the agents of the other hosts of this host's tasks, by host."""
        found = {
            host: peer
            for task in self._tasks.values()
            for host, peer in task.entries.items()
            if host != self._host
        }
        return tuple(found[host] for host in sorted(found))

    def _targets(self, source: Source) -> Iterable[Target]:
        mine, rail = source.endpoint, source.endpoint.rail
        members = self._groups[Group(source.task, rail)].entries
        own = members.get(mine.container)
        used = source.used and {each.container for each in source.used if each.rail == rail}
        for each in members.values():
            if each.host == self._host or own is None:
                continue
            if may_answer(own, each):
                yield Target(
                    mine, EndpointId(each.container, rail), each.address, each.underlay, each.rdma,
                    rare=used is not None and each.container not in used, host=each.host,
                )  # fmt: skip

    def _expected(self) -> tuple[Expected, ...]:
        found: dict[str, list[EndpointId]] = {}
        for source in self._sources:
            found.setdefault(source.task, []).append(source.endpoint)
        return tuple(
            Expected(tuple(sorted(ids)), self._containers[task])
            for task, ids in sorted(found.items())
            if self._containers[task]
        )

    def _group_after(self, change: GroupChange) -> _Set[Member]:
        put = [(each.container, each) for each in decode(change.put, tuple[Member, ...])]
        before: _Set[Member] = _Set() if change.whole else self._groups.get(change.group, _Set())
        return before.changed(put, change.gone)

    def _task_after(self, change: TaskChange) -> _Set[Peer]:
        put = [(each.host, each) for each in decode(change.put, tuple[Peer, ...])]
        before: _Set[Peer] = _Set() if change.whole else self._tasks.get(change.task, _Set())
        return before.changed(put, change.gone)
