# SPDX-License-Identifier: Apache-2.0
"""Tasks that end and begin: which containers are where, and from when until when.

Containers of a task come and go raggedly. A host registers a container a moment after it is up, and
others probe it only once they heard of it; where it went, they probe for another moment. Sizes,
lifetimes and startup times are SkeletonHunter's (Figures 12, 2 and 4); starts come at a rate that
is told. Where no host is free for the next task, the one whose drawn lifetime ends first ends now:
at the paper's peak, two thousand starts a minute, few tasks can live as long as in its Figure 2.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analyzer.simulate.failures import SECOND

Ints = NDArray[np.int64]

FABRIC_HOSTS = 5_000
"""Hosts of the fabric in which the rate is told: 40,000 RNICs."""
SIZES = {8: 0.028, 12: 0.009, 16: 0.041, 32: 0.047}
"""Hosts of a task -> relative frequency: the smallest of Figure 12. None takes more than half of a
fabric."""
FILLED = 0.9
"""Share of the hosts that have a container in the beginning. Chosen: clouds are nearly full."""
LIFETIME_MIN = {16: (49.8, 461.0), 32: (42.4, 285.0)}
"""Most containers -> median and mean lifetime in minutes: Figure 2."""
STARTUP_MIN = ((0.0, 0.1, 0.5, 0.9, 1.0), (0.0, 0.0, 0.02, 7.2, 7.2))
"""Share of a task's containers -> minutes after its first one that they are up: A16 of Figure 4."""
STOP_S = 3.0
"""Seconds, at most, between the ends of a task's containers. Chosen: one scheduler stops them."""
FREE_NS = 15 * SECOND
"""Nanoseconds that a host stays without container. Chosen: nobody speaks of the last by then."""
REGISTER_NS = SECOND // 5
"""Nanoseconds until a host registers what changed. Chosen: it hears of it from netlink."""
HEARD_S = (0.05, 2.0)
"""Seconds until others heard of that. Chosen: agents announce to each other."""
FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Change:
    """A container is up, or gone."""

    at_ns: int
    """When its host registers it."""
    host: int
    there: bool


