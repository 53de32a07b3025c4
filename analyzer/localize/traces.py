# SPDX-License-Identifier: Apache-2.0
"""What traces of the virtual switches explain, where the flow tables deliver."""

from analyzer.localize.case import Case, Explained
from analyzer.localize.contract import Context
from analyzer.questions import Asking


class Traces:
    """Settles pairs by traces from their hosts, and requests traces of doubts that last."""

    settles = True

    def __init__(self, context: Context) -> None:
        self._doubts = context.doubts

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return a verdict per part of a host at which packets end."""
        yield from ()  # a trace takes longer than a window: what is wanted outlives it
        return self._doubts.settle(case)
