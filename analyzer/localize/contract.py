# SPDX-License-Identifier: Apache-2.0
"""What a localiser is. One file each, one line in `analyzer.diagnosis.engine.LOCALIZERS`."""

from dataclasses import dataclass, field
from typing import Protocol

from analyzer.localize.case import Case, Explained
from analyzer.localize.topology import LearnedTopology
from analyzer.localize.tracing.doubts import Doubts
from analyzer.localize.validating.wants import Comparisons
from analyzer.questions import Asking
from analyzer.roster.registry import Registry


@dataclass(frozen=True, slots=True)
class Context:
    """What all localisers of one diagnosis share."""

    roster: Registry
    topology: LearnedTopology
    doubts: Doubts
    probe_port: int
    """UDP destination port of UDP probes."""
    comparisons: Comparisons = field(default_factory=Comparisons)


class Localizer(Protocol):
    """Finds components at fault, window after window; it may remember what it needs between them.

    One that settles states what is (a fact, a walk, a trace); the others infer (a vote). What was
    stated heals visibly: losses of the window after it are not put to a vote.
    """

    @property
    def settles(self) -> bool:
        """Whether its verdicts are facts, not inferences."""

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return verdicts on what `case.rest` holds; questions may be yielded on the way."""
