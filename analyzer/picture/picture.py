# SPDX-License-Identifier: Apache-2.0
"""The newest window, kept for whoever asks what it shows.

Whatever is computed is computed when somebody asks, and at most once for a window.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from analyzer.intake.table import WindowTable
from analyzer.localize.routes import NO_ROUTE
from analyzer.localize.topology import LearnedTopology
from analyzer.picture.asked import Between, Fabric, Matrix, Question, Totals
from analyzer.picture.scene import Scene
from netagent.model.endpoint import Endpoint
from netagent.model.errors import CapabilityMissing
from netagent.model.ids import EndpointId

Plain = dict[str, Any]

BACK_NS = 180 * 10**9
"""Nanoseconds by which a window is earlier that is a new one: the clock went back. Chosen: what
comes late comes within two minutes."""
EXAMPLES = 5
"""Most examples that are named. Chosen: to be read."""


class Picture:
    """What the newest window of a diagnosis shows. An observer of it."""

    def __init__(self) -> None:
        self._scene: Scene | None = None

    def saw(
        self,
        table: WindowTable,
        endpoints: Mapping[EndpointId, Endpoint],
        topology: LearnedTopology,
    ) -> None:
        """Take a window; what comes late of an earlier one changes nothing."""
        start_ns, scene = table.rows.window.start_ns, self._scene
        if scene is None or not scene.start_ns - BACK_NS < start_ns <= scene.start_ns:
            self._scene = Scene(table, endpoints, topology)

    def expire(self, before_ns: int) -> None:
        """Forget a window whose flows may soon have the numbers of others."""
        if self._scene is not None and self._scene.start_ns < before_ns:
            self._scene = None

    def draw(self, asked: Question) -> Plain:
        """Return what the window shows. Raises CapabilityMissing before the first one."""
        scene = self._scene
        if scene is None:
            raise CapabilityMissing("a window", "none was judged so far: ask again in some seconds")
        match asked:
            case Totals():
                return _totals(scene, asked)
            case Fabric() | Matrix() | Between():
                raise CapabilityMissing("this view", "it is not there yet")


def _totals(scene: Scene, asked: Totals) -> Plain:
    seen = scene.seen(asked.tasks)
    unknown = seen & (scene.ways == NO_ROUTE).any(axis=0)
    ends = scene.ends[:, seen]
    pairs = np.unique(ends[0] << 32 | ends[1])
    some = np.unique(scene.ends[:, unknown][:, : 1 << 12], axis=1).T[:EXAMPLES]
    of = scene.endpoints
    return {
        "at_ns": scene.start_ns,
        "width_ns": scene.width_ns,
        "flows": int(seen.sum()),
        "pairs": len(pairs),
        "sent": int(scene.columns[0][seen].sum()),
        "unknown": int(unknown.sum()),
        "unknown_examples": [f"{of[a].id} to {of[b].id}" for a, b in some.tolist()],
        "sprays": scene.topology.sprays,
    }
