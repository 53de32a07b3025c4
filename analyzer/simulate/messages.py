# SPDX-License-Identifier: Apache-2.0
"""What simulated hosts send, put together: endpoint tables, flow columns, traced paths."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzer.simulate.clos import FIRST_PORT, PORTS, Clos, Ints, Route
from analyzer.simulate.measured import Columns
from analyzer.simulate.routing import Routing
from netagent.model.ids import EndpointId
from netagent.wire.messages import FlowColumns, PathColumns

U32 = (
    "sent", "lost", "refused", "sent_large", "lost_large", "run_ms", "count", "min_ns", "max_ns",
    "prober_ns", "responder_ns",
)  # fmt: skip
"""Columns of unsigned numbers."""


@dataclass(frozen=True)
class _Table:
    """What the columns of one host's messages refer to."""

    endpoints: tuple[EndpointId, ...]
    row: Ints
    """(n_rnics,): row of the endpoint, -1 where the host never speaks of it."""
    source: Ints
    """(n_pairs of the host,): rows of their ends."""
    target: Ints
    replied: Ints
    """Pairs whose targets are on the host."""


class Messages:
    """The parts of messages, for flows as they are now."""

    def __init__(self, clos: Clos, routing: Routing) -> None:
        self._clos, self._routing = clos, routing
        hosts = np.arange(clos.shape.hosts + 1)
        self._first = PORTS * np.searchsorted(clos.source // clos.shape.rails, hosts)
        """(n_hosts + 1,): flows of host n are _first[n] to _first[n + 1]."""
        self._tables = [self._table(host) for host in range(clos.shape.hosts)]
        self._paths: list[tuple[int, PathColumns] | None] = [None] * clos.shape.hosts
        """What each host traced, with the version of the routing that it shows."""

    def endpoints(self, host: int) -> tuple[EndpointId, ...]:
        """Return the endpoint table of a host's messages."""
        return self._tables[host].endpoints

    def flows(self, host: int, columns: Columns) -> FlowColumns:
        """Return a host's flows, among the columns of many hosts."""
        table = self._tables[host]
        span = np.searchsorted(columns["flow"], self._first[host : host + 2])
        mine = slice(*span)
        before, own = columns["hist_len"][: span[0]].sum(), columns["hist_len"][mine].sum()
        entries = slice(before, before + own)
        pair, port = np.divmod(columns["flow"][mine].astype(np.int64) - self._first[host], PORTS)

        def column(name: str, code: str) -> bytes:
            return columns[name][mine].astype(code).tobytes()

        return FlowColumns(
            source=table.source[pair].astype("<u2").tobytes(),
            target=table.target[pair].astype("<u2").tobytes(),
            source_port=(FIRST_PORT + port).astype("<u2").tobytes(),
            run=column("run", "<u2"),
            mean_ln=column("mean_ln", "<f4"), var_ln=column("var_ln", "<f4"),
            hist_len=column("hist_len", "<u2"),
            hist_bucket=columns["hist_bucket"][entries].astype("<u2").tobytes(),
            hist_count=columns["hist_count"][entries].astype("<u4").tobytes(),
            **{name: column(name, "<u4") for name in U32},
        )  # fmt: skip

    def paths(self, host: int) -> PathColumns:
        """Return what a host has traced by now."""
        known = self._paths[host]
        if known is None or known[0] != self._routing.version:
            known = self._paths[host] = (self._routing.version, self._traced(host))
        return known[1]

    def _table(self, host: int) -> _Table:
        clos, rails = self._clos, self._clos.shape.rails
        pairs = slice(self._first[host] // PORTS, self._first[host + 1] // PORTS)
        replied = np.flatnonzero(clos.target // rails == host)
        own = np.arange(host * rails, (host + 1) * rails)
        every = np.concatenate([own, clos.target[pairs], clos.source[replied]])
        _, first = np.unique(every, return_index=True)
        order = every[np.sort(first)]
        row = np.full(clos.shape.rnics, -1, np.int64)
        row[order] = np.arange(len(order))
        ends = tuple(clos.endpoints[n].id for n in order)
        return _Table(ends, row, row[clos.source[pairs]], row[clos.target[pairs]], replied)

    def _traced(self, host: int) -> PathColumns:
        clos, table = self._clos, self._tables[host]
        own = np.arange(self._first[host], self._first[host + 1])
        others = (PORTS * table.replied[:, None] + np.arange(PORTS)).ravel()
        flow = np.concatenate([own, others])
        reply = np.repeat([0, 1], [len(own), len(others)])
        route, routes = self._routes(own, others)
        ends = [table.row[each[flow // PORTS]] for each in (clos.source, clos.target)]
        return PathColumns(
            source=ends[0].astype("<u2").tobytes(), target=ends[1].astype("<u2").tobytes(),
            source_port=(FIRST_PORT + flow % PORTS).astype("<u2").tobytes(),
            reply=reply.astype("u1").tobytes(),
            outer_port=(1_024 + flow % 60_000).astype("<u2").tobytes(),
            route=route.astype("<u2").tobytes(), routes=routes,
        )  # fmt: skip

    def _routes(self, own: Ints, others: Ints) -> tuple[Ints, tuple[Route, ...]]:
        """Return the row of each trace, and the routes that they show."""
        clos, routing = self._clos, self._routing
        if routing.spray is None:
            used, row = np.unique(
                np.concatenate([clos.there[own], clos.back[others]]), return_inverse=True
            )
            return row, tuple(routing.shown(clos.routes[int(r)]) for r in used)
        traces = [
            *routing.spray.traces(own, reply=False),
            *routing.spray.traces(others, reply=True),
        ]
        return _numbered([routing.shown(each) for each in traces])


def _numbered(traces: Sequence[Route]) -> tuple[Ints, tuple[Route, ...]]:
    rows: dict[Route, int] = {}
    numbers = [rows.setdefault(each, len(rows)) for each in traces]
    return np.asarray(numbers, np.int64), tuple(rows)
