# SPDX-License-Identifier: Apache-2.0
"""Which registered endpoints nobody probes, and why. Pure; `now_ns` is the analyzer's Unix time.

An endpoint is probed by those of its task on its rail that are on other hosts, answer by the same
transport and version of IP, and whose agents are heard. What is asked for is no proof that it
happens: an agent that is heard and cannot send says so itself, in its health and findings.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, field
from itertools import islice

from analyzer.roster.pinglist import Used
from analyzer.roster.registry import EndpointRecord, Registry
from netagent.model.address import is_six
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.strenum import StrEnum

SILENT_NS = 20 * 10**9
"""Nanoseconds without a summary after which a host counts as silent. Chosen: four windows; an agent
that is stored late is no reason."""
STARTING_NS = 5 * 10**9
"""Nanoseconds from an endpoint's registration until it counts as probed. Chosen: a window; its
peers hear of it within seconds."""
PIECE = 1_000
"""Endpoints that are looked at in one go. Chosen: milliseconds; `tests.bench.views` says how many.
"""
_NAMED = 3
"""Hosts, of several, that are named. Chosen: to be read."""


class Why(StrEnum):
    """Why nobody probes an endpoint."""

    CRASHED = "crashed"
    """Its namespace is gone and its port is not."""
    NO_TASK = "no-task"
    """It is in no task: the one that its host names was declared without it, or names none."""
    HOST_SILENT = "host-silent"
    """Nothing is heard of its own host: probes of it may be sent, and nobody answers for it."""
    PEERS_ABSENT = "peers-absent"
    """Others of its task were declared and have not come."""
    ALONE = "alone"
    """No other endpoint of its task is on its rail."""
    ONE_HOST = "one-host"
    """All others are on its own host; such pairs cross no fabric."""
    UNLIKE = "unlike"
    """The others use another version of IP, or another transport."""
    PEERS_SILENT = "peers-silent"
    """Nothing is heard of any host that would probe it."""
    SHED = "shed"
    """Those that would probe it are near their limits, and leave rare pairs out."""
    STARTING = "starting"
    """It came just now."""


@dataclass(frozen=True, slots=True)
class Uncovered:
    """An endpoint that nobody probes."""

    record: EndpointRecord
    why: Why
    text: str
    """One sentence for a human."""


@dataclass(slots=True)
class _Group:
    """The endpoints of a task on one rail that may be probed."""

    size: int = 0
    hosts: set[str] = field(default_factory=set)
    alike: dict[tuple[bool, bool], set[str]] = field(default_factory=lambda: defaultdict(set))
    """Transport and version of IP -> hosts with such endpoints."""
    heard: dict[tuple[bool, bool], set[str]] = field(default_factory=lambda: defaultdict(set))
    """The same, of hosts that are heard."""
    whole: dict[tuple[bool, bool], set[str]] = field(default_factory=lambda: defaultdict(set))
    """The same, of hosts that probe all that they are asked to."""
    often: dict[EndpointId, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Endpoint -> hosts that probe it though they leave rare pairs out."""


