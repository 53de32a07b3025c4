# SPDX-License-Identifier: Apache-2.0
"""The roster: tasks, agents and endpoints, as schedulers declare them and agents register them.

Theory of operation. Each host has records of the endpoints that it claims, live or recently gone.
The cluster's view of an endpoint is the best claim: a live one before a gone one, and of live ones
that of the host which has had it for longest, as long as that host is heard. So nobody takes a
container from a host that has it, whatever certificate was stolen; where one gives up its claim the
other's counts, and a container that moves needs no special case. An agent that dies deregisters
nothing: silence is no statement. A declaration says who is in a task: whoever else claims to be
stays outside of it; where it names a container's host, no other one's claim counts. Every change of
a view updates the active groups, (task, rail) -> endpoints that may be probed, informs the
watchers, and returns the tasks of which it changes a group.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from netagent.model.endpoint import Endpoint, EndpointState, oddity
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.task import Task
from netagent.wire.messages import Registration

REMEMBER_NS = 600 * 10**9
"""Nanoseconds that a vanished endpoint stays known. Chosen: late windows about it raise no alarm,
and memory stays bounded."""

HELD_NS = 600 * 10**9
"""Nanoseconds for which a host is not heard until others may take what it has. Chosen: as long as
its agent counts as silent; a host that was renamed can be forgotten by an administrator."""

RETURN_NS = 120 * 10**9
"""Nanoseconds within which a host that gave an endpoint up has had it all along. Chosen: an agent
that is upgraded gives all of its endpoints up, and is back in less."""
MAX_RECORDS = 8_192
"""Most records of a host, gone ones included; the oldest of those are dropped. Chosen: twice the
endpoints that a host may register."""

RETIRED_INSTANCES = 16
"""Replaced agent instances remembered per host, whose late messages change nothing. Chosen: memory
stays bounded, and few messages are delayed over several restarts."""

CONFLICTS_KEPT = 100
"""Reports of endpoints claimed twice; the oldest are dropped. Chosen: enough to find the cause, and
memory stays bounded."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent as it last registered. All instants are Unix nanoseconds of the analyzer's clock."""

    host: str
    instance: str
    generation: int
    rpc_url: str
    registered_ns: int
    """When this instance first registered."""
    last_seen_ns: int
    last_window_ns: int = 0
    """Start of the newest window it summarised, by its own clock; 0 before the first."""


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """An endpoint and its history; `endpoint.task` is the declared task where one lists it."""

    endpoint: Endpoint
    registered_ns: int
    """When its host first claimed it."""
    since_ns: int
    """When it entered its present state."""
    deregistered_ns: int | None = None
    """When its host gave it up; None while registered."""
    first_ns: int = 0
    """When its host first claimed it, as far as that is remembered; 0: at `registered_ns`."""

    @property
    def live(self) -> bool:
        """Whether its host claims it, crashed or not."""
        return self.deregistered_ns is None

    @property
    def active(self) -> bool:
        """Whether it is registered and up, so that it may be probed."""
        return self.live and self.endpoint.state is EndpointState.UP


@dataclass(frozen=True, slots=True)
class Conflict:
    """An endpoint that two hosts claim; who has it keeps it."""

    endpoint: EndpointId
    winner: str
    loser: str
    wall_ns: int


@dataclass(frozen=True, slots=True)
class Awaited:
    """A declared container that never registered."""

    container: str
    task: str
    declared_ns: int
    begun_ns: int | None
    """When the first container of its task was seen; None before."""


@dataclass(frozen=True, slots=True)
class HostState:
    """One host's part of the registry, for the store."""

    agent: Agent
    records: tuple[EndpointRecord, ...]
    retired: tuple[str, ...] = ()


class Watcher(Protocol):
    """Is informed of what changes, in order."""

    def moved(self, before: EndpointRecord | None, after: EndpointRecord | None) -> None:
        """Take a change of the cluster's view of an endpoint; None where there is none."""

    def declared(self, task: str) -> None:
        """Take that `task` was declared, declared differently, or withdrawn."""


