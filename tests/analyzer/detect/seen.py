# SPDX-License-Identifier: Apache-2.0
"""Windows without rows, for detectors that look at something else."""

from analyzer.detect.flows import Flows
from analyzer.intake.flows import FlowNumbers
from analyzer.intake.table import WindowTable, joined
from analyzer.intake.windows import WindowState


def nothing(state: WindowState) -> tuple[WindowTable, Flows]:
    """Return no row and no flow."""
    numbers = FlowNumbers()
    return joined(state.window, {}, numbers), Flows.of((), numbers)
