# SPDX-License-Identifier: Apache-2.0
"""What simulated hosts send, put together: endpoint tables, flow columns, traced paths."""

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from analyzer.intake.columns import packed
from analyzer.intake.paths import NOWHERE, PathTable
from analyzer.simulate.clos import PORTS, Clos, Ints, Route
from analyzer.simulate.measured import HISTOGRAM, Columns, in_order
from analyzer.simulate.routing import Routing
from netagent.model.ids import EndpointId
from netagent.wire.messages import FlowColumns, PathColumns

WHOLE_NS = 60_000_000_000
"""Nanoseconds after which agents say all of their paths again."""
MEASURED = (
    "sent", "lost", "refused", "sent_large", "lost_large", "run", "run_ms", "count", "min_ns",
    "max_ns", "mean_ln", "var_ln", "prober_ns", "responder_ns", "hist_len",
)  # fmt: skip
"""Columns with an item per flow."""

_KEY = (
    ("source", "<u2"), ("target", "<u2"), ("source_port", "<u2"), ("reply", "u1"),
    ("outer_port", "<u2"),
)  # fmt: skip


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
        self._met = np.zeros(clos.flows, np.int64)
        """(n_flows,): how many exchanges of ports there were before agents met a flow."""
        self._exchanges = 0
        self._whole: dict[int, tuple[int, PathColumns]] = {}
        """Host -> start of the newest window in which it said all of its paths, and these."""

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
        flow = columns["flow"][mine].astype(np.int64) - self._first[host]
        rows = in_order(
            {name: columns[name][mine] for name in MEASURED}
            | {name: columns[name][entries] for name in HISTOGRAM}
            | {"flow": flow, "source_port": self._clos.port[columns["flow"][mine]]}
        )
        pair = rows.pop("flow") // PORTS
        rows |= {"source": table.source[pair], "target": table.target[pair]}
        return FlowColumns(**{name: packed(FlowColumns, name, rows[name]) for name in rows})

    def exchanged(self, flows: Ints) -> None:
        """Note that these flows have another port: agents met them after all others."""
        self._exchanges += 1
        self._met[flows] = self._exchanges

    def paths(self, host: int, start_ns: int) -> PathColumns:
        """Return what a host says of its paths in a window, as `netagent.collect.paths` has it."""
        now = self._shown(host)
        whole_ns, whole = self._whole.get(host, (0, now))
        phase_ns = crc32(f"h{host}".encode()) * WHOLE_NS >> 32
        minutes = {(each + phase_ns) // WHOLE_NS for each in (start_ns, whole_ns)}
        if whole_ns and len(minutes) == 1 and start_ns > whole_ns:
            news = _differing(now, whole) if now is not whole else np.zeros(0, np.int64)
            if 2 * len(news) <= len(now.reply):
                return _only(now, news, whole_ns)
        self._whole[host] = start_ns, now
        return now

    def _shown(self, host: int) -> PathColumns:
        """Return all that a host has traced by now."""
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
        order = self._met[flow].argsort(kind="stable")
        flow, reply, route = flow[order], reply[order], route[order]
        ends = [table.row[each[flow // PORTS]] for each in (clos.source, clos.target)]
        return PathColumns(
            source=ends[0].astype("<u2").tobytes(), target=ends[1].astype("<u2").tobytes(),
            source_port=clos.port[flow].astype("<u2").tobytes(),
            reply=reply.astype("u1").tobytes(),
            outer_port=(1_024 + (flow + 31 * self._met[flow]) % 60_000).astype("<u2").tobytes(),
            route=route.astype("<u2").tobytes(), routes=routes,
        )  # fmt: skip

    def _routes(self, own: Ints, others: Ints) -> tuple[Ints, tuple[Route, ...]]:
        """Return the row of each trace, and the routes that they show, as an agent sorts them."""
        clos, routing = self._clos, self._routing
        if routing.spray is None:
            used, row = np.unique(
                np.concatenate([clos.there[own], clos.back[others]]), return_inverse=True
            )
            shown = [routing.shown(clos.routes[int(r)]) for r in used]
            number, routes = _numbered(shown)
            return number[row], routes
        traces = [
            *routing.spray.traces(own, reply=False),
            *routing.spray.traces(others, reply=True),
        ]
        return _numbered([routing.shown(each) for each in traces])


def _differing(paths: PathColumns, others: PathColumns) -> Ints:
    """Return the rows that `others` does not say."""
    mine, theirs = (
        PathTable(
            (), each.routes,
            tuple(np.frombuffer(getattr(each, name), dtype) for name, dtype in _KEY),
            np.frombuffer(each.route, "<u2"),
        )
        for each in (paths, others)
    )  # fmt: skip
    return np.flatnonzero(mine.found_in(theirs) == NOWHERE)


def _only(paths: PathColumns, rows: Ints, whole_ns: int) -> PathColumns:
    """Return some rows, as what differs from an earlier window."""
    chosen = {name: np.frombuffer(getattr(paths, name), dtype)[rows] for name, dtype in _KEY}
    used, route = np.unique(np.frombuffer(paths.route, "<u2")[rows], return_inverse=True)
    return PathColumns(
        **{name: each.tobytes() for name, each in chosen.items()},
        route=route.astype("<u2").tobytes(),
        routes=tuple(paths.routes[n] for n in used.tolist()),
        whole_ns=whole_ns,
    )


def _numbered(traces: Sequence[Route]) -> tuple[Ints, tuple[Route, ...]]:
    """Return the row of each trace, and the routes, in the order in which an agent says them."""
    routes = sorted(set(traces), key=lambda hops: (hops[:1], hops[-1:], hops))
    rows = {each: row for row, each in enumerate(routes)}
    return np.asarray([rows[each] for each in traces], np.int64), tuple(routes)
