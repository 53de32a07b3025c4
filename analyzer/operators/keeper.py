# SPDX-License-Identifier: Apache-2.0
"""What hosts said of jobs' operators in their newest windows, kept in memory and bounded.

Sums alone tell who entered fewer collectives than others: `Keeper.log` is a log of that much.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from analyzer.operators.log import UNKNOWN, Group, Kind, Log, Place, State, log_of
from netagent.wire.operators import MOST_NAMED, OperatorProcess
from netagent.wire.operators import MOST_PROCESSES as MOST_SAID

PROBES = "uprobes"
"""The source that is no hook in a job."""
FORGET_NS = 600_000_000_000
"""Nanoseconds for which the last word of a process is kept. Chosen: who asks about a job that just
died does within minutes."""
MOST_PROCESSES = 100_000
"""Most processes of all jobs. Chosen: more GPUs than a cluster has."""
MOST_OF_HOST = 4 * MOST_SAID
"""Most processes of a host; of more, those that were not heard of for longest are forgotten.
Chosen: three restarts of all that a window names. So no host takes the room of others."""
MOST_ROWS = 64
"""Most rows of a process: pairs of group and operation, the longest ones; and most groups."""
MOST_MEMBERS_OF_HOST = 2 * MOST_NAMED
"""Most members of all groups that a host's processes say; groups beyond that have none named.
Chosen: what a window may name, and as much of jobs of before; some 20 MB of memory."""
ANEW = 0.5
"""Part of its newest number, up to which what ends in a group is of another group of that name.
Chosen: whoever waits late for something does so some operations later, not half of all."""
MOST_WORLD = 1 << 17
"""Most ranks of a job that may be unseen. Chosen: more than any job has."""


class Told(NamedTuple):
    """What was summed up of one operation in one group; `netagent.wire.operators` says of what."""

    operations: int
    bytes: int
    sum_us: int
    max_us: int
    median_us: int
    begun: int
    ended: int
    open_ms: int


class Row(NamedTuple):
    """One operation of a process in one group."""

    group: Group | None
    op: str
    kind: Kind
    told: Told


class Reported(NamedTuple):
    """What a host says of one process in a window."""

    process: OperatorProcess
    rows: tuple[Row, ...]


Key = tuple[str, int, int, int, int, str]
"""Host, network namespace, pid, since when (ns), rank, source: containers' processes have the same
pid, as has one that began anew."""


@dataclass(slots=True)
class Known:
    """One process: its newest window, and what was said seldom."""

    host: str
    process: OperatorProcess
    heard_ns: int
    rows: tuple[Row, ...]
    """Of the newest window in which anything happened."""
    progress: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Group -> numbers of the newest collectives that began and ended, of all that were told; the
    group that was said last is the last."""
    groups: dict[str, Group] = field(default_factory=dict)
    """The same groups, with members as far as this process said them."""
    first_ns: int = 0
    """When it was heard first."""

    @property
    def key(self) -> Key:
        """Return what tells it from all others."""
        return _key(self.host, self.process)

    @property
    def place(self) -> tuple[str, str]:
        """Return host and container."""
        return self.host, self.process.container


