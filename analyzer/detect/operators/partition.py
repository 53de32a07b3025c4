# SPDX-License-Identifier: Apache-2.0
"""Whether a stage has more work than others, and how much chance has to do with it.

A pipeline is as quick as its slowest stage. Three bounds of a step's length tell apart what makes
it longer: all ranks as the mean; each as its stage usually is; each as it was. The first two differ
by the partition, the last two by chance. After Lin et al. (OSDI '25), who simulate the job instead;
`whatif` does that where a log tells its passes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.operators.case import Case
from analyzer.operators.rows import Floats, Ints

UNEVEN = 1.12
"""How many times the others' work a stage has to have. Chosen: the loss alone makes up to 10 %."""
MOSTLY = 0.5
"""Share of what is lost that has to be one cause's, so that it is named. Chosen: the larger."""
BOUNDED = 5.0
"""Times what bounds say chance costs, as which it counts beside the partition. Chosen: ranks of a
pipeline wait for each other in each microbatch, so that of sequences of unequal length over 13
stages bounds said 8 % and the schedule 43 %."""
TIED = 0.95
"""Share of the work of the stage with the most, from which another one has as much, so that one is
not named before the other. Chosen: to mend one alone would save a twentieth of it at most."""
COSTLY = 0.04
"""What chance or a partition costs of a step, from which it is told. Chosen: Holmes calls an
iteration irregular from 4 % on."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What is lost in a step, as a share of the step that evenly dealt work would take."""

    partition: float
    chance: float
    stages: tuple[int, ...]
    """Those with the most work: one, or several that have as much as each other."""
    times: float
    """How many times the others' work they have."""
    steady: float
    """Share of the steps in which one of them has the most."""

    bounded: bool = True
    """Whether these are bounds, and the schedule was not run again."""

    @property
    def uneven(self) -> bool:
        """Whether the partition is to be named."""
        lost = self.partition + self.chance * (BOUNDED if self.bounded else 1)
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
        return Parts(0.0, 0.0, (0,), 1.0, 0.0)
    known = np.where(case.known, work, np.nan)
    # Steps are compared with themselves: one that is ten times as long would decide a mean.
    mean = np.stack([np.nanmean(known[:, of], axis=1) for of in stages])
    usual = np.nanmedian(mean, axis=1)
    each: Floats = np.stack([np.nanmedian(known[:, of], axis=1) for of in stages])
    worst = int(np.argmax(usual))
    tied = usual >= TIED * usual[worst]
    even, uneven = mean.mean(axis=0), mean[worst]
    lived = np.nanmax(known[:, np.concatenate(stages)], axis=1)
    lost = [float(np.nanmedian(over / even)) for over in (uneven - even, lived - uneven)]
    steady = float(tied[np.argmax(each, axis=0)].mean())
    at = tuple(int(case.stage[stages[n]][0]) for n in np.flatnonzero(tied))
    return Parts(lost[0], lost[1], at, _times(usual, tied), steady)


def _times(usual: Floats, tied: NDArray[np.bool_]) -> float:
    """Return how many times the others' work stages have; 1 where they are more than half of all.

    Then it is the others that have little.
    """
    others = usual[~tied]
    if not len(others) or len(others) < tied.sum() or np.median(others) <= 0:
        return 1.0
    return float(usual.max() / np.median(others))
