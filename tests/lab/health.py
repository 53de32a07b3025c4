# SPDX-License-Identifier: Apache-2.0
"""A lab that is well: tasks come and go, traffic bursts, and no incident may open.

Containers are started and stopped as a scheduler would, one at a time or a whole task at once, at
moments that a seed draws; so is the rhythm of the traffic.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from tests.lab.demo import SETTLE_S, Observer, Say, record
from tests.lab.drill import OUTPUT
from tests.lab.lab import TRAFFIC, Bursts, Lab
from tests.lab.shape import Shape, Transport
from tests.lab.state import State
from tests.lab.workload import DEFAULT_TASKS, Container, task_containers

PAUSE_S = (2.0, 20.0)
"""Seconds between two changes: sometimes a second one comes before the first has settled."""
LAST_S = 20.0
"""Seconds watched after the last change: four windows."""
SPREAD_S = 3.0
"""Seconds over which a task's containers start."""
PERIODS_S, DUTIES = (1.0, 2.0, 4.0, 8.0), (0.1, 0.25, 0.5)


@dataclass(slots=True)
class Report:
    """What was done and seen."""

    changes: Counter[str] = field(default_factory=Counter)
    windows: set[int] = field(default_factory=set)
    """Starts of the windows of which a host's summary was taken."""
    incidents: dict[str, str] = field(default_factory=dict)
    """Id -> the component that it named last, or what it said of nobody."""

    @property
    def good(self) -> bool:
        """Whether the analyzer judged windows and said nothing."""
        return bool(self.windows) and not self.incidents

    def lines(self) -> list[str]:
        """Return the sums, for people."""
        made = [f"{what}: {count}" for what, count in sorted(self.changes.items())]
        made.insert(0, f"windows judged: {len(self.windows)}")
        return [*made, f"incidents: {len(self.incidents)}", *self.incidents.values()]


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
        self.report = Report()

    def run(self, minutes: float) -> None:
        """Change the lab again and again, then watch a little longer."""
        self._watch(SETTLE_S[Transport.UDP])
        end_s = time.monotonic() + 60 * minutes
        while time.monotonic() < end_s - LAST_S:
            self._change()
            self._watch(min(self._chance.uniform(*PAUSE_S), end_s - time.monotonic()))
        self._watch(max(0.0, end_s - time.monotonic()))

    def _change(self) -> None:
        state = self._lab.state()
        everyone = {c for task in DEFAULT_TASKS for c in _members(task, state)}
        stopped = sorted(everyone.difference(state.containers))
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
        for each in self._observer.new():
            said = str(each["component"] or each["summary"])
            if self.report.incidents.get(each["id"]) != said:
                self.report.incidents[each["id"]] = said
                self._say(json.dumps(each))


def run(lab: Lab, say: Say, *, minutes: float, seed: int) -> Report:
    """Run on a fresh lab, which is taken down after; return what was seen."""
    lab.up(Shape())
    try:
        with lab.services().client() as client:
            health = Health(lab, Observer(client), say, seed=seed)
            health.run(minutes)
            if not health.report.good:
                record(client, OUTPUT.with_name("health.recording"), say)
    finally:
        lab.down()
    return health.report