class Coverage:
    """Looks once, in pieces, between which others may be served.

    Who is registered is as at the beginning; what comes meanwhile is told by the next look.
    """

    def __init__(
        self, registry: Registry, used: Used, sheds: Callable[[str], bool], now_ns: int
    ) -> None:
        """`sheds` says whether a host leaves rare pairs out."""
        self._registry, self._used, self._sheds, self._now_ns = registry, used, sheds, now_ns
        self._groups: dict[tuple[str, int], _Group] = defaultdict(_Group)
        self._silent: dict[str, bool] = {}
        self._absent: dict[str, int] = {}

    def is_silent(self, host: str) -> bool:
        """Whether nothing was heard of a host lately."""
        if host not in self._silent:
            agent = self._registry.agent(host)
            self._silent[host] = agent is None or agent.last_seen_ns + SILENT_NS <= self._now_ns
        return self._silent[host]

    def uncovered(self) -> Generator[None, None, list[Uncovered]]:
        """Return endpoints that nobody probes, in order, piece by piece."""
        records = self._registry.live_records()
        pieces = [records[n : n + PIECE] for n in range(0, len(records), PIECE)]
        for piece in pieces:
            for record in piece:
                if record.active and record.endpoint.task:
                    self._add(record.endpoint)
            yield
        runs = list[list[Uncovered]]()
        for piece in pieces:
            whys = ((record, self._why(record)) for record in piece)
            some = (Uncovered(record, *why) for record, why in whys if why is not None)
            runs.append(sorted(some, key=_place))
            yield
        merged, found = heapq.merge(*runs, key=_place), list[Uncovered]()
        while some_more := list(islice(merged, PIECE)):
            found += some_more
            yield
        return found

    def _add(self, end: Endpoint) -> None:
        group, kind = self._groups[end.task, end.id.rail], _kind(end)
        group.size += 1
        group.hosts.add(end.host)
        group.alike[kind].add(end.host)
        if self.is_silent(end.host):
            return
        group.heard[kind].add(end.host)
        used = self._used(end.task, end.id) if self._sheds(end.host) else None
        if used is None:
            group.whole[kind].add(end.host)
        for other in used or ():
            group.often[other].add(end.host)

    def _why(self, record: EndpointRecord) -> tuple[Why, str] | None:
        end = record.endpoint
        if not record.active:
            return Why.CRASHED, "its network namespace is gone, and its port is still there"
        if not end.task:
            return Why.NO_TASK, "no task has it: the one that its host names is declared without it"
        if self.is_silent(end.host):
            return Why.HOST_SILENT, f"nothing is heard of {end.host}"
        group = self._groups[end.task, end.id.rail]
        if not _has_others(group.hosts, end.host):
            return self._peerless(end, group)
        return self._unprobed(end, group) or self._starting(record)

    def _peerless(self, end: Endpoint, group: _Group) -> tuple[Why, str]:
        rail = f"rail {end.id.rail}"
        if absent := self._absent_of(end.task):
            return (
                Why.PEERS_ABSENT,
                f"declared containers of {end.task} that have not come: {absent}",
            )
        if group.size == 1:
            return Why.ALONE, f"no other endpoint of {end.task} is on {rail}"
        text = f"all of {end.task} on {rail} are on {end.host}: such pairs cross no fabric"
        return Why.ONE_HOST, text

    def _unprobed(self, end: Endpoint, group: _Group) -> tuple[Why, str] | None:
        kind, own = _kind(end), end.host
        if not _has_others(group.alike[kind], own):
            text = "others of its task use another version of IP, or RDMA where it does not"
            return Why.UNLIKE, text
        if not _has_others(group.heard[kind], own):
            return Why.PEERS_SILENT, f"nothing is heard of {_several(group.alike[kind] - {own})}"
        if _has_others(group.whole[kind], own) or _has_others(group.often.get(end.id, ()), own):
            return None
        hosts = _several(group.heard[kind] - {own})
        text = f"rare pairs are left out near the limits of {hosts}"
        return Why.SHED, text

    def _starting(self, record: EndpointRecord) -> tuple[Why, str] | None:
        if record.since_ns + STARTING_NS <= self._now_ns:
            return None
        return Why.STARTING, "it came just now: its peers are told"

    def _absent_of(self, task: str) -> int:
        if task not in self._absent:
            self._absent[task] = len(self._registry.awaited(task))
        return self._absent[task]


def _place(of: Uncovered) -> tuple[str, int]:
    """Return what endpoints are ordered by."""
    return of.record.endpoint.id.container, of.record.endpoint.id.rail


def _kind(end: Endpoint) -> tuple[bool, bool]:
    """Return what two endpoints must have alike to answer each other (`may_answer`)."""
    return end.rdma is None, is_six(end.address)


def _has_others(hosts: Collection[str], host: str) -> bool:
    """Return whether there are other hosts than one; to make a set without it takes longer."""
    return len(hosts) > (host in hosts)


def _several(hosts: set[str]) -> str:
    named = sorted(hosts)[:_NAMED]
    more = len(hosts) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
