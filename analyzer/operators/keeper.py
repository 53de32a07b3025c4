# SPDX-License-Identifier: Apache-2.0
"""What hosts said of jobs' operators in their newest windows, kept in memory and bounded.

Sums alone tell who entered fewer collectives than others: `Keeper.log` is a log of that much.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from analyzer.operators.log import UNKNOWN, Group, Kind, Log, Place, State, log_of
from netagent.wire.operators import OperatorProcess

FORGET_NS = 600_000_000_000
"""Nanoseconds for which the last word of a process is kept. Chosen: who asks about a job that just
died does within minutes."""
MOST_PROCESSES = 100_000
"""Most processes of all jobs. Chosen: more GPUs than a cluster has."""
MOST_ROWS = 64
"""Most rows of a process: pairs of group and operation, the longest ones."""


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


_Key = tuple[str, int, str]
"""Host, pid, source."""


@dataclass(slots=True)
class Known:
    """One process: its newest window, and what was said seldom."""

    host: str
    process: OperatorProcess
    heard_ns: int
    rows: tuple[Row, ...]
    """Of the newest window in which anything happened."""
    progress: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Group -> numbers of the newest collectives that began and ended, of all that were told."""


@dataclass(slots=True)
class Keeper:
    """All jobs. `now_ns` is the analyzer's Unix time; `expire` once a minute bounds it."""

    _jobs: dict[str, dict[_Key, Known]] = field(default_factory=dict)
    _groups: dict[tuple[str, str], Group] = field(default_factory=dict)
    """By job and name: members are said once in a minute."""
    _count: int = 0
    refused: int = 0
    """Processes that were too many."""

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs that are known, in order."""
        return tuple(sorted(self._jobs))

    def take(self, host: str, said: tuple[Reported, ...], now_ns: int) -> None:
        """Take what a host says of its processes."""
        for each in said:
            of = self._jobs.get(each.process.job, {})
            key = host, each.process.pid, each.process.source
            known = of.get(key)
            if known is None:
                if self._count >= MOST_PROCESSES:
                    self.refused += 1
                    continue
                self._count += 1
                known = Known(host, each.process, now_ns, ())
                self._jobs.setdefault(each.process.job, of)[key] = known
            known.process, known.heard_ns = each.process, now_ns
            if each.rows:
                longest = sorted(each.rows, key=lambda row: -row.told.sum_us)
                known.rows = tuple(longest[:MOST_ROWS])
            self._follow(each, known)

    def _follow(self, said: Reported, known: Known) -> None:
        for row in said.rows:
            if row.group is None:
                continue
            at = said.process.job, row.group.name
            if row.group.members or at not in self._groups:
                self._groups[at] = row.group
            if row.kind is Kind.COLLECTIVE:
                begun, ended = known.progress.get(row.group.name, (0, 0))
                latest = max(begun, row.told.begun), max(ended, row.told.ended)
                known.progress[row.group.name] = latest

    def processes(self, job: str) -> tuple[Known, ...]:
        """Return what is known of a job, by rank."""
        return tuple(sorted(self._jobs.get(job, {}).values(), key=_by_rank))

    def expire(self, now_ns: int) -> None:
        """Forget processes that were not heard of for long, and jobs without any."""
        for job, of in list(self._jobs.items()):
            for key in [key for key, each in of.items() if each.heard_ns <= now_ns - FORGET_NS]:
                del of[key]
                self._count -= 1
            if not of:
                del self._jobs[job]
        for at in [at for at in self._groups if at[0] not in self._jobs]:
            del self._groups[at]

    def log(self, job: str, ranks: Collection[int] | None = None) -> Log:
        """Return how far each rank came in each group: the newest collective that ended, and begun.

        Of `ranks` only, where these are given: the others are unseen.

        Of two processes that claim one rank, the one that was heard first counts. Without records
        there are no times: who wants those asks hosts (`netagent.wire.operators`).
        """
        known: dict[int, Known] = {}
        for each in self.processes(job):
            if each.process.rank >= 0 and (ranks is None or each.process.rank in ranks):
                known.setdefault(each.process.rank, each)
        names = sorted({name for each in known.values() for name in each.progress})
        rows = [
            (rank, names.index(name), number, int(state))
            for rank, each in known.items()
            for name in sorted(each.progress)
            for number, state in _progress(*each.progress[name])
        ]
        columns: dict[str, Any] = {
            name: [row[place] for row in rows]
            for place, name in enumerate(("rank", "group", "sequence", "state"))
        }
        columns["kind"] = [int(Kind.COLLECTIVE)] * len(rows)
        columns["op"] = [0] * len(rows)
        world = max([0, *(each.process.world for each in known.values())])
        return log_of(
            columns, ops=("collective",), world=world, source="sums",
            groups=tuple(self._groups.get((job, name), Group(name)) for name in names),
            places={rank: Place(each.host) for rank, each in known.items()},
            silent=tuple(rank for rank, each in known.items() if not each.progress),
            unseen=tuple(rank for rank in range(world) if rank not in known),
        )  # fmt: skip


def _by_rank(of: Known) -> tuple[int, str, int]:
    rank = of.process.rank
    return rank if rank != UNKNOWN else 1 << 30, of.host, of.process.pid


def _progress(begun: int, ended: int) -> Iterator[tuple[int, State]]:
    if ended:
        yield ended, State.ENDED
    if begun > ended:
        yield begun, State.STARTED
