# SPDX-License-Identifier: Apache-2.0
"""Which flows lose probes, and which ordered pairs cannot talk at all."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from analyzer.ingest import FlowNumbers, WindowRows
from netagent.model.ids import EndpointId, FlowId

UNCONNECTED_RUN = 3
"""Failures in a row to a target that mean unconnectivity."""
UNCONNECTED_MS = 4_000
"""The run must lie within this time, or a rate as low as one probe a minute would count."""


@dataclass(frozen=True, slots=True)
class FlowView:
    """What one flow's probes saw in the windows looked at."""

    flow: FlowId
    sent: int
    lost: int
    refused: int
    sent_large: int
    lost_large: int
    run: int
    run_ms: int

    @property
    def unconnected(self) -> bool:
        """Whether the flow ended the window with three losses in a row, close together."""
        return self.run >= UNCONNECTED_RUN and self.close

    @property
    def close(self) -> bool:
        """Whether its losses in a row come so close that three of them lie within four seconds."""
        spacing_ms = self.run_ms / max(1, self.run - 1)
        return spacing_ms * (UNCONNECTED_RUN - 1) <= UNCONNECTED_MS


def views(rows: WindowRows, numbers: FlowNumbers) -> list[FlowView]:
    """Return the flows of a window that sent anything."""
    columns = (
        rows.flow, rows.sent, rows.lost, rows.refused,
        rows.sent_large, rows.lost_large, rows.run, rows.run_ms,
    )  # fmt: skip
    return [
        FlowView(numbers.flow(number), *counters)
        for number, *counters in zip(*(each.tolist() for each in columns), strict=True)
        if counters[0]
    ]


def together(flows: Iterable[FlowView], before: Iterable[FlowView]) -> tuple[FlowView, ...]:
    """Return `flows` with what their probes saw in the window before added."""
    earlier = {view.flow: view for view in before}
    return tuple(
        replace(
            view,
            sent=view.sent + past.sent,
            lost=view.lost + past.lost,
            sent_large=view.sent_large + past.sent_large,
            lost_large=view.lost_large + past.lost_large,
        )
        if (past := earlier.get(view.flow)) is not None
        else view
        for view in flows
    )


def unconnected_pairs(flows: Iterable[FlowView]) -> set[tuple[EndpointId, EndpointId]]:
    """Return ordered pairs none of whose flows still gets an answer.

    The last probes of every source port must be lost, three or more together and some of them
    close in time: a pair that some ports still connect is an ECMP path's trouble, not the pair's.
    With many targets each port is visited rarely, so the run is counted over all of them.
    """
    by_pair: dict[tuple[EndpointId, EndpointId], list[FlowView]] = defaultdict(list)
    for view in flows:
        by_pair[view.flow.source, view.flow.target].append(view)
    return {
        pair
        for pair, seen in by_pair.items()
        if all(view.run for view in seen)
        and sum(view.run for view in seen) >= UNCONNECTED_RUN
        and any(view.run > 1 and view.close for view in seen)
    }
