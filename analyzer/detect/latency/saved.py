# SPDX-License-Identifier: Apache-2.0
"""What is known of flows' round trips as columns by flow, so that a restart need not begin anew."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from netagent.model.ids import FlowId

Columns = Mapping[str, NDArray[Any]]
"""Name -> (n_flows, ...)."""


@dataclass(frozen=True, slots=True)
class Saved:
    """Baselines of some flows. A flow's number is one run's; here its name tells who it is."""

    until_ns: int
    """End of the newest window that was learned, Unix nanoseconds: what came later is not in it."""
    drift_window: int
    """Number of the half hour that was being filled."""
    flows: tuple[FlowId, ...]
    columns: Columns
