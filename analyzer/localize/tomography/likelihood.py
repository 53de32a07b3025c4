# SPDX-License-Identifier: Apache-2.0
"""The product's own ranking: what is blamed jointly, what could be meant instead, then the rest."""

import math
from collections.abc import Sequence

from analyzer.localize.tomography.observations import Observations
from analyzer.localize.tomography.ranking import Ranked, Ranking
from analyzer.localize.tomography.search import Blamed, Settings, search

MIN_CONFIDENCE = 0.8
"""Least posterior of a component that is named. Chosen: below it, what would decide is asked for,
which costs an operator less than a wrong name."""
QUOTED = 8
"""Most components that one line about a tie lists. Chosen: enough to recognise them by."""


def rank(
    seen: Observations[str], prior: Sequence[float], settings: Settings | None = None
) -> Ranking[str]:
    """Return the components; `prior` are nats for each, which only decide between equals."""
    settings = settings or Settings()
    found = search(seen, settings, prior=prior)
    ranked = {
        each.component: Ranked(each.component, each.confidence, each.explains, blamed=True)
        for each in found.blamed
    }
    decided = any(each.confidence >= MIN_CONFIDENCE for each in ranked.values())
    rivals = sorted(
        (pair for each in found.blamed for pair in each.rivals), key=lambda pair: -pair[1]
    )
    for component, posterior in rivals:
        ranked.setdefault(component, Ranked(component, posterior, 0.0))
    for component, gain in found.rest:
        ranked.setdefault(component, Ranked(component, _posterior(gain, settings), 0.0))
    ties = tuple(_tie(each) for each in found.blamed if each.confidence < MIN_CONFIDENCE)
    return Ranking(decided, tuple(ranked.values()), ties)


def _posterior(gain: float, settings: Settings) -> float:
    return 1.0 / (1.0 + math.exp(min(700.0, max(0.0, settings.cost - gain))))


def _tie(blamed: Blamed[str]) -> str:
    others = [component for component, _ in blamed.rivals[:QUOTED]]
    names = ", ".join([blamed.component, *others])
    return f"flows whose path is known across one of these, and not the others: {names}"
