# SPDX-License-Identifier: Apache-2.0
"""SkeletonHunter's Algorithm 1 (SIGCOMM '25), as a baseline: the link most failing paths cross."""

from collections.abc import Sequence

import numpy as np

from analyzer.localize.tomography.observations import Observations
from analyzer.localize.tomography.ranking import Ranked, Ranking, crossings

LEAST_VOTES = 2.0
"""Votes from which a link may be blamed. Algorithm 1: no verdict while all counters are at most
one."""


def rank(seen: Observations[str], candidates: Sequence[bool]) -> Ranking[str]:
    """Return `candidates` by the number of lossy flows that cross them; healthy flows are not read.

    A flow that may have taken several ways gives each its share of the vote.
    """
    flow, component, share = crossings(seen)
    lossy = (seen.lost > 0)[flow] & np.asarray(candidates, np.bool_)[component]
    count = len(seen.components)
    votes = np.bincount(component[lossy], share[lossy], minlength=count)
    lost = np.bincount(component[lossy], (share * seen.lost[flow])[lossy], minlength=count)
    order = [int(c) for c in np.argsort(-votes, kind="stable") if votes[c] > 0]
    most = float(votes.max(initial=0.0))
    shared = max(1, sum(votes[c] == most for c in order))
    return Ranking(
        decided=most >= LEAST_VOTES,
        ranked=tuple(
            Ranked(
                seen.components[c],
                float(votes[c] / most) / shared,
                float(lost[c]),
                blamed=bool(votes[c] == most),
            )
            for c in order
        ),
    )