@dataclass(slots=True)
class _Host:
    agent: Agent
    records: dict[EndpointId, EndpointRecord] = field(default_factory=dict)
    """Replaced as a whole: see `hold`."""
    retired: deque[str] = field(default_factory=lambda: deque(maxlen=RETIRED_INSTANCES))
    _ordered: list[EndpointId] | None = None
    """Cache: what `records` has, in order. Each summary asks for it, of thousands at worst."""

    def hold(self, records: dict[EndpointId, EndpointRecord]) -> None:
        """Have these records, and no others."""
        self.records, self._ordered = records, None

    def in_order(self) -> Sequence[EndpointId]:
        """Return the endpoints of all records, in order."""
        if self._ordered is None:
            self._ordered = sorted(self.records)
        return self._ordered


class Registry:
    """Tasks, agents and endpoints. Does no I/O and reads no clock: `wall_ns` is Unix time."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self._declared: dict[str, Task] = {}
        self._task_of: dict[str, str] = {}  # container -> task that declares it
        self._host_of: dict[str, str] = {}  # container -> host that alone can have it
        self._awaited: dict[str, int] = {}  # declared container that never came -> since when
        self._begun: dict[str, int] = {}  # declared task -> when one of its containers was seen
        self._arrivals: set[str] = set()  # tasks of which that changed, until they are stored
        self._claims: dict[EndpointId, set[str]] = defaultdict(set)
        self._views: dict[EndpointId, EndpointRecord] = {}
        # By name: a tuple is looked up in a fifth of the time that an EndpointId takes.
        self._vteps: dict[tuple[str, int], str] = {}
        self._containers: dict[str, set[EndpointId]] = defaultdict(set)
        self._members: dict[str, set[EndpointId]] = defaultdict(set)  # task -> live endpoints
        self._groups: dict[tuple[str, int], dict[EndpointId, Endpoint]] = defaultdict(dict)
        self._underlays: dict[str, tuple[str, int]] = {}
        self._conflicts: deque[Conflict] = deque(maxlen=CONFLICTS_KEPT)
        self.watchers: list[Watcher] = []
        self.revision = 0
        """Grows with every change of a task or of an endpoint's view."""
        self._in_use: tuple[int, frozenset[str]] = (-1, frozenset())  # revision, and the hosts then
        self._restored: set[str] = set()  # hosts that are not heard since the registry was restored
        self._began_ns = 0
        self.refused_claims = 0
        """Claims of endpoints that another host has."""
        self.moves = 0
        """Grows with every endpoint that is at another VTEP than before."""

    # --- what agents say ------------------------------------------------------------------------

    def apply(self, registration: Registration, wall_ns: int) -> set[str]:
        """Take a host's full state; return the tasks whose groups it changes. Idempotent.

        An older generation or a replaced instance changes nothing. Raises RemoteProtocolError where
        the registration contradicts itself.
        """
        _validate(registration)
        host = self._hosts.get(registration.host)
        if host is not None and _stale(registration, host):
            return set()
        if host is None:
            host = self._hosts[registration.host] = _Host(_agent(registration, wall_ns))
        elif host.agent.instance != registration.instance:
            host.retired.append(host.agent.instance)
            host.agent = replace(
                _agent(registration, wall_ns), last_window_ns=host.agent.last_window_ns
            )
        else:
            host.agent = replace(
                _agent(registration, wall_ns),
                registered_ns=host.agent.registered_ns,
                last_window_ns=host.agent.last_window_ns,
            )
        changed = self._claim(host, registration.endpoints, wall_ns)
        self._bound_underlays(MAX_RECORDS)
        for endpoint in sorted(changed & host.records.keys()):
            self._report_conflict(endpoint, registration.host, wall_ns)
        return self._refresh(changed, wall_ns)

    def heard(self, host: str, window_start_ns: int, wall_ns: int) -> None:
        """Note that a summary of `host` came; a host that never registered stays unknown."""
        self.hear(host, window_start_ns, wall_ns)

    def hear(self, host: str, window_start_ns: int, wall_ns: int) -> None:
        """Do the same where whoever follows this registry is told of it with the summary."""
        known = self._hosts.get(host)
        if known is not None:
            is_back = not self._is_heard(host, wall_ns)
            # What waited to be stored is told after others that came later.
            newest_ns = max(wall_ns, known.agent.last_seen_ns)
            # A window of the future is one of a clock that went back since.
            before_ns = known.agent.last_window_ns
            before_ns = before_ns if before_ns <= newest_ns else 0
            self._restored.discard(host)
            known.agent = replace(
                known.agent,
                last_seen_ns=newest_ns,
                last_window_ns=max(window_start_ns, before_ns),
            )
            if is_back:
                self._refresh([i for i in known.records if len(self._claims[i]) > 1], wall_ns)

    def forget(self, host: str, wall_ns: int) -> set[str]:
        """Drop a host that left the cluster for good; return the tasks whose groups change."""
        gone = self._hosts.pop(host, None)
        if gone is None:
            return set()
        for endpoint in gone.records:
            self._unclaim(endpoint, host)
        self._give_back({a for a, (owner, _) in self._underlays.items() if owner == host})
        return self._refresh(gone.records, wall_ns)

    def expire(self, wall_ns: int) -> set[str]:
        """Drop endpoints that vanished REMEMBER_NS ago; return the hosts to store again."""
        changed = set()
        for name, host in self._hosts.items():
            old = {
                i
                for i, record in host.records.items()
                if record.deregistered_ns is not None
                and record.deregistered_ns + REMEMBER_NS <= wall_ns
            }
            for endpoint in old:
                self._unclaim(endpoint, name)
            if old:
                host.hold({i: r for i, r in host.records.items() if i not in old})
                changed.add(name)
                self._refresh(old, wall_ns)
        self._bound_underlays(0)
        # Who has it may not be heard any more.
        self._refresh([i for i, hosts in self._claims.items() if len(hosts) > 1], wall_ns)
        return changed

    def _bound_underlays(self, spare: int) -> None:
        """Drop addresses that their hosts' endpoints had once, where these are too many."""
        if len(self._underlays) <= len(self._claims) + spare:  # which are no more than records
            return
        records = sum(len(host.records) for host in self._hosts.values())
        if len(self._underlays) <= records + spare:
            return
        had = {
            (record.endpoint.underlay, name)
            for name, host in self._hosts.items()
            for record in host.records.values()
        }
        self._give_back({a for a, (owner, _) in self._underlays.items() if (a, owner) not in had})

    def _give_back(self, addresses: set[str]) -> None:
        """Let who is behind these addresses have them."""
        for address in addresses:
            del self._underlays[address]
        for view in self._views.values():
            end = view.endpoint
            is_here = view.live and end.bridge and end.host in self._hosts
            if is_here and end.underlay in addresses:
                self._underlays[end.underlay] = (end.host, end.id.rail)

    # --- what schedulers say --------------------------------------------------------------------

    def put_task(self, task: Task, wall_ns: int) -> set[str]:
        """Declare `task`; return the tasks whose groups it changes. Idempotent.

        Raises RemoteProtocolError where another task declares one of its containers.
        """
        other = self.declarer(task.containers, besides=task.id)
        if other is not None:
            raise RemoteProtocolError(f"task {other} declares some containers of {task.id}")
        self.revision += 1
        before = self._declared.get(task.id, Task(task.id)).containers
        self._declared[task.id] = replace(task, declared=True)
        placed = self._disown(before)
        self._task_of.update(dict.fromkeys(task.containers, task.id))
        if task.hosts:
            pairs = zip(task.containers, task.hosts, strict=True)
            self._host_of.update((container, host) for container, host in pairs if host)
        self._await(task, before, wall_ns)
        self._inform(task.id)
        listed = self._endpoints_in({*before, *task.containers})
        listed |= self._claimed({*placed, *(c for c in task.containers if c in self._host_of)})
        return self._refresh(listed | self._members.get(task.id, set()), wall_ns)

    def delete_task(self, task: str, wall_ns: int) -> set[str] | None:
        """Withdraw a declaration; return the tasks whose groups change, None if unknown."""
        gone = self._declared.pop(task, None)
        if gone is None:
            return None
        self.revision += 1
        placed = self._disown(gone.containers)
        for container in gone.containers:
            self._awaited.pop(container, None)
        self._begun.pop(task, None)
        self._arrivals.discard(task)
        self._inform(task)
        outside = {i for i, record in self._views.items() if not record.endpoint.task}
        listed = self._endpoints_in(gone.containers) | self._claimed(placed)
        return self._refresh(listed | outside, wall_ns)

    # --- lookups --------------------------------------------------------------------------------

    def endpoint(self, endpoint: EndpointId) -> EndpointRecord | None:
        """Return the record of `endpoint`, also if it vanished recently; None if unknown."""
        return self._views.get(endpoint)

    def vtep(self, endpoint: EndpointId) -> str | None:
        """Return the address of an endpoint's VTEP; None where the endpoint is not known."""
        return self._vteps.get((endpoint.container, endpoint.rail))

    def endpoints(self, task: str | None = None, *, vanished: bool = False) -> list[EndpointRecord]:
        """Return registered endpoints (of `task`) in order; `vanished` adds recently gone ones."""
        if task is not None and not vanished:
            return [self._views[i] for i in sorted(self._members.get(task, ()))]
        return [
            record
            for record in sorted(self._views.values(), key=_place)
            if (vanished or record.live) and task in {None, record.endpoint.task}
        ]

    def live_records(self) -> list[EndpointRecord]:
        """Return registered endpoints in no order: of a large cluster that takes far less."""
        return [record for record in self._views.values() if record.live]

    def active_endpoints(self, task: str) -> list[Endpoint]:
        """Return the endpoints of `task` that may be probed, in order."""
        records = (self._views[i] for i in sorted(self._members.get(task, ())))
        return [record.endpoint for record in records if record.active]

    def endpoints_of(self, host: str) -> list[EndpointRecord]:
        """Return the registered endpoints that `host` holds, in order."""
        known = self._hosts.get(host)
        views = [self._views.get(i) for i in known.in_order()] if known else []
        return [view for view in views if view and view.live and view.endpoint.host == host]

    def hosts_in_use(self) -> frozenset[str]:
        """Return the hosts that hold registered endpoints."""
        if self._in_use[0] != self.revision:
            views = self._views.values()
            hosts = frozenset(record.endpoint.host for record in views if record.live)
            self._in_use = self.revision, hosts
        return self._in_use[1]

    def states(self) -> Counter[EndpointState]:
        """Return how many endpoints are in each state, those that vanished left out."""
        return Counter(view.endpoint.state for view in self._views.values() if view.live)

    def live(self) -> int:
        """Return how many endpoints are registered."""
        return sum(record.live for record in self._views.values())

    def tasks_of(self, host: str) -> set[str]:
        """Return the tasks of which `host` holds registered endpoints."""
        return {r.endpoint.task for r in self.endpoints_of(host) if r.endpoint.task}

    def group(self, task: str, rail: int) -> Iterable[Endpoint]:
        """Return the endpoints of `task` on `rail` that may be probed, in no order."""
        return self._groups.get((task, rail), {}).values()

    def host_of_underlay(self, address: str) -> tuple[str, int] | None:
        """Return the host and rail whose tunnel endpoint is `address`."""
        owner = self._underlays.get(address)
        return owner if owner is not None and owner[0] in self._hosts else None

    def is_at(self, underlay: str, *, besides: str) -> bool:
        """Return whether another host than `besides` has endpoints behind a VTEP.

        Nobody takes its address, but of one that is not heard any more, as after it was renamed.
        """
        owner, _ = self._underlays.get(underlay, (besides, 0))
        if owner == besides or owner not in self._hosts:
            return False
        since_ns = self._hosts[owner].agent.last_seen_ns
        if besides in self._hosts and since_ns + HELD_NS <= self._hosts[besides].agent.last_seen_ns:
            return False
        records = self._hosts[owner].records.values()
        behind = (r.endpoint for r in records if r.live and r.endpoint.bridge)
        return any(endpoint.underlay == underlay for endpoint in behind)

    def is_heard(self, host: str, wall_ns: int) -> bool:
        """Return whether a summary of a registered host came lately, and since this start."""
        return host in self._hosts and host not in self._restored and self._is_heard(host, wall_ns)

    def agent(self, host: str) -> Agent | None:
        """Return the agent of `host`, silent or not; None if unknown."""
        known = self._hosts.get(host)
        return known.agent if known else None

    def agents(self) -> list[Agent]:
        """Return every agent, by host."""
        return [self._hosts[name].agent for name in sorted(self._hosts)]

    def task(self, task: str) -> Task | None:
        """Return the task as declared, else as learned from endpoints; None if unknown."""
        if task in self._declared:
            return self._declared[task]
        members = self._members.get(task)
        return _learned(task, members) if members else None

    def containers_of(self, task: str) -> tuple[str, ...]:
        """Return the containers that were declared of `task`; none of one that was not declared."""
        return self._declared[task].containers if task in self._declared else ()

    def awaited(self, task: str | None = None) -> list[Awaited]:
        """Return the declared containers (of `task`) that never registered, in rank order."""
        return [
            Awaited(container, name, self._awaited[container], self._begun.get(name))
            for name in ([task] if task is not None else sorted(self._declared))
            if name in self._declared
            for container in self._declared[name].containers
            if container in self._awaited
        ]

    def arrivals(self) -> frozenset[str]:
        """Return declared tasks of which a container came that was awaited: to be stored again."""
        return frozenset(self._arrivals)

    def noted(self, task: str) -> None:
        """Note that the store knows who came of `task`."""
        self._arrivals.discard(task)

    def declarer(self, containers: Iterable[str], *, besides: str) -> str | None:
        """Return a task other than `besides` that declares one of `containers`."""
        owners = {self._task_of.get(container, besides) for container in containers}
        return min(owners - {besides}, default=None)

    def tasks(self) -> list[Task]:
        """Return declared and learned tasks, by id."""
        known = (self.task(task) for task in sorted({*self._declared, *self._members}))
        return [task for task in known if task is not None]

    def conflicts(self) -> list[Conflict]:
        """Return the latest reports of endpoints claimed by two hosts, oldest first."""
        return list(self._conflicts)

    # --- for the store --------------------------------------------------------------------------

    def export_host(self, host: str) -> HostState | None:
        """Return the host's part as a value."""
        known = self._hosts.get(host)
        if known is None:
            return None
        return HostState(known.agent, tuple(known.records.values()), tuple(known.retired))

    def export_task(self, task: str) -> Task:
        """Return a declared task with what is known of its arrival; KeyError if it is unknown."""
        awaited = tuple((each.container, each.declared_ns) for each in self.awaited(task))
        return replace(self._declared[task], awaited=awaited, begun_ns=self._begun.get(task))

    @classmethod
    def restore(cls, hosts: Iterable[HostState], tasks: Iterable[Task]) -> Self:
        """Return a registry from exported hosts and declared tasks."""
        registry = cls()
        first: dict[EndpointId, tuple[int, str]] = {}
        for task in tasks:
            registry.put_task(replace(task, awaited=(), begun_ns=None), 0)
            registry._recall(task)
        for state in hosts:
            host = registry._hosts[state.agent.host] = _Host(state.agent)
            host.retired.extend(state.retired)
            host.hold({record.endpoint.id: record for record in state.records})
            for endpoint, record in host.records.items():
                registry._claims[endpoint].add(state.agent.host)
                first[endpoint] = min(_since(record), first.get(endpoint, _since(record)))
        registry._restored = set(registry._hosts)
        # Who was first behind a VTEP has it, whatever its endpoints are called.
        for endpoint in sorted(first, key=lambda i: (first[i], i)):
            registry._refresh([endpoint], 0)
        registry._conflicts.clear()  # they were reported when they arose
        return registry

    # --- the inside -----------------------------------------------------------------------------

    def _disown(self, containers: Iterable[str]) -> set[str]:
        """Forget what was declared of containers; return those whose host was."""
        placed = set()
        for container in containers:
            self._task_of.pop(container, None)
            if self._host_of.pop(container, None) is not None:
                placed.add(container)
        return placed

    def _claimed(self, containers: AbstractSet[str]) -> set[EndpointId]:
        """Return what any host claims of containers, also where no claim counts."""
        return {i for i in self._claims if i.container in containers} if containers else set()

    # Awaits what is new in a declaration, unless it is there already or was there lately.
    def _await(self, task: Task, before: tuple[str, ...], wall_ns: int) -> None:
        for container in set(before) - set(task.containers):
            self._awaited.pop(container, None)
        for container in task.containers:
            if container in self._containers:
                self._begun.setdefault(task.id, wall_ns)
            elif container not in before:
                self._awaited[container] = wall_ns
        if all(container in self._awaited for container in task.containers):
            self._begun.pop(task.id, None)  # declared again, for a job that begins again

    # Takes what was stored of who came.
    def _recall(self, task: Task) -> None:
        for container in task.containers:
            self._awaited.pop(container, None)
        self._awaited.update(each for each in task.awaited if each[0] in task.containers)
        if task.begun_ns is not None:
            self._begun[task.id] = task.begun_ns

    def _came(self, container: str, registered_ns: int) -> None:
        task = self._task_of.get(container)
        if task is None:
            return
        if self._awaited.pop(container, None) is not None or task not in self._begun:
            self._begun.setdefault(task, registered_ns)
            self._arrivals.add(task)

    # Replaces a host's records by what it claims now; returns the endpoints that differ.
    def _claim(self, host: _Host, endpoints: tuple[Endpoint, ...], wall_ns: int) -> set[EndpointId]:
        after = {e.id: _record(e, host.records.get(e.id), wall_ns) for e in endpoints}
        for endpoint, record in host.records.items():
            if endpoint not in after:
                gone = record if not record.live else replace(record, deregistered_ns=wall_ns)
                after[endpoint] = gone
        old = sorted((i for i, r in after.items() if not r.live), key=lambda i: after[i].since_ns)
        for endpoint in old[: max(0, len(after) - MAX_RECORDS)]:
            del after[endpoint]
            if endpoint in host.records:
                self._unclaim(endpoint, host.agent.host)
        changed = {i for i, record in after.items() if host.records.get(i) != record}
        changed |= host.records.keys() - after.keys()
        for endpoint in changed & after.keys():
            self._claims[endpoint].add(host.agent.host)
        host.hold(after)
        return changed

    def _unclaim(self, endpoint: EndpointId, host: str) -> None:
        self._claims[endpoint].discard(host)
        if not self._claims[endpoint]:
            del self._claims[endpoint]

    def _endpoints_in(self, containers: Iterable[str]) -> set[EndpointId]:
        return {i for container in containers for i in self._containers.get(container, ())}

    def _refresh(self, endpoints: Iterable[EndpointId], wall_ns: int) -> set[str]:
        touched: set[str] = set()
        for endpoint in sorted(endpoints):
            before, after = self._views.get(endpoint), self._best(endpoint, wall_ns)
            if before != after:
                touched |= self._replace_view(endpoint, before, after)
        return touched

    # Returns the best claim, with the task that it is in: see the theory of operation.
    def _best(self, endpoint: EndpointId, wall_ns: int) -> EndpointRecord | None:
        alone = self._host_of.get(endpoint.container)
        claims = [
            self._hosts[host].records[endpoint]
            for host in self._claims.get(endpoint, ())
            if alone is None or host == alone
        ]
        if not claims:
            return None
        live = [record for record in claims if record.live]
        heard = [r for r in live if self._is_heard(r.endpoint.host, wall_ns)]
        if live:
            # One that crashed there, and is up elsewhere, has moved.
            best = min(heard or live, key=lambda r: (not r.active, *_since(r)))
        else:
            best = max(claims, key=lambda r: (r.registered_ns, r.endpoint.host))
        task = self._task_of.get(endpoint.container, best.endpoint.task)
        declared = self._declared.get(task)
        if declared is not None and declared.containers and endpoint.container not in self._task_of:
            task = ""
        if task == best.endpoint.task:
            return best
        return replace(best, endpoint=replace(best.endpoint, task=task))

    # What was stored of when a host was last heard is old: each has its time after a start.
    def _is_heard(self, host: str, wall_ns: int) -> bool:
        self._began_ns = self._began_ns or wall_ns
        since_ns = self._hosts[host].agent.last_seen_ns
        if host in self._restored:
            since_ns = max(since_ns, self._began_ns)
        return wall_ns < since_ns + HELD_NS

    def _replace_view(
        self, endpoint: EndpointId, before: EndpointRecord | None, after: EndpointRecord | None
    ) -> set[str]:
        self.revision += 1
        if before is not None and after is not None:
            self.moves += before.endpoint.underlay != after.endpoint.underlay
        if before is not None:
            self._unindex(before)
        if after is not None:
            self._index(after)
        else:
            del self._views[endpoint]
            del self._vteps[endpoint.container, endpoint.rail]
        for watcher in self.watchers:
            watcher.moved(before, after)
        old = before.endpoint if before is not None and before.active else None
        new = after.endpoint if after is not None and after.active else None
        return {side.task for side in (old, new) if side and side.task} if old != new else set()

    def _inform(self, task: str) -> None:
        for watcher in self.watchers:
            watcher.declared(task)

    def _index(self, record: EndpointRecord) -> None:
        endpoint = record.endpoint
        self._views[endpoint.id] = record
        self._vteps[endpoint.id.container, endpoint.id.rail] = endpoint.underlay
        self._containers[endpoint.id.container].add(endpoint.id)
        self._came(endpoint.id.container, record.registered_ns)
        # Without a tunnel it is the container's own address, which its tenant may set to any.
        if endpoint.bridge and not self.is_at(endpoint.underlay, besides=endpoint.host):
            self._underlays[endpoint.underlay] = (endpoint.host, endpoint.id.rail)
        if record.live and endpoint.task:
            self._members[endpoint.task].add(endpoint.id)
        if record.active and endpoint.task:
            self._groups[endpoint.task, endpoint.id.rail][endpoint.id] = endpoint

    def _unindex(self, record: EndpointRecord) -> None:
        endpoint = record.endpoint
        _discard(self._containers, endpoint.id.container, endpoint.id)
        _discard(self._members, endpoint.task, endpoint.id)
        group = self._groups.get((endpoint.task, endpoint.id.rail), {})
        group.pop(endpoint.id, None)
        if not group:
            self._groups.pop((endpoint.task, endpoint.id.rail), None)

    # Reports that a host claims what another one has.
    def _report_conflict(self, endpoint: EndpointId, host: str, wall_ns: int) -> None:
        if not self._hosts[host].records[endpoint].live:
            return
        if self._claims[endpoint] == {host} and endpoint.container not in self._host_of:
            return
        best = self._best(endpoint, wall_ns)
        winner = best.endpoint.host if best else self._host_of.get(endpoint.container, host)
        if winner != host:
            self.refused_claims += 1
            self._conflicts.append(Conflict(endpoint, winner, host, wall_ns))


