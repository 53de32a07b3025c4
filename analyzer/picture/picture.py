# SPDX-License-Identifier: Apache-2.0
"""The newest window, kept for whoever asks what it shows.

Whatever is computed is computed when somebody asks, and at most once for a window; what endpoints
are, only where they changed.
"""

from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from analyzer.intake.table import WindowTable
from analyzer.localize.routes import NO_ROUTE
from analyzer.localize.topology import LearnedTopology
from analyzer.picture.asked import Between, Fabric, Matrix, Question, Totals
from analyzer.picture.between import between
from analyzer.picture.crossings import Crossings
from analyzer.picture.fabric import fabric
from analyzer.picture.matrix import matrix
from analyzer.picture.scene import Ends, Scene
from analyzer.picture.sums import SENT
from netagent.model.endpoint import Endpoint
from netagent.model.errors import CapabilityMissing
from netagent.model.ids import EndpointId

Plain = dict[str, Any]

BACK_NS = 180 * 10**9
"""Nanoseconds by which a window is earlier that is a new one: the clock went back. Chosen: what
comes late comes within two minutes."""
MAX_ANSWERS = 16
"""Most answers kept of a window. Chosen: what some people look at; each is 500 KB at most."""
EXAMPLES = 5
"""Most examples that are named. Chosen: to be read."""
LOOKED_AT = 1 << 12
"""Most flows that these are chosen among. Chosen: microseconds."""

PARTS: Mapping[type[Question], tuple[str, ...]] = {
    Totals: ("ways", "columns", "first"),
    Fabric: ("ways", "columns", "leaves"),
    Matrix: ("columns", "first"),
    Between: ("ways", "columns"),
}
"""What of a scene is computed first, each by itself; ways change as the diagnosis goes on."""


class Picture:
    """What the newest window of a diagnosis shows. An observer of it."""

    def __init__(self) -> None:
        self._newest: tuple[WindowTable, Mapping[EndpointId, Endpoint], LearnedTopology] | None
        self._newest = None
        self._scene: Scene | None = None
        """Of the newest window, once somebody asked."""
        self._ends: Ends | None = None
        self._crossings = Crossings()
        self._drawing = 0
        """Fabrics that are being drawn."""
        self._answers: dict[Question, Plain] = {}
        """What was asked of it, with what it shows."""

    def wants(self, _start_ns: int) -> bool:
        """Return that what comes late is not wanted."""
        return False

    def saw(
        self,
        table: WindowTable,
        endpoints: Mapping[EndpointId, Endpoint],
        topology: LearnedTopology,
    ) -> None:
        """Take a window; what comes late of an earlier one changes nothing."""
        start_ns, newest_ns = table.rows.window.start_ns, self._start_ns()
        if newest_ns is None or not newest_ns - BACK_NS < start_ns <= newest_ns:
            self._newest, self._scene = (table, endpoints, topology), None

    def expire(self, before_ns: int) -> None:
        """Forget a window whose flows may soon have the numbers of others."""
        newest_ns = self._start_ns()
        if newest_ns is not None and newest_ns < before_ns:
            self._newest = self._scene = None

    def draw(self, asked: Question) -> Generator[None, None, Plain]:
        """Return what the window shows, piece by piece: meanwhile another one may be seen.

        Raises CapabilityMissing before the first one.
        """
        scene, answers = self._drawn(), self._answers
        if asked not in answers:
            found = yield from self._answer(scene, asked)
            answers[asked] = found
            while len(answers) > MAX_ANSWERS:
                del answers[next(iter(answers))]
            return found
        return answers[asked]

    def prepare(self) -> Generator[None, None, None]:
        """Find out which links routes cross, piece by piece, so that a fabric is drawn sooner.

        It costs memory, so who looks at nothing has none of it. It ends where somebody else needs
        them now, and finds them out.
        """
        if self._newest is None or self._drawing > 0:
            return
        for _ in self._crossings.cover(self._drawn().routes):
            yield
            if self._drawing > 0:
                return

    def _start_ns(self) -> int | None:
        return None if self._newest is None else self._newest[0].rows.window.start_ns

    def _drawn(self) -> Scene:
        if self._newest is None:
            raise CapabilityMissing("a window", "none was judged so far: ask again in some seconds")
        if self._scene is None:
            table, endpoints, topology = self._newest
            if self._ends is None or not self._ends.holds(endpoints, table.numbers):
                self._ends = Ends(endpoints, table.numbers)
            self._scene, self._answers = Scene(table, self._ends, topology), {}
        return self._scene

    def _answer(self, scene: Scene, asked: Question) -> Generator[None, None, Plain]:
        for part in PARTS[type(asked)]:
            getattr(scene, part)
            yield
        match asked:
            case Fabric():
                self._drawing += 1
                try:
                    return (yield from fabric(scene, self._crossings, asked))
                finally:
                    self._drawing -= 1
            case Totals():
                return totals(scene, asked)
            case Matrix():
                return (yield from matrix(scene, asked))
            case Between():
                return between(scene, asked)


def totals(scene: Scene, asked: Totals) -> Plain:
    """Return how much was probed, and of how many flows the way is not known."""
    seen = scene.seen(asked.tasks)
    unknown = np.flatnonzero(seen & (scene.ways == NO_ROUTE).any(axis=0))
    some = np.unique(scene.ends[:, unknown[:LOOKED_AT]], axis=1).T[:EXAMPLES]
    of = scene.known.endpoints
    return {
        "at_ns": scene.start_ns,
        "width_ns": scene.width_ns,
        "flows": int(seen.sum()),
        "pairs": int((seen & scene.first).sum()),
        "sent": int(scene.columns[SENT][seen].sum()),
        "unknown": len(unknown),
        "unknown_examples": [f"{of[a].id} to {of[b].id}" for a, b in some.tolist()],
        "sprays": scene.topology.sprays,
    }
