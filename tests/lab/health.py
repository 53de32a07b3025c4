# SPDX-License-Identifier: Apache-2.0
"""A lab that is well: tasks come and go, traffic bursts, and no incident may open.

Containers are started and stopped as a scheduler would, one at a time or a whole task at once, at
moments that a seed draws; so is the rhythm of the traffic.

Who is dead says nothing, too. So the judge must be alive all the time, and in time, and at the end
a link is cut, which it has to name.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import httpx

from tests.lab.demo import SETTLE_S, Observer, Say, record
from tests.lab.drill import NAME_WITHIN_S, OUTPUT
from tests.lab.errors import LabError
from tests.lab.lab import TRAFFIC, Bursts, Lab
from tests.lab.shape import Controller, Transport, driven_by
from tests.lab.state import State
from tests.lab.workload import DEFAULT_TASKS, Container, task_containers

PAUSE_S = (2.0, 20.0)
"""Seconds between two changes: sometimes a second one comes before the first has settled."""
LAST_S = 20.0
"""Seconds watched after the last change: four windows."""
SPREAD_S = 3.0
"""Seconds over which a task's containers start."""
PERIODS_S, DUTIES = (1.0, 2.0, 4.0, 8.0), (0.1, 0.25, 0.5)
STATUS_S = 2.0
"""Seconds between two questions about the judge: each counts the rows of the database."""
LATE_S = 15.0
"""Seconds that a step of the judge may take. Chosen: three windows, which a starved machine of two
cores keeps to; what a judge says later than that is no answer to what goes on."""
UNWRITTEN_S = 300.0
"""Seconds in which the judge has to write a minute of history. Chosen: five of them."""
CONTROL = "link-down"
"""What is injected at the end."""


@dataclass(slots=True)
class Report:
    """What was done and seen."""

    changes: Counter[str] = field(default_factory=Counter)
    windows: set[int] = field(default_factory=set)
    """Starts of the windows of which a host's summary was taken."""
    incidents: dict[str, str] = field(default_factory=dict)
    """Id -> the component that it named last, or what it said of nobody."""
    written: int = 0
    """Files of history that the judge wrote: what it closed, other than what was taken."""
    late_s: float = 0.0
    """Longest step of the judge that was seen."""
    named_s: float | None = None
    """Seconds in which the link that was cut at the end was named."""
    failures: Counter[str] = field(default_factory=Counter)
    """What must not be -> how often it was seen."""

    @property
    def good(self) -> bool:
        """Whether the judge lived, said nothing, and named the link at the end."""
        return self.quiet and self.named_s is not None

    @property
    def quiet(self) -> bool:
        """Whether the judge lived, and said nothing."""
        return bool(self.windows) and not self.incidents and not self.failures

    def lines(self) -> list[str]:
        """Return the sums, for people."""
        named = "not named" if self.named_s is None else f"named after {self.named_s:.1f} s"
        return [
            *self.sums(),
            f"the link that was cut at the end: {named}",
            *(f"FAILED: {what} (seen {count} times)" for what, count in self.failures.items()),
        ]

    def sums(self) -> list[str]:
        """Return what was seen before the end, for people."""
        return [
            f"windows taken: {len(self.windows)}",
            f"files of history that the judge wrote: {self.written}",
            f"longest step of the judge: {self.late_s:.1f} s",
            *(f"{what}: {count}" for what, count in sorted(self.changes.items())),
            f"incidents: {len(self.incidents)}",
            *self.incidents.values(),
        ]


