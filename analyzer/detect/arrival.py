# SPDX-License-Identifier: Apache-2.0
"""Containers that were declared and never came: no network trouble, but what a task waits for.

Nothing is told of a task that has not begun, of which no container ever registered: a job may be
queued for hours. Once one of them came, the others are expected.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.contract import Seen
from analyzer.questions import Asking
from analyzer.roster.registry import Awaited, Registry
from netagent.model.anomaly import Anomaly, Subject
from netagent.model.path import Component, Kind
from netagent.model.verdict import Symptom

AFTER_NS = 1_200_000_000_000
"""Nanoseconds after which a container that was declared is missing, unless the operator says
otherwise. Chosen: SkeletonHunter's slowest task has all of its containers after 17.8 minutes
(Figure 4)."""
RESTART_NS = 30_000_000_000
"""Nanoseconds after a start of the analyzer before which nothing is missing. Chosen: agents
register again within some seconds, and an incident from before waits for a minute to be seen."""
MAX_TOLD = 8
"""Most containers of a task that are incidents at a time. Chosen: where a hundred do not come, the
reason is one, and each is listed with the task."""


@dataclass(slots=True)
class Arrival:
    """Sees declared containers that do not come."""

    symptoms: ClassVar = frozenset({Symptom.MISSING})

    roster: Registry
    after_ns: int = AFTER_NS
    _began_ns: int = 0
    missing: tuple[Awaited, ...] = ()
    """Those to be told of, as of the newest window; MAX_TOLD of a task at most."""
    _all: frozenset[str] = field(default_factory=frozenset)
    """Names of all of them."""

    def begin(self, now_ns: int) -> None:
        """Note that the analyzer started: agents are only about to register."""
        self._began_ns = now_ns

    def detect(self, seen: Seen) -> Asking[list[Anomaly]]:
        """Return the containers that should have come by the end of the window."""
        yield from ()  # nobody can be asked
        window = seen.state.window
        late: list[Awaited] = []
        if window.end_ns >= self._began_ns + RESTART_NS:
            begun = (each for each in self.roster.awaited() if each.begun_ns is not None)
            late = overdue(begun, now_ns=window.end_ns, after_ns=self.after_ns)
        self._all = frozenset(each.container for each in late)
        self.missing = tuple(_few(late))
        return [
            Anomaly(Component(Kind.CONTAINER, each.container), Symptom.MISSING, window)
            for each in self.missing
        ]

    def over(self, subjects: Collection[Subject], _seen: Seen) -> bool:
        """Return whether each of them came, or is no longer declared."""
        return not self._all & {each.name for each in subjects if isinstance(each, Component)}

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Remember containers only."""


def overdue(awaited: Iterable[Awaited], *, now_ns: int, after_ns: int) -> list[Awaited]:
    """Return those that are awaited for longer than `after_ns`, and their task as well."""
    return [
        each for each in awaited if now_ns - max(each.declared_ns, each.begun_ns or 0) >= after_ns
    ]


def _few(late: Iterable[Awaited]) -> Iterable[Awaited]:
    told: dict[str, int] = {}
    for each in late:
        told[each.task] = told.get(each.task, 0) + 1
        if told[each.task] <= MAX_TOLD:
            yield each
