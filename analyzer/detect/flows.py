# SPDX-License-Identifier: Apache-2.0
"""Which flows lose probes, and which ordered pairs cannot talk at all."""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from analyzer.intake.flows import FlowNumbers, WindowRows
from netagent.model.anomaly import Subject
from netagent.model.ids import EndpointId, FlowId

UNCONNECTED_RUN = 3
"""Losses in a row to a target that mean unconnectivity. Chosen: two happen by chance on a lossy
path, more delay the verdict."""
UNCONNECTED_MS = 4_000
"""Milliseconds within which these losses must lie. Chosen: at one probe a minute, losses in a row
are minutes apart and may have different causes."""


@dataclass(frozen=True, slots=True)
class FlowView:
    """One flow's probes in one window."""

    flow: FlowId
    sent: int
    lost: int
    refused: int
    sent_large: int
    """Probes sent of the largest size."""
    lost_large: int
    """Probes lost of the largest size."""
    run: int
    """Losses in a row at the end of the window."""
    run_ms: int
    """Milliseconds from the first to the last loss of that run."""
    number: int = field(default=-1, compare=False)
    """Its number in the diagnosis's `FlowNumbers`; -1 where it has none."""

    @property
    def unconnected(self) -> bool:
        """Whether the flow ended the window with three losses in a row, close together."""
        return self.run >= UNCONNECTED_RUN and self.close

    @property
    def close(self) -> bool:
        """Whether any UNCONNECTED_RUN of its losses in a row lie within UNCONNECTED_MS."""
        spacing_ms = self.run_ms / max(1, self.run - 1)
        return spacing_ms * (UNCONNECTED_RUN - 1) <= UNCONNECTED_MS


def views(rows: WindowRows, numbers: FlowNumbers) -> list[FlowView]:
    """Return the flows of a window that sent anything."""
    columns = (
        rows.sent, rows.lost, rows.refused, rows.sent_large, rows.lost_large, rows.run,
        rows.run_ms, rows.flow,
    )  # fmt: skip
    return [
        FlowView(numbers.flow(values[-1]), *values)
        for values in zip(*(each.tolist() for each in columns), strict=True)
        if values[0]
    ]


def ends_of(flow: FlowId) -> tuple[EndpointId, EndpointId]:
    """Return the pair of a flow, smaller endpoint first."""
    a, b = flow.source, flow.target
    return (a, b) if a <= b else (b, a)


def between(
    pairs: AbstractSet[tuple[EndpointId, EndpointId]], flows: Iterable[FlowView]
) -> Iterator[tuple[tuple[EndpointId, EndpointId], FlowView]]:
    """Yield the flows of some pairs, each with its own; the pairs are as `ends_of` has them."""
    ends = {end for pair in pairs for end in pair}
    for view in flows:
        flow = view.flow
        # Nearly all flows are of other endpoints, and need no pair to be made.
        if flow.source in ends and flow.target in ends and (pair := ends_of(flow)) in pairs:
            yield pair, view


def unobserved(
    subjects: Collection[Subject], flows: Iterable[FlowView], endpoints: Container[EndpointId]
) -> bool:
    """Return whether no probe of these pairs was answered or lost, though they still exist.

    Their agents are silent, or had other targets' turns.
    """
    pairs = {each for each in subjects if isinstance(each, tuple)}
    there = [pair for pair in pairs if all(end in endpoints for end in pair)]
    return bool(there) and next(between(pairs, flows), None) is None


def unconnected_pairs(flows: Collection[FlowView]) -> set[tuple[EndpointId, EndpointId]]:
    """Return ordered pairs none of whose flows still gets an answer.

    The last probes of every source port must be lost: UNCONNECTED_RUN or more in all, with some
    port's losses close in time. Where some ports still connect the pair, an ECMP path is at fault
    and not the pair. With many targets each port is probed rarely, so runs of all ports are added.
    """
    doubtful = {(view.flow.source, view.flow.target) for view in flows if view.run}
    if not doubtful:
        return set()
    sources = {source for source, _ in doubtful}
    by_pair: dict[tuple[EndpointId, EndpointId], list[FlowView]] = defaultdict(list)
    for view in flows:
        flow = view.flow
        if flow.source in sources and (pair := (flow.source, flow.target)) in doubtful:
            by_pair[pair].append(view)
    return {
        pair
        for pair, seen in by_pair.items()
        if all(view.run for view in seen)
        and sum(view.run for view in seen) >= UNCONNECTED_RUN
        and any(view.run > 1 and view.close for view in seen)
    }