def ills(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a judge, by the answer of ``GET /v1/status``."""
    judge = status["judge"]
    if judge["pid"] is None:
        yield "there was no judge"
    if judge["starts"] != 1:
        yield "the judge was started again"
    if judge["late_ns"] > LATE_S * 1e9:
        yield f"the judge was more than {LATE_S:.0f} s late"
    if status["counters"]["worker_crashes"]:
        yield "a part of the analyzer crashed and was started again"
    if not status["disk"]["takes"]:
        yield "the analyzer's disk took nothing"


class Act(Enum):
    """What may change."""

    START = "start"
    STOP = "stop"
    RESTART_TASK = "restart-task"
    TRAFFIC = "traffic"


def choose(
    running: Sequence[Container], stopped: Sequence[Container], chance: random.Random
) -> tuple[Act, str]:
    """Return what changes next, and of which container or task."""
    starts = [(Act.START, each.id) for each in stopped]
    stops = [(Act.STOP, each.id) for each in running]
    tasks = [(Act.RESTART_TASK, task) for task in sorted({each.task for each in running})]
    # As many are started as stopped, on average; one of eight changes concerns a whole task.
    kinds = [*(3 * [starts or stops]), *(3 * [stops or starts]), tasks or starts]
    return chance.choice(chance.choice([*kinds, [(Act.TRAFFIC, "")]]))


def _members(task: str, state: State) -> tuple[Container, ...]:
    shape = state.shape
    return task_containers(task, tuple(range(shape.hosts)), shape.transport, shape.ip)


class Health:
    """Changes a lab, and watches."""

    def __init__(self, lab: Lab, observer: Observer, say: Say, *, seed: int) -> None:
        self._lab, self._observer, self._say = lab, observer, say
        self._chance = random.Random(seed)
        self._asked_s, self._written_s = 0.0, time.monotonic()
        """When the judge was asked for last, and when it had written last."""
        self.report = Report()

    def run(self, minutes: float) -> None:
        """Change the lab again and again, watch a little longer, then cut a link.

        What the lab cannot do any more is a failure in the report: what was seen is not lost.
        """
        try:
            self._run(minutes)
            self._cut(self._lab.state().shape.transport)
        except LabError as error:
            self.report.failures[str(error)] += 1

    def _run(self, minutes: float) -> None:
        self._watch(SETTLE_S[Transport.UDP])
        end_s = time.monotonic() + 60 * minutes
        while time.monotonic() < end_s - LAST_S:
            self._change()
            self._watch(min(self._chance.uniform(*PAUSE_S), end_s - time.monotonic()))
        self._watch(max(0.0, end_s - time.monotonic()))

    def _cut(self, transport: Transport) -> None:
        """Cut a link: a judge that does not name it has judged nothing before."""
        self._start_all()
        self._watch(SETTLE_S[transport])
        self._observer.remember()
        began_s = time.monotonic()
        fault = self._lab.inject(CONTROL)
        try:
            named = self._observer.wait(
                lambda: fault.truth.component in self._named(), timeout_s=NAME_WITHIN_S
            )
            self.report.named_s = time.monotonic() - began_s if named else None
            for other in sorted(self._named() - {fault.truth.component, str(None)}):
                self.report.failures[f"{other} was named for the link"] += 1
        finally:
            self._lab.heal(fault.key)

    def _named(self) -> set[str]:
        return {str(each["component"]) for each in self._observer.new()}

    def _stopped(self, state: State) -> list[Container]:
        everyone = {c for task in DEFAULT_TASKS for c in _members(task, state)}
        return sorted(everyone.difference(state.containers))

    def _start_all(self) -> None:
        for container in self._stopped(self._lab.state()):
            self._start(container.id)

    def _change(self) -> None:
        state = self._lab.state()
        stopped = self._stopped(state)
        what, name = choose(state.containers, stopped, self._chance)
        match what:
            case Act.START:
                self._start(name)
            case Act.STOP:
                self._stop(name)
            case Act.RESTART_TASK:
                self._restart_task(name, state)
            case Act.TRAFFIC:
                bursts = Bursts(self._chance.choice(PERIODS_S), self._chance.choice(DUTIES))
                self._lab.processes.kill(TRAFFIC)
                self._lab.start_traffic(bursts)
                self.report.changes["rhythms of the traffic"] += 1

    def _restart_task(self, task: str, state: State) -> None:
        members = [c for c in state.containers if c.task == task]
        for container in self._chance.sample(members, len(members)):
            self._stop(container.id)
        self._watch(self._chance.uniform(*PAUSE_S))
        started = self._lab.start_task(task, seed=self._chance.randrange(1000), spread_s=SPREAD_S)
        self.report.changes["containers started"] += len(started)

    def _start(self, container: str) -> None:
        self._lab.start_container(container)
        self.report.changes["containers started"] += 1

    def _stop(self, container: str) -> None:
        self._lab.stop_container(container)
        self.report.changes["containers stopped"] += 1

    def _watch(self, seconds: float) -> None:
        self._observer.wait(self._look, timeout_s=seconds)

    def _look(self) -> None:
        self.report.windows |= set(self._observer.windows())
        if time.monotonic() >= self._asked_s + STATUS_S:
            self._asked_s = time.monotonic()
            self._look_at_judge(self._observer.status())
        for each in self._observer.new():
            said = str(each["component"] or each["summary"])
            if self.report.incidents.get(each["id"]) != said:
                self.report.incidents[each["id"]] = said
                self._say(json.dumps(each))

    def _look_at_judge(self, status: Mapping[str, Any]) -> None:
        report, judge = self.report, status["judge"]
        report.failures.update(ills(status))
        report.late_s = max(report.late_s, judge["late_ns"] / 1e9)
        if judge["pid"] is None or judge["starts"] != 1:
            return  # nobody to ask, or one who counts anew
        written, before = self._observer.written(), report.written
        report.written = max(written, before)
        if written != before:
            self._written_s = time.monotonic()
        elif time.monotonic() > self._written_s + UNWRITTEN_S:
            report.failures[f"the judge wrote no history for {UNWRITTEN_S:.0f} s"] += 1


def run(
    lab: Lab, say: Say, *, minutes: float, seed: int, controller: Controller = Controller.NONE
) -> Report:
    """Run on a fresh lab, which is taken down after; return what was seen."""
    lab.up(driven_by(controller))
    try:
        with lab.services().client() as client:
            health = Health(lab, Observer(client), say, seed=seed)
            health.run(minutes)
            if not health.report.good:
                keep(client, "health", say)
    finally:
        lab.down()
    return health.report


def keep(client: httpx.Client, name: str, say: Say) -> None:
    """Record what the analyzer was given, for its replay; say why where that cannot be."""
    try:
        record(client, OUTPUT.with_name(f"{name}.recording"), say)
    except httpx.HTTPError as error:
        say(f"no recording: {error}")
