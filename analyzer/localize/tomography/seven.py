# SPDX-License-Identifier: Apache-2.0
"""007 (NSDI '18, section 5), as a baseline: lossy flows vote 1/h for each of their h links.

The link with most votes is blamed, the flows that cross it are taken out, and the rest votes again,
until the best link has less than THRESHOLD of all votes.
"""

from collections.abc import Sequence

import numpy as np

from analyzer.localize.tomography.observations import Observations
from analyzer.localize.tomography.ranking import Ranked, Ranking, crossings

THRESHOLD = 0.0025
"""Least share of all votes at which a link is blamed: that of the public implementation in
netarch/FaultLocalization (`doubleO7.cpp`)."""


def rank(seen: Observations[str], candidates: Sequence[bool]) -> Ranking[str]:
    """Return the blamed in the order found, then the other `candidates` by their votes."""
    flow, component, share = crossings(seen)
    use = (seen.lost > 0)[flow] & np.asarray(candidates, np.bool_)[component]
    flow, component, share = flow[use], component[use], share[use]
    count, flows = len(seen.components), seen.flows
    length = np.bincount(flow, share, minlength=flows)
    vote = share / np.maximum(length[flow], 1e-12)
    lost = np.bincount(component, share * seen.lost[flow], minlength=count)
    first = np.bincount(component, vote, minlength=count)
    left, votes, blamed = np.ones(flows), first.copy(), []
    total = max(float(votes.sum()), 1e-12)
    while votes.max(initial=0.0) >= max(THRESHOLD * total, 1e-9):
        best = int(np.argmax(votes))
        blamed.append((best, float(votes[best]) / total))
        crossing = component == best
        left[flow[crossing]] *= 1.0 - share[crossing]
        votes = np.bincount(component, vote * left[flow], minlength=count)
        votes[[c for c, _ in blamed]] = 0.0
    rest = [(int(c), float(first[c]) / total) for c in np.argsort(-first, kind="stable")]
    known = {c for c, _ in blamed}
    order = blamed + [(c, part) for c, part in rest if part > 0.0 and c not in known]
    return Ranking(
        decided=bool(blamed),
        ranked=tuple(
            Ranked(seen.components[c], min(1.0, part), float(lost[c]), blamed=c in known)
            for c, part in order
        ),
    )
