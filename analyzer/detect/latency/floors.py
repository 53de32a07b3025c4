# SPDX-License-Identifier: Apache-2.0
"""The least rise of a round trip that counts, for all tasks and for those that say otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.latency.merged import Floats, Ints, longer
from analyzer.intake.flows import FlowNumbers
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId

FACTOR = 1.3
"""Ratio to what a flow was. Chosen: operators call less normal."""
SHIFT_NS = 4_000.0
"""Nanoseconds more than a flow was. Chosen: 10 us more cost a training task a fifth
(SkeletonHunter, section 1), and a hop less than half of that."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The least rise that counts: by both."""

    FORGOTTEN: ClassVar = frozenset({"least_factor"})
    """Fields of earlier versions, which recordings may hold."""
    factor: float = FACTOR
    shift_ns: float = SHIFT_NS


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What an operator asks for."""

    common: Floor = field(default_factory=Floor)
    tasks: tuple[tuple[str, Floor], ...] = ()
    """Tasks that have another, by name."""


@dataclass(slots=True)
class Floors:
    """Floors by flow number."""

    asked: Sensitivity = field(default_factory=Sensitivity)
    _factor: Floats = field(default_factory=lambda: np.zeros(1024))
    """0 for flows whose task is not known yet."""
    _shift_ns: Floats = field(default_factory=lambda: np.zeros(1024))

    def at(
        self, flow: Ints, numbers: FlowNumbers, endpoints: Mapping[EndpointId, Endpoint]
    ) -> tuple[Floats, Floats]:
        """Return factor and nanoseconds, (n,) each, of flows by their numbers."""
        common, tasks = self.asked.common, dict(self.asked.tasks)
        if not tasks:
            return np.full(len(flow), common.factor), np.full(len(flow), common.shift_ns)
        size = int(flow.max(initial=-1)) + 1
        self._factor, self._shift_ns = (longer(e, size) for e in (self._factor, self._shift_ns))
        for number in flow[self._factor[flow] == 0].tolist():
            end = endpoints.get(numbers.flow(number).source)
            floor = tasks.get(end.task if end else "", common)
            self._factor[number], self._shift_ns[number] = floor.factor, floor.shift_ns
        return self._factor[flow], self._shift_ns[flow]

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Begin anew with these numbers: they are other flows now."""
        self._factor[flows[flows < len(self._factor)]] = 0.0
