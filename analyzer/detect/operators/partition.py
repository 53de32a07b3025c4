# SPDX-License-Identifier: Apache-2.0
"""Whether a stage has more work than others, and how much chance has to do with it.

A pipeline is as quick as its slowest stage. Three bounds of a step's length tell apart what makes
it longer: all ranks as the mean; each as its stage usually is; each as it was. The first two differ
by the partition, the last two by chance. After Lin et al. (OSDI '25), who simulate the job instead;
`whatif` does that where a log tells its passes.
"""

from dataclasses import dataclass

import numpy as np

from analyzer.detect.operators.case import Case
from analyzer.operators.aggregate import Floats, Ints

UNEVEN = 1.12
"""How many times the others' work a stage has to have. Chosen: the loss alone makes up to 10 %."""
MOSTLY = 0.5
"""Share of what is lost that has to be one cause's, so that it is named. Chosen: the larger."""
COSTLY = 0.04
"""What chance or a partition costs of a step, from which it is told. Chosen: Holmes calls an
iteration irregular from 4 % on."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What is lost in a step, as a share of the step that evenly dealt work would take."""

    partition: float
    chance: float
    stage: int
    """The one with the most work."""
    times: float
    """How many times the others' work it has."""
    steady: float
    """Share of the steps in which it has the most."""

    @property
    def uneven(self) -> bool:
        """Whether the partition is to be named."""
        lost = self.partition + self.chance
        return (
            self.times >= UNEVEN and self.partition >= COSTLY
            and self.partition >= MOSTLY * lost and self.steady >= MOSTLY
        )  # fmt: skip

    @property
    def uneven_by_chance(self) -> bool:
        """Whether chance costs enough to be told."""
        return self.chance >= COSTLY


def parts(case: Case, without: Ints) -> Parts:
    """Return what is lost to the partition and to chance; ranks at these places left out."""
    keep = np.ones(len(case.stage), bool)
    keep[without] = False
    work = case.passes_us
    stages = [np.flatnonzero((case.stage == n) & keep) for n in range(int(case.stage.max()) + 1)]
    stages = [of for of in stages if len(of)]
    if not stages:
        return Parts(0.0, 0.0, 0, 1.0, 0.0)
    known = np.where(case.known, work, np.nan)
    # Steps are compared with themselves: one that is ten times as long would decide a mean.
    mean = np.stack([np.nanmean(known[:, of], axis=1) for of in stages])
    usual = np.nanmedian(mean, axis=1)
    each: Floats = np.stack([np.nanmedian(known[:, of], axis=1) for of in stages])
    worst = int(np.argmax(usual))
    others = np.delete(usual, worst)
    even, uneven = mean.mean(axis=0), mean[worst]
    lived = np.nanmax(known[:, np.concatenate(stages)], axis=1)
    lost = [float(np.nanmedian(over / even)) for over in (uneven - even, lived - uneven)]
    steady = float((np.argmax(each, axis=0) == worst).mean())
    at = int(case.stage[stages[worst][0]])
    times = (
        float(usual[worst] / np.median(others)) if len(others) and np.median(others) > 0 else 1.0
    )
    return Parts(lost[0], lost[1], at, times, steady)
