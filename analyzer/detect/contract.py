# SPDX-License-Identifier: Apache-2.0
"""What a detector is. One file each, one line in `analyzer.diagnosis.engine`."""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.flows import Flows
from analyzer.intake.table import Owners, WindowTable
from analyzer.intake.windows import WindowState
from analyzer.questions import Asking
from netagent.model.anomaly import Anomaly, Subject
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.verdict import Symptom


@dataclass(frozen=True, slots=True)
class Seen:
    """All that came in for one closed window."""

    state: WindowState
    table: WindowTable
    """Rows of `state` that hosts reported of their own endpoints."""
    flows: Flows
    """Flows between endpoints that were registered throughout the window."""
    endpoints: Mapping[EndpointId, Endpoint]
    expected: AbstractSet[str]
    """Hosts that should have sent a summary."""
    absent: AbstractSet[str]
    """Expected hosts that were registered throughout the window and sent no summary."""
    patience: AbstractSet[str]
    """Hosts that may be slow to answer: their agents began recently, or make a trace."""
    now_ns: int = 0
    """When its judging begins, and so when the first questions are put."""
    delivering: AbstractSet[str] = frozenset()
    """Absent hosts whose summary of the window before came, however late."""
    owners: Owners | None = None
    """Hosts of the known endpoints, as `WindowTable.owners` has them, where they were looked up."""

    def owners_of_known(self) -> Owners:
        """Return the hosts of the known endpoints, as places."""
        if self.owners is not None:
            return self.owners
        known = self.endpoints
        return self.table.owners(lambda key: known[key].host if key in known else None)


class Detector(Protocol):
    """Sees what deviates in a window; it may remember what it needs between windows."""

    @property
    def symptoms(self) -> AbstractSet[Symptom]:
        """Symptoms that it raises; no other detector raises them."""

    def detect(self, seen: Seen) -> Asking[list[Anomaly]]:
        """Return what deviates; questions may be yielded on the way."""

    def over(self, subjects: Collection[Subject], seen: Seen) -> bool:
        """Return whether an incident about `subjects` with one of its symptoms is over.

        What was not observed is not over: see `analyzer.detect.flows.unobserved`.
        """

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Begin anew with these flow numbers: they are other flows now."""