def _validate(registration: Registration) -> None:
    seen = set()
    for endpoint in registration.endpoints:
        if endpoint.host != registration.host:
            raise RemoteProtocolError(
                f"{registration.host} registers {endpoint.id} as an endpoint of {endpoint.host}"
            )
        if endpoint.id in seen:
            raise RemoteProtocolError(f"{registration.host} registers {endpoint.id} twice")
        seen.add(endpoint.id)
        if odd := oddity(endpoint):
            raise RemoteProtocolError(f"{endpoint.id}: {odd}")


def _stale(registration: Registration, host: _Host) -> bool:
    if registration.instance == host.agent.instance:
        return registration.generation < host.agent.generation
    return registration.instance in host.retired


def _agent(registration: Registration, wall_ns: int) -> Agent:
    return Agent(
        host=registration.host,
        instance=registration.instance,
        generation=registration.generation,
        rpc_url=registration.rpc_url,
        registered_ns=wall_ns,
        last_seen_ns=wall_ns,
    )


def _record(endpoint: Endpoint, before: EndpointRecord | None, wall_ns: int) -> EndpointRecord:
    if before is None:
        return EndpointRecord(endpoint, wall_ns, wall_ns, first_ns=wall_ns)
    first_ns = before.first_ns or before.registered_ns
    if before.deregistered_ns is not None:
        is_back = wall_ns < before.deregistered_ns + RETURN_NS
        return EndpointRecord(endpoint, wall_ns, wall_ns, first_ns=first_ns if is_back else wall_ns)
    since_ns = before.since_ns if before.endpoint.state is endpoint.state else wall_ns
    return EndpointRecord(endpoint, before.registered_ns, since_ns, first_ns=first_ns)


def _since(record: EndpointRecord) -> tuple[int, str]:
    """Return since when a host has an endpoint; of hosts that have it for as long, by name."""
    return record.first_ns or record.registered_ns, record.endpoint.host


def _learned(task: str, members: set[EndpointId]) -> Task:
    rails = tuple(sorted({i.rail for i in members}))
    return Task(task, tuple(sorted({i.container for i in members})), len(rails), rails)


def _place(record: EndpointRecord) -> tuple[str, int]:
    """Return what endpoints are ordered by, quicker than they compare."""
    return record.endpoint.id.container, record.endpoint.id.rail


def _discard(index: dict[str, set[EndpointId]], key: str, endpoint: EndpointId) -> None:
    members = index.get(key)
    if members is not None:
        members.discard(endpoint)
        if not members:
            del index[key]
