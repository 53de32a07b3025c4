# SPDX-License-Identifier: Apache-2.0
"""What ranks components by what flows lost, and what it returns."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from analyzer.localize.tomography.observations import Floats, Ints, Observations

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Ranked(Generic[K]):
    """A component that may be at fault."""

    component: K
    confidence: float
    """Probability that it is, 0 to 1."""
    explains: float
    """Lost probes that it accounts for."""
    blamed: bool = False
    """Whether it is needed to explain the losses; others could be meant instead, or not at all."""


@dataclass(frozen=True, slots=True)
class Ranking(Generic[K]):
    """Components that may be at fault, best first."""

    decided: bool
    """Whether the first is named, and not only suspected."""
    ranked: tuple[Ranked[K], ...]
    missing: tuple[str, ...] = ()
    """Evidence that would decide what is open."""


def crossings(seen: Observations[K]) -> tuple[Ints, Ints, Floats]:
    """Return flows, components, and the probability that the flow crossed the component.

    Each pair stands once. All alternatives of a leg count by their weight, whatever was lost.
    """
    flow, slot = np.nonzero(seen.legs >= 0)
    leg = seen.legs[flow, slot]
    counts = np.diff(seen.first_alternative)
    leg_of = np.repeat(np.arange(len(counts)), counts)
    lengths = np.diff(seen.first_member)
    member_leg, weight = np.repeat(leg_of, lengths), np.repeat(seen.weight, lengths)
    pairs, inverse = np.unique(
        member_leg * len(seen.components) + seen.members, return_inverse=True
    )
    share = np.minimum(1.0, np.bincount(inverse.reshape(-1), weight))
    first = np.searchsorted(pairs // max(1, len(seen.components)), np.arange(len(counts) + 1))
    sizes = np.diff(first)[leg]
    begin = np.repeat(first[leg] - np.cumsum(sizes) + sizes, sizes)
    entry = begin + np.arange(int(sizes.sum()))
    component = pairs[entry] % max(1, len(seen.components))
    keys, inverse = np.unique(
        np.repeat(flow, sizes) * len(seen.components) + component, return_inverse=True
    )
    missed = np.ones(len(keys))
    np.multiply.at(missed, inverse.reshape(-1), 1.0 - share[entry])
    return keys // max(1, len(seen.components)), keys % max(1, len(seen.components)), 1.0 - missed