@dataclass
class Churn:
    """The tasks of a fabric over time; windows are asked for in order."""

    hosts: int
    seed: int
    starts_per_min: float
    """Containers that start each minute, in a fabric of FABRIC_HOSTS."""
    task_of: Ints = field(init=False)
    """(n_hosts,): number of the task that each host has, had until lately, or will have; -1."""
    up_ns: Ints = field(init=False)
    """(n_hosts,): when its container is up, and when it stops."""
    down_ns: Ints = field(init=False)
    heard_up_ns: Ints = field(init=False)
    """(n_hosts,): when others probe it, and when they stop to."""
    heard_down_ns: Ints = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng([self.seed, 5])
        self._rate = self.starts_per_min * self.hosts / FABRIC_HOSTS / 60 / SECOND
        """Starts per nanosecond."""
        self._tasks = 0
        self._ends_ns: dict[int, int] = {}
        """Task -> when its lifetime ends; those that are ending are not in it."""
        self._waiting: list[int] = []
        """Sizes of tasks that wait for hosts."""
        self.task_of = np.full(self.hosts, -1)
        self.up_ns, self.down_ns, self.heard_up_ns, self.heard_down_ns = (
            np.full(self.hosts, FOREVER) for _ in range(4)
        )
        while self.hosts - self._free().size < FILLED * self.hosts:
            size = min(self._size(), self._free().size)
            self._begin(self._free()[:size], 0, ragged=False)
        self._next_ns = 0

    def window(self, start_ns: int, until_ns: int) -> tuple[bool, list[Change]]:
        """Let a window pass; return whether tasks moved, and who came and went."""
        if not self._next_ns:
            self._next_ns = start_ns + self._pause_ns(1)
        before = self.task_of.copy()
        gone = self.down_ns < start_ns - FREE_NS
        self.task_of[gone] = -1
        for column in (self.up_ns, self.down_ns, self.heard_up_ns, self.heard_down_ns):
            column[gone] = FOREVER
        while self._waiting and self._waiting[0] <= self._free().size:
            free = self._rng.permutation(self._free())[: self._waiting.pop(0)]
            self._begin(free, start_ns, ragged=True)
        for task in [n for n, end_ns in self._ends_ns.items() if end_ns < until_ns]:
            self._end(task, max(start_ns, self._ends_ns[task]))
        while self._next_ns < until_ns:
            self._arrive(max(start_ns, self._next_ns))
        return bool((before != self.task_of).any()), self._changes(start_ns, until_ns)

    def _arrive(self, now_ns: int) -> None:
        size = self._size()
        self._waiting.append(size)
        self._next_ns = now_ns + self._pause_ns(size)
        going = int((self.down_ns < FOREVER).sum())
        lacking = sum(self._waiting) - self._free().size - going
        for task, _ in sorted(self._ends_ns.items(), key=lambda each: each[1]):
            if lacking <= 0:
                break
            lacking -= int((self.task_of == task).sum())
            self._end(task, now_ns)

    def _begin(self, hosts: Ints, now_ns: int, *, ragged: bool) -> None:
        self._tasks, count = self._tasks + 1, len(hosts)
        self.task_of[hosts] = self._tasks
        median, mean = LIFETIME_MIN[16 if count <= 16 else 32]
        spread = np.sqrt(2 * np.log(mean / median))
        minutes = float(self._rng.lognormal(np.log(median), spread))
        self._ends_ns[self._tasks] = now_ns + int(min(minutes, 30_000) * 60 * SECOND)
        late_min = np.interp(self._rng.random(count), *STARTUP_MIN) if ragged else np.zeros(count)
        self.up_ns[hosts] = now_ns + (late_min * 60 * SECOND).astype(np.int64)
        self.heard_up_ns[hosts] = self.up_ns[hosts] + self._heard(count)

    def _end(self, task: int, now_ns: int) -> None:
        del self._ends_ns[task]
        hosts = np.flatnonzero(self.task_of == task)
        late_ns = (self._rng.uniform(0, STOP_S, len(hosts)) * SECOND).astype(np.int64)
        self.down_ns[hosts] = now_ns + late_ns
        self.heard_down_ns[hosts] = self.down_ns[hosts] + self._heard(len(hosts))

    def _heard(self, count: int) -> Ints:
        heard: Ints = (self._rng.uniform(*HEARD_S, count) * SECOND).astype(np.int64)
        return REGISTER_NS + heard

    def _free(self) -> Ints:
        return np.flatnonzero(self.task_of < 0)

    def _size(self) -> int:
        sizes = [each for each in SIZES if each <= self.hosts // 2] or [max(1, self.hosts // 2)]
        shares = np.asarray([SIZES.get(each, 1.0) for each in sizes])
        return int(self._rng.choice(sizes, p=shares / shares.sum()))

    def _pause_ns(self, size: int) -> int:
        return int(self._rng.exponential(size / self._rate))

    def _changes(self, start_ns: int, until_ns: int) -> list[Change]:
        changes = []
        # A container that stops before it is up never comes.
        comes = self.down_ns > self.up_ns
        for there, column in ((True, self.up_ns), (False, self.down_ns)):
            due = comes & (column >= start_ns - REGISTER_NS) & (column < until_ns - REGISTER_NS)
            changes += [
                Change(int(column[host]) + REGISTER_NS, host, there)
                for host in np.flatnonzero(due).tolist()
            ]
        return sorted(changes, key=lambda each: each.at_ns)

    def alive(self, hosts: Ints, at_ns: Ints) -> NDArray[np.bool_]:
        """Return whether the containers on these hosts are there at these instants."""
        return (self.up_ns[hosts] <= at_ns) & (at_ns < self.down_ns[hosts])

    def probed(self, source: Ints, target: Ints, at_ns: Ints) -> NDArray[np.bool_]:
        """Return whether containers on these hosts probe each other at these instants."""
        return (
            self.alive(source, at_ns)
            & (np.maximum(self.heard_up_ns[source], self.heard_up_ns[target]) <= at_ns)
            & (at_ns < self.heard_down_ns[target])
        )
