# SPDX-License-Identifier: Apache-2.0
"""Logs of simulated jobs, for tests of what is said of them."""

import numpy as np

from analyzer.detect.operators.case import Case
from analyzer.detect.operators.iterations import iterations
from analyzer.detect.operators.neighbours import with_peers
from analyzer.detect.operators.positions import stages
from analyzer.operators.aggregate import aggregate
from analyzer.operators.log import Log
from analyzer.simulate.operators.clockwork import run
from analyzer.simulate.operators.faults import Injected
from analyzer.simulate.operators.harm import harm
from analyzer.simulate.operators.job import Job
from analyzer.simulate.operators.logs import HOOKS, TRACE, Source, log_of_run

ALL = Source()
"""A source that tells everything."""
NAMELESS = Source(groups=False, cells=True, relative=True, places=False)
"""A production trace that does not say where its ranks are."""
SOURCES = {"trace": TRACE, "nameless": NAMELESS, "hooks": HOOKS, "all": ALL}


def logged(job: Job, *faults: Injected, source: Source = ALL, seed: int = 1) -> Log:
    """Return the log of a job that this befalls."""
    rng = np.random.default_rng(seed)
    return log_of_run(run(job, harm(job, faults, rng), rng), source, rng)


def case_of(log: Log) -> Case:
    """Return what the rules look at."""
    found = iterations(log)
    sums = aggregate(with_peers(log), found.step, found.steps)
    return Case(sums, stages(log, sums.ranks, found.step), log.groups, log.places)