@dataclass(slots=True)
class Keeper:
    """All jobs. `now_ns` is the analyzer's Unix time; `expire` once a minute bounds it."""

    _jobs: dict[str, dict[Key, Known]] = field(default_factory=dict)
    _groups: dict[Group, Group] = field(default_factory=dict)
    """One of all that are equal: members are many."""
    _of_host: dict[str, dict[tuple[str, Key], None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Each host's processes, the one that was not heard of for longest first."""
    _count: int = 0
    refused: int = 0
    """Processes that were too many."""

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs that are known, in order."""
        return tuple(sorted(self._jobs))

    def take(self, host: str, said: tuple[Reported, ...], now_ns: int) -> None:
        """Take what a host says of its processes."""
        same: dict[int, Group] = {}  # to compare members takes long
        for each in said:
            of = self._jobs.get(each.process.job, {})
            process = each.process
            key = _key(host, process)
            known = of.get(key)
            if known is None:
                if not self._has_room(host):
                    self.refused += 1
                    continue
                self._count += 1
                known = Known(host, process, now_ns, (), first_ns=now_ns)
                self._jobs.setdefault(process.job, of)[key] = known
            mine = self._of_host[host]
            mine.pop((process.job, key), None)
            mine[process.job, key] = None
            known.process, known.heard_ns = process, now_ns
            if each.rows:
                longest = sorted(each.rows, key=lambda row: -row.told.sum_us)
                known.rows = tuple(longest[:MOST_ROWS])
            self._follow(each, known, same)
        if same:
            self._bound_members(host)

    def _bound_members(self, host: str) -> None:
        """Forget who is in the groups of a host that name too many; those said last lose first."""
        left, counted = MOST_MEMBERS_OF_HOST, set[int]()
        for job, key in self._of_host[host]:
            groups = self._jobs[job][key].groups
            for name, group in groups.items():
                if id(group) in counted or not group.members:
                    continue
                if len(group.members) > left:
                    groups[name] = replace(group, members=())
                else:
                    counted.add(id(group))
                    left -= len(group.members)

    def _has_room(self, host: str) -> bool:
        mine = self._of_host.get(host, {})
        if len(mine) >= MOST_OF_HOST:
            self._drop(*next(iter(mine)))
        return self._count < MOST_PROCESSES

    def _drop(self, job: str, key: Key) -> None:
        del self._jobs[job][key]
        del self._of_host[key[0]][job, key]
        self._count -= 1
        if not self._jobs[job]:
            del self._jobs[job]

    def _follow(self, said: Reported, known: Known, same: dict[int, Group]) -> None:
        for name in _anew(said, known):
            del known.progress[name]
        for row in said.rows:
            if row.group is None or row.kind is not Kind.COLLECTIVE:
                continue
            name = row.group.name
            begun, ended = known.progress.pop(name, (0, 0))
            if len(known.progress) >= MOST_ROWS:  # the one that was not said for longest
                known.groups.pop(gone := next(iter(known.progress)))
                del known.progress[gone]
            known.progress[name] = max(begun, row.told.begun), max(ended, row.told.ended)
            if row.group.members or name not in known.groups:
                group = same.get(id(row.group))
                if group is None:
                    group = self._groups.setdefault(row.group, row.group)
                    same[id(row.group)] = group
                known.groups[name] = group

    def processes(self, job: str) -> tuple[Known, ...]:
        """Return what is known of a job, by rank."""
        return tuple(sorted(self._jobs.get(job, {}).values(), key=_by_rank))

    def expire(self, now_ns: int) -> None:
        """Forget processes that were not heard of for long, and jobs without any."""
        before_ns = now_ns - FORGET_NS
        for job, of in list(self._jobs.items()):
            for key in [key for key, each in of.items() if each.heard_ns <= before_ns]:
                self._drop(job, key)
        for host in [host for host, mine in self._of_host.items() if not mine]:
            del self._of_host[host]
        every = (each for of in self._jobs.values() for each in of.values())
        used = {id(group): group for each in every for group in each.groups.values()}
        self._groups = {group: group for group in used.values()}

    def log(self, job: str, among: Iterable[Known] | None = None) -> Log:
        """Return how far each rank came in each group: the newest collective that ended, and begun.

        Of the processes in `among` only, where these are given: other ranks are unseen, as are
        those that processes in several places claim (`settled`). Without records there are no
        times: who wants those asks hosts (`netagent.wire.operators`).
        """
        every = self.processes(job) if among is None else tuple(among)
        known, _ = settled(every)
        names = sorted({name for each in known.values() for name in each.progress})
        places = {name: place for place, name in enumerate(names)}
        rows = [
            (rank, places[name], number, int(state))
            for rank, each in sorted(known.items())
            for name in sorted(each.progress)
            for number, state in _progress(*each.progress[name])
        ]
        columns: dict[str, Any] = {
            name: [row[place] for row in rows]
            for place, name in enumerate(("rank", "group", "sequence", "state"))
        }
        columns["kind"] = [int(Kind.COLLECTIVE)] * len(rows)
        columns["op"] = [0] * len(rows)
        # What most say: one may say anything.
        worlds = Counter(each.process.world for each in every)
        world = min(max(worlds, key=lambda each: (worlds[each], each), default=0), MOST_WORLD)
        groups = _agreed(known.values())
        return log_of(
            columns, ops=("collective",), world=world, source="sums",
            groups=tuple(groups[name] for name in names),
            places={rank: Place(each.host) for rank, each in known.items()},
            silent=tuple(rank for rank, each in known.items() if not each.progress),
            unseen=tuple(rank for rank in range(world) if rank not in known),
        )  # fmt: skip


def _anew(said: Reported, known: Known) -> list[str]:
    """Return the groups that a process made anew by a former name: they count from one again."""
    newest: dict[str, int] = {}
    for row in said.rows:
        if row.group is not None and row.kind is Kind.COLLECTIVE and row.told.operations:
            newest[row.group.name] = max(newest.get(row.group.name, 0), row.told.ended)
    return [
        name
        for name, number in newest.items()
        if 0 < number <= ANEW * known.progress.get(name, (0, 0))[1]
    ]


def settled(known: Iterable[Known]) -> tuple[dict[int, Known], dict[int, tuple[Known, ...]]]:
    """Return the process of each rank, and the ranks that processes in several places claim.

    A process that lives counts, else the one that was heard of first most lately: a job may have
    been started again. Of several in one container that one that was heard first, hooks before
    probes; where they are in several, nobody knows which of them is the rank.
    """
    claims: dict[int, list[Known]] = defaultdict(list)
    for each in known:
        if each.process.rank >= 0:
            claims[each.process.rank].append(each)
    found, contested = dict[int, Known](), dict[int, tuple[Known, ...]]()
    for rank, many in claims.items():
        living = [each for each in many if not each.process.gone]
        if len({each.place for each in living}) > 1:
            contested[rank] = tuple(living)
        elif living:
            found[rank] = min(
                living, key=lambda each: (each.process.source == PROBES, each.first_ns)
            )
        else:
            found[rank] = max(many, key=lambda each: each.first_ns)
    return found, contested


def _agreed(known: Iterable[Known]) -> dict[str, Group]:
    """Return each group as most say it is, of those that say its members."""
    said: dict[str, Counter[int]] = defaultdict(Counter)
    by_id: dict[int, Group] = {}
    for each in known:
        for name, group in each.groups.items():
            by_id[id(group)] = group
            said[name][id(group)] += 1
    return {
        name: by_id[max(many, key=lambda one: (bool(by_id[one].members), many[one]))]
        for name, many in said.items()
    }


def _key(host: str, of: OperatorProcess) -> Key:
    return host, of.netns, of.pid, of.since_ns, of.rank, of.source


def _by_rank(of: Known) -> tuple[int, str, int]:
    rank = of.process.rank
    return rank if rank != UNKNOWN else 1 << 30, of.host, of.process.pid


def _progress(begun: int, ended: int) -> Iterator[tuple[int, State]]:
    if ended:
        yield ended, State.ENDED
    if begun > ended:
        yield begun, State.STARTED
