# SPDX-License-Identifier: Apache-2.0
"""Probe events into the summary of a window."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType

from netagent.collect.paths import PathsToSay
from netagent.collect.traffic import TrafficRows
from netagent.host.counters import CounterRows
from netagent.model.finding import Finding
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.probing.digest import Digest
from netagent.probing.session import (
    ProbeEvent,
    ProbeFailed,
    ProbeLost,
    ProbeMeasured,
    ProbeRefused,
    ProbeReplied,
    Stamps,
)
from netagent.wire.columns import pack, pack_column
from netagent.wire.controller import ControllerState
from netagent.wire.inventory import Inventory
from netagent.wire.messages import (
    UNKNOWN_BYTES,
    ClockOffset,
    CounterColumns,
    FlowColumns,
    Health,
    PathColumns,
    Summary,
    TrafficBlock,
)
from netagent.wire.operators import OperatorColumns
from netagent.wire.rounding import FEW, HOST_BITS, rounded_ln, rounded_ns, rounded_variance
from netagent.wire.unprobed import Unprobed

_NAME = attrgetter("container", "rail")
_U32 = 0xFFFFFFFF
"""Largest number of a 32-bit column (`FlowColumns`); larger ones saturate."""
NO_COUNTERS = CounterRows()
NO_PATHS = PathsToSay(())
NOT_OURS = 255
"""Who stamps the probes of another host's endpoint: nobody known. Chosen: beyond all values of
`Stamps`."""


@dataclass(slots=True)
class FlowTally:
    """A flow's counters; `run` goes on over windows, the others count one window."""

    sent: int = 0
    lost: int = 0
    refused: int = 0
    sent_large: int = 0
    lost_large: int = 0
    rtt: Digest = field(default_factory=Digest)
    prober_ns: int = 0
    responder_ns: int = 0
    run: int = 0
    run_first_ns: int = 0
    run_last_ns: int = 0

    def next_window(self) -> "FlowTally":
        """Return a tally for the next window that remembers the run of losses."""
        return FlowTally(run=self.run, run_first_ns=self.run_first_ns, run_last_ns=self.run_last_ns)


class WindowTally:
    """Counts events by flow until the window is closed."""

    def __init__(self, *, large_class: int) -> None:
        self._large_class = large_class
        self._flows: dict[FlowId, FlowTally] = {}
        self._ended: set[FlowId] = set()
        """Flows that are counted to the end of the window, and forgotten then."""
        self._send_errors = 0

    def add(self, event: ProbeEvent) -> None:
        """Count one event."""
        if isinstance(event, ProbeFailed):
            self._send_errors += 1
            return
        tally = self._flows.get(event.flow)
        if tally is None:
            tally = self._flows[event.flow] = FlowTally()
        if isinstance(event, ProbeMeasured):
            tally.rtt.add(event.network_ns)
            tally.prober_ns += event.prober_ns
            tally.responder_ns += event.responder_ns
            return
        large = event.size_class == self._large_class
        tally.sent += 1
        tally.sent_large += large
        if isinstance(event, ProbeReplied):
            tally.run = 0
        elif isinstance(event, ProbeLost):
            tally.lost += 1
            tally.lost_large += large
            if not tally.run:
                tally.run_first_ns = event.sent_ns
            tally.run_last_ns = max(tally.run_last_ns, event.sent_ns)
            tally.run += 1
        elif isinstance(event, ProbeRefused):
            tally.refused += 1
            tally.run = 0

    def take_send_errors(self) -> int:
        """Return how many probes the kernel refused to send since the last call."""
        taken, self._send_errors = self._send_errors, 0
        return taken

    def forget(self, keep: set[tuple[EndpointId, EndpointId]]) -> None:
        """Drop flows whose (source, target) is not in `keep`."""
        self._flows = {f: t for f, t in self._flows.items() if (f.source, f.target) in keep}

    def end(self, flows: Iterable[FlowId]) -> None:
        """Forget these with the window: no more events of them will come."""
        self._ended.update(flows)

    def close(
        self,
        window: Window,
        *,
        host: str,
        instance: str,
        findings: Iterable[Finding],
        health: Health,
        paths: PathsToSay = NO_PATHS,
        stamps: Mapping[EndpointId, Stamps] = MappingProxyType({}),
        counters: CounterRows = NO_COUNTERS,
        traffic: Iterable[TrafficRows] = (),
        clock: ClockOffset | None = None,
        inventory: Inventory | None = None,
        controller: ControllerState | None = None,
        unprobed: Unprobed | None = None,
        operators: OperatorColumns | None = None,
    ) -> Summary:
        """Return the window's summary and begin the next window."""
        rows = _in_order({f: t for f, t in self._flows.items() if t.sent or t.rtt.count})
        kept = ((f, t) for f, t in self._flows.items() if f not in self._ended)
        self._flows = {flow: tally.next_window() for flow, tally in kept}
        self._ended.clear()
        endpoints = _table(rows, paths)
        columns = _path_columns(paths, endpoints)
        flows = _flow_columns(rows, endpoints)
        blocks = tuple(_traffic_block(rows, endpoints) for rows in traffic)
        owners = (stamps.get(each, NOT_OURS) for each in endpoints)
        return Summary(
            host=host,
            instance=instance,
            start_ns=window.start_ns,
            width_ns=window.width_ns,
            endpoints=tuple(endpoints),
            stamps=pack_column(Summary, "stamps", owners),
            flows=flows,
            paths=columns,
            counters=_counter_columns(counters),
            traffic=blocks,
            clock=clock,
            inventory=inventory,
            controller=controller,
            unprobed=unprobed,
            operators=operators,
            findings=tuple(findings),
            health=health,
        )


