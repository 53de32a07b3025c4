# SPDX-License-Identifier: Apache-2.0
"""Jobs that wait for a part of themselves, as their own operators tell.

A job's log is judged elsewhere, since that takes seconds (`analyzer.detect.operators`). Its verdict
holds until the next one about that job, or until it is too old to say anything of today.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.contract import Seen
from analyzer.detect.operators.pauses import FIRST_NS
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who
from analyzer.questions import Asking
from netagent.model.anomaly import Anomaly, Subject
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind
from netagent.model.verdict import Symptom

STALE_NS = 120_000_000_000
"""Nanoseconds after which a job's verdict says nothing of today. Chosen: several times as long as
it takes to judge a log anew; a collector that lags is no hang."""
EVERY_NS = 20_000_000_000
"""Nanoseconds between two looks at all jobs. Chosen: some windows; who is slow is slow for
longer."""
STUCK_NS = 45_000_000_000
"""Nanoseconds in which no collective of a job begins or ends, from which on it stands still.
Chosen: longer than a checkpoint of a small job, far less than a watchdog's ten minutes."""
AGAIN_NS = FIRST_NS + 3 * EVERY_NS
"""Nanoseconds that a hang takes to be seen anew, at most, once hosts are heard. Chosen: a look that
begins to wait, the look after the wait for who may go on by itself, and one more for judging, and
the window that tells it."""
MAX_TOLD = 8
"""Most ranks of a job that are incidents at a time. Chosen: where more are slow, the reason is one,
and the job itself is named."""


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """What the operators of a task's job say, as of an instant."""

    task: str
    verdict: Verdict
    at_ns: int
    """When the newest of the operators ended that were looked at, by the analyzer's clock."""
    endpoints: Mapping[int, tuple[EndpointId, ...]] = field(default_factory=dict)
    """Endpoints of the ranks that the verdict names, as far as they are known."""

    def ends(self, ranks: Iterable[int]) -> set[EndpointId]:
        """Return the endpoints of some ranks."""
        return {key for rank in ranks for key in self.endpoints.get(rank, ())}


@dataclass(slots=True)
class Held:
    """Sees parts of jobs that hold them up."""

    symptoms: ClassVar = frozenset({Symptom.HELD_UP})

    _told: dict[str, JobVerdict] = field(default_factory=dict)
    """By task."""
    _seen_ns: int = 0

    def tell(self, jobs: Iterable[JobVerdict]) -> None:
        """Take the newest verdict about each job; of others nothing is known any more."""
        self._told = {job.task: job for job in jobs}

    @property
    def current(self) -> tuple[JobVerdict, ...]:
        """Return the verdicts that still say something, as of the newest window."""
        return tuple(job for job in self._told.values() if self._seen_ns < job.at_ns + STALE_NS)

    def _heard(self) -> set[str]:
        """Return the tasks of which something is known: who cannot tell acquits nobody."""
        return {job.task for job in self.current if job.verdict.holdup is not Holdup.INSUFFICIENT}

    def detect(self, seen: Seen) -> Asking[list[Anomaly]]:
        """Return the parts that hold a job up."""
        yield from ()  # nobody can be asked
        self._seen_ns = seen.now_ns
        tasks = {end.task for end in seen.endpoints.values()}
        self._told = {task: job for task, job in self._told.items() if task in tasks}
        return [
            Anomaly(part, Symptom.HELD_UP, seen.state.window)
            for job in self.current
            for part in parts_of(job)
        ]

    def over(self, subjects: Collection[Subject], seen: Seen) -> bool:
        """Return whether a job that can still be seen no longer names any of them, or is gone."""
        named = {part for job in self.current for part in parts_of(job)}
        tasks = {end.task for end in seen.endpoints.values()}
        heard = self._heard()
        for each in subjects:
            is_unread = isinstance(each, Component) and any(
                task in tasks and task not in heard for task in _tasks_of(each, tasks)
            )
            if each in named or is_unread:
                return False
        return True

    def unread(self, subjects: Collection[Subject]) -> bool:
        """Return whether these are ranks or jobs of which no verdict says anything now."""
        heard = self._heard()
        parts = [each for each in subjects if isinstance(each, Component)]
        mine = [each for each in parts if each.kind in {Kind.RANK, Kind.TASK}]
        return bool(mine) and not any(_tasks_of(each, heard) for each in mine)

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Remember jobs only."""


def _tasks_of(part: Component, tasks: Collection[str]) -> set[str]:
    """Return the tasks that a part belongs to; a host may be any's."""
    if part.kind is Kind.TASK:
        return {part.name} & set(tasks)
    if part.kind is Kind.RANK:
        return {part.name.rpartition("/")[0]} & set(tasks)
    return set(tasks)


def parts_of(job: JobVerdict) -> dict[Component, Culprit | None]:
    """Return what holds a job up, with whom its verdict blames for it.

    What lies between ranks is no part of a job: it is the network's, or nobody's.
    """
    blamed = [each for each in job.verdict.culprits if not each.network]
    ranks = {
        Component(Kind.RANK, f"{job.task}/{rank}"): each
        for each in blamed
        if each.kind is Who.RANK
        for rank in each.ranks
    }
    others = {_part(each, job.task): each for each in blamed if each.kind is not Who.RANK}
    if len(ranks) > MAX_TOLD:
        ranks = {Component(Kind.TASK, job.task): next(iter(ranks.values()))}
    disagreed = job.verdict.holdup is Holdup.DISAGREEMENT
    alone: dict[Component, Culprit | None] = (
        {Component(Kind.TASK, job.task): None} if disagreed else {}
    )
    return alone | others | ranks


def _part(culprit: Culprit, task: str) -> Component:
    if culprit.kind is Who.HOST and culprit.host:
        return Component(Kind.HOST, culprit.host)
    return Component(Kind.TASK, task)
