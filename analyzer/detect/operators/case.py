# SPDX-License-Identifier: Apache-2.0
"""What the rules on slow jobs look at: a log's aggregates, and where its ranks are."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.operators.positions import way
from analyzer.operators.aggregate import Aggregates
from analyzer.operators.log import Group, Place
from analyzer.operators.rows import Floats, Ints


@dataclass(frozen=True, slots=True)
class Case:
    """One job, summed up."""

    sums: Aggregates
    stage: Ints
    """(ranks,) which pipeline stage."""
    groups: tuple[Group, ...] = ()
    places: Mapping[int, Place] | None = None
    guessed: bool = False
    """Whether the log does not name peers, and they follow from where ranks are."""
    transfers: bool = True
    """Whether the log has sends and receives, if the job has any."""
    mixed: NDArray[np.bool_] | None = None
    """(ranks,): whether its stage may be several that nothing tells apart."""

    @property
    def step_us(self) -> Floats:
        """(steps,): how long each took."""
        return np.nanmedian(self.sums.length_us, axis=1)

    @property
    def known(self) -> NDArray[np.bool_]:
        """(steps, ranks): whether a rank has anything in a step."""
        return ~np.isnan(self.sums.length_us)

    @property
    def own_us(self) -> Floats:
        """(steps, ranks): what each rank did itself.

        Where computing is logged and a pipeline's transfers are not, what a rank did not log may be
        its waiting for others, and is left out.
        """
        known = self.sums.own_us[:, :, :-1] if self.is_blind else self.sums.own_us
        return np.asarray(known.sum(axis=2))

    @property
    def is_blind(self) -> bool:
        """Whether ranks wait in what the log lacks, and it has what they compute."""
        return self.is_piped and len(self.sums.labels) > 1

    @property
    def is_piped(self) -> bool:
        """Whether ranks of a pipeline wait for each other in what the log lacks."""
        return not self.transfers and int(self.stage.max(initial=0)) > 0

    @property
    def passes_us(self) -> Floats:
        """(steps, ranks): forward and backward passes alone; all a rank did where none is named."""
        named = [n for n, label in enumerate(self.sums.labels) if way(label)]
        return np.asarray(self.sums.own_us[:, :, named].sum(axis=2)) if named else self.own_us

    def host(self, rank: int) -> str | None:
        """Return the host of a rank, where known."""
        place = (self.places or {}).get(rank)
        return place.host if place else None