def _in_order(rows: dict[FlowId, FlowTally]) -> dict[FlowId, FlowTally]:
    """Return rows so that those with alike columns are beside each other, and deflate to less."""
    return dict(sorted(rows.items(), key=lambda e: (e[1].rtt.count > FEW, e[0].source_port)))


def _table(rows: Iterable[FlowId], paths: PathsToSay) -> dict[EndpointId, int]:
    """Return rows of endpoints in the order of their names.

    Whoever reads it knows the table again where the same ones are in the next window.
    """
    flows = (*rows, *(path.flow for path in paths.rows))
    met = {end for flow in flows for end in (flow.source, flow.target)}
    names = sorted(met, key=_NAME)
    return {each: number for number, each in enumerate(names)}


def _row(endpoints: dict[EndpointId, int], endpoint: EndpointId) -> int:
    return endpoints.setdefault(endpoint, len(endpoints))


def _flow_columns(rows: dict[FlowId, FlowTally], endpoints: dict[EndpointId, int]) -> FlowColumns:
    tallies = list(rows.values())
    told = [None if t.rtt.count <= FEW else t.rtt for t in tallies]
    buckets = [sorted(rtt.buckets.items()) if rtt else [] for rtt in told]
    return pack(
        FlowColumns,
        source=[_row(endpoints, f.source) for f in rows],
        target=[_row(endpoints, f.target) for f in rows],
        source_port=(f.source_port for f in rows),
        sent=(t.sent for t in tallies),
        lost=(t.lost for t in tallies),
        refused=(t.refused for t in tallies),
        sent_large=(t.sent_large for t in tallies),
        lost_large=(t.lost_large for t in tallies),
        run=(min(t.run, 0xFFFF) for t in tallies),
        run_ms=(_run_ms(t) for t in tallies),
        count=(t.rtt.count for t in tallies),
        min_ns=(rounded_ns(t.rtt.min_ns) for t in tallies),
        max_ns=(rounded_ns(t.rtt.max_ns) for t in tallies),
        mean_ln=(rounded_ln(rtt.mean_ln) if rtt else 0.0 for rtt in told),
        var_ln=(rounded_variance(rtt.var_ln) if rtt else 0.0 for rtt in told),
        prober_ns=(_mean(t.prober_ns, t.rtt.count) for t in tallies),
        responder_ns=(_mean(t.responder_ns, t.rtt.count) for t in tallies),
        hist_len=map(len, buckets),
        hist_bucket=(bucket for b in buckets for bucket, _ in b),
        hist_count=(count for b in buckets for _, count in b),
    )


def _path_columns(paths: PathsToSay, endpoints: dict[EndpointId, int]) -> PathColumns:
    rows = paths.rows
    # Those with the same ends beside each other deflate to less.
    ways = sorted({p.hops for p in rows}, key=lambda hops: (hops[:1], hops[-1:], hops))
    routes = {hops: number for number, hops in enumerate(ways)}
    return pack(
        PathColumns,
        source=[_row(endpoints, p.flow.source) for p in rows],
        target=[_row(endpoints, p.flow.target) for p in rows],
        source_port=(p.flow.source_port for p in rows),
        reply=(p.reply for p in rows),
        outer_port=(p.outer_port for p in rows),
        route=[routes[p.hops] for p in rows],
        routes=tuple(routes),
        whole_ns=paths.whole_ns,
    )


def _counter_columns(counters: CounterRows) -> CounterColumns:
    devices: dict[str, int] = {}
    names: dict[str, int] = {}
    rows = counters.rows
    return pack(
        CounterColumns,
        device=[devices.setdefault(row.device, len(devices)) for row in rows],
        counter=[names.setdefault(row.counter, len(names)) for row in rows],
        delta=(row.delta for row in rows),
        devices=tuple(devices),
        counters=tuple(names),
        omitted=counters.omitted,
    )


def _traffic_block(rows: TrafficRows, endpoints: dict[EndpointId, int]) -> TrafficBlock:
    ticks = (each for series in rows.sent_bytes.values() for each in series)
    return pack(
        TrafficBlock,
        start_ns=rows.start_ns,
        tick_ns=rows.tick_ns,
        endpoint=[_row(endpoints, each) for each in rows.sent_bytes],
        sent=(UNKNOWN_BYTES if each is None else each for each in ticks),
    )


def _run_ms(tally: FlowTally) -> int:
    return min((tally.run_last_ns - tally.run_first_ns) // 1_000_000, _U32) if tally.run else 0


def _mean(total: int, count: int) -> int:
    return rounded_ns(min(total // count, _U32), HOST_BITS) if count else 0
