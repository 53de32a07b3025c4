# SPDX-License-Identifier: Apache-2.0
"""The agents of a simulated fabric: window after window, the messages that they would send.

Every probe is drawn, as an agent with default settings sends it: an endpoint visits its targets in
turn, four pings at a time, two on each of two source ports, sizes in turn. What a failure does to
it follows from the components that it and its reply cross at that instant.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analyzer.questions import Failed, Reply, Request, StatusRequest, Why
from analyzer.simulate.answers import Counting
from analyzer.simulate.clos import FIRST_PORT, PORTS, Clos, Ints
from analyzer.simulate.failures import SECOND, Effect, Failure
from analyzer.simulate.measured import Bools, Columns, Floats, Probes, Runs, columns_of
from analyzer.simulate.routing import At, Routing
from netagent.model.finding import Finding
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind
from netagent.wire.messages import (
    FlowColumns,
    Health,
    PathColumns,
    PathRequest,
    Registration,
    Status,
    Summary,
)

WIDTH_NS = 5 * SECOND
TIMEOUT_NS = SECOND // 2
VISITS, PINGS = 25, 4
"""Visits of an endpoint in a window, and pings of each: 20 probes per second."""
VISIT_NS = WIDTH_NS // VISITS
PING_NS = 1_000_000
"""Nanoseconds between two pings of a visit. Chosen: the second is sent when the first answered."""
SIZES = 3
"""Classes of sizes, in turn; the last one is the largest."""


@dataclass(frozen=True)
class Noise:
    """What a healthy fabric shows."""

    rtt_ns: float = 14_000.0
    """Median network round trip: SkeletonHunter has 12 to 16 us."""
    between: float = 0.08
    """Standard deviation of the logarithm, between flows."""
    within: float = 0.06
    """Standard deviation of the logarithm, of one flow's round trips."""
    loss: float = 0.0
    """Probability that a probe is lost for no reason."""
    tail: float = 0.002
    """Share of the round trips that meet a queue, which multiplies them by up to TAIL."""


TAIL = 8.0


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


@dataclass
class Agents:
    """The agents of a fabric; `window()` is one window of all of them."""

    clos: Clos
    seed: int = 0
    noise: Noise = field(default_factory=Noise)
    start_ns: int = 1_000 * WIDTH_NS
    failures: tuple[Failure, ...] = ()
    """They start at `began_ns` and later."""
    began_ns: int = 0
    traced: bool = True
    """Whether agents see outer headers, and so trace paths."""
    crashed: frozenset[str] = frozenset()
    """Hosts whose agents are gone; their containers' stacks still answer nobody."""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, 1])
        clos = self.clos
        self.window_number = 0
        self._base = np.log(self.noise.rtt_ns) + self.rng.normal(0, self.noise.between, clos.flows)
        self._hash = self.rng.random(clos.flows)
        self._runs = Runs.of(clos.flows)
        self.routing = Routing(clos)
        self._ends: dict[At, Ints] = {}
        """Host or RNIC -> (n_flows,) how often a probe and its reply cross it."""
        self._rotation = self.rng.integers(1 << 20, size=clos.shape.rnics)
        self._phase = self.rng.integers(VISIT_NS, size=clos.shape.rnics)
        rails = clos.shape.rails
        pair_host = clos.source // rails
        self._flow_first = PORTS * np.searchsorted(pair_host, np.arange(clos.shape.hosts + 1))
        self._paths: list[tuple[int, PathColumns] | None] = [None] * clos.shape.hosts
        """What each host traced, with the version of the routing that it shows."""
        self._tables = [self._table(host) for host in range(clos.shape.hosts)]

    # --- tables ---------------------------------------------------------------------------------

    def _table(self, host: int) -> "_Table":
        clos, rails = self.clos, self.clos.shape.rails
        pairs = slice(self._flow_first[host] // PORTS, self._flow_first[host + 1] // PORTS)
        replied = np.flatnonzero(clos.target // rails == host)
        own = np.arange(host * rails, (host + 1) * rails)
        every = np.concatenate([own, clos.target[pairs], clos.source[replied]])
        _, first = np.unique(every, return_index=True)
        order = every[np.sort(first)]
        row = np.full(clos.shape.rnics, -1, np.int64)
        row[order] = np.arange(len(order))
        ends = tuple(clos.endpoints[n].id for n in order)
        return _Table(ends, row, row[clos.source[pairs]], row[clos.target[pairs]], replied)

    def registrations(self) -> list[Registration]:
        """Return each agent's registration."""
        clos, rails = self.clos, self.clos.shape.rails
        return [
            Registration(
                host=f"h{host}", instance="i", generation=1, rpc_url="",
                endpoints=tuple(clos.endpoints[host * rails : (host + 1) * rails]),
            )
            for host in range(clos.shape.hosts)
        ]  # fmt: skip

    # --- one window -----------------------------------------------------------------------------

    def window(self) -> list[Summary]:
        """Return the next window of every agent that lives."""
        start_ns = self.start_ns + self.window_number * WIDTH_NS
        self.window_number += 1
        flow, at_ns, large = self._probes(start_ns)
        lost, added_ns = self._crossed(flow, at_ns, large)
        kept_ns = self._kept(flow, at_ns)
        lost |= kept_ns.sum(axis=0) > TIMEOUT_NS
        refused = self._refused(flow, at_ns) & ~lost
        rtt_ns = self._unhindered(flow) + added_ns
        rows = columns_of(Probes(flow, at_ns, large, lost, refused, rtt_ns, kept_ns), self._runs)
        until_ns = start_ns + WIDTH_NS
        living = [n for n in range(self.clos.shape.hosts) if f"h{n}" not in self._gone(until_ns)]
        self.routing.turn(self.failures, self.began_ns, until_ns, self.rng)
        return [self._summary(host, start_ns, rows) for host in living]

    def _gone(self, now_ns: int) -> set[str]:
        """Return hosts whose agents are gone."""
        killed = {f.kills for f in self.failures if self.began_ns + f.start_ns < now_ns}
        return {*self.crashed, *(host for host in killed if host)}

    def _probes(self, start_ns: int) -> tuple[Ints, Ints, Bools]:
        """Return flow, instant and largeness of every probe of a window, by flow and instant."""
        clos = self.clos
        counts = np.diff(clos.first_pair)
        probing = np.flatnonzero(counts)
        visit = (self.window_number - 1) * VISITS + np.arange(VISITS)
        turn = visit[None, :] + self._rotation[probing, None]
        number = turn // counts[probing, None]
        # The order within a round changes from round to round.
        target = (turn + number * (1 + self._rotation[probing, None] % 7)) % counts[probing, None]
        pair = clos.first_pair[probing, None] + target
        at = start_ns + np.arange(VISITS) * VISIT_NS + self._phase[probing, None]
        ping = np.arange(PINGS)
        port = (2 * number[..., None] + ping // 2) % PORTS
        flow = (PORTS * pair[..., None] + port).ravel()
        at_ns = (at[..., None] + ping * PING_NS).ravel()
        large = ((number[..., None] + ping) % SIZES == SIZES - 1).ravel()
        order = np.lexsort((at_ns, flow))
        return flow[order], at_ns[order], large[order]

    def _active(self, effect: Effect, failure: Failure, at_ns: Ints) -> Bools:
        since = at_ns - (self.began_ns + failure.start_ns)
        made = since >= 0
        if effect.period_ns:
            made &= since % effect.period_ns < effect.duty * effect.period_ns
        if effect.reroute_ns:
            made &= since < effect.reroute_ns
        return made

    def _crossings(self, at: At) -> Ints:
        """Return (n_flows,) how often a probe and its reply cross what an effect is at."""
        clos = self.clos
        if isinstance(at, tuple) or at.kind in (Kind.SWITCH, Kind.LINK):
            return self.routing.crossings(at)
        known = self._ends.get(at)
        if known is None:
            ends = np.repeat(np.stack([clos.source, clos.target]), PORTS, axis=1)
            if at.kind is Kind.HOST:
                hit = ends // clos.shape.rails == int(at.name[1:])
            else:
                hit = ends == clos.number_of(at)
            known = self._ends[at] = 2 * hit.sum(axis=0)
        return known

    def _crossed(self, flow: Ints, at_ns: Ints, large: Bools) -> tuple[Bools, Floats]:
        """Return which probes are lost, and by how much the others are late (ns)."""
        lost = self.rng.random(len(flow)) < self.noise.loss
        added = np.zeros(len(flow))
        for failure in self.failures:
            for effect in failure.effects:
                times = self._crossings(effect.at)
                if effect.share < 1.0:
                    times = np.where(self._hash < effect.share, times, 0)
                hit = np.flatnonzero(times[flow])
                hit = hit[self._active(effect, failure, at_ns[hit])]
                if effect.large_only:
                    hit = hit[large[hit]]
                if effect.loss:
                    passes = (1.0 - effect.loss) ** times[flow[hit]]
                    lost[hit] |= self.rng.random(len(hit)) >= passes
                if effect.delay_ns:
                    drawn = self.rng.lognormal(np.log(effect.delay_ns), effect.spread, len(hit))
                    added[hit] += drawn
        return lost, added

    def _at(self, host: str) -> tuple[Bools, Bools]:
        """Return (n_flows,) whether a flow's prober, and its responder, is on a host."""
        rails, number = self.clos.shape.rails, int(host[1:])
        ends = np.repeat(np.stack([self.clos.source, self.clos.target]), PORTS, axis=1) // rails
        return ends[0] == number, ends[1] == number

    def _kept(self, flow: Ints, at_ns: Ints) -> Floats:
        """Return (2, n): nanoseconds that the prober's and the responder's host take."""
        kept = np.stack([np.full(len(flow), 2_000.0), np.full(len(flow), 3_000.0)])
        for failure in self.failures:
            for effect in failure.effects:
                if not effect.kept_ns or not isinstance(effect.at, Component):
                    continue
                is_active = self._active(effect, failure, at_ns)
                for row, side in zip(kept, self._at(effect.at.name), strict=True):
                    hit = np.flatnonzero(side[flow] & is_active)
                    row[hit] += self.rng.lognormal(np.log(effect.kept_ns), effect.spread, len(hit))
        return kept

    def _refused(self, flow: Ints, at_ns: Ints) -> Bools:
        """Return which probes a host without an agent refuses."""
        refused = np.zeros(len(flow), np.bool_)
        for failure in self.failures:
            if failure.kills:
                since = at_ns >= self.began_ns + failure.start_ns
                refused |= self._at(failure.kills)[1][flow] & since
        return refused

    def _unhindered(self, flow: Ints) -> Floats:
        """Return the round trips (ns) that probes have in health."""
        noise, count = self.noise, len(flow)
        ln = self._base[flow] + self.rng.normal(0, noise.within, count)
        tail = np.where(self.rng.random(count) < noise.tail, self.rng.random(count), 0.0)
        rtt_ns: Floats = np.exp(ln + tail * np.log(TAIL))
        return rtt_ns

    def _summary(self, host: int, start_ns: int, rows: Columns) -> Summary:
        table = self._tables[host]
        span = np.searchsorted(rows["flow"], self._flow_first[host : host + 2])
        mine = slice(*span)
        before, own = rows["hist_len"][: span[0]].sum(), rows["hist_len"][mine].sum()
        entries = slice(before, before + own)
        local = rows["flow"][mine].astype(np.int64) - self._flow_first[host]
        pair, port = np.divmod(local, PORTS)

        def column(name: str, code: str) -> bytes:
            return rows[name][mine].astype(code).tobytes()

        u32 = {
            name: column(name, "<u4")
            for name in ("sent", "lost", "refused", "sent_large", "lost_large", "run_ms", "count",
                         "min_ns", "max_ns", "prober_ns", "responder_ns")
        }  # fmt: skip
        flows = FlowColumns(
            source=table.source[pair].astype("<u2").tobytes(),
            target=table.target[pair].astype("<u2").tobytes(),
            source_port=(FIRST_PORT + port).astype("<u2").tobytes(),
            run=column("run", "<u2"),
            mean_ln=column("mean_ln", "<f4"), var_ln=column("var_ln", "<f4"),
            hist_len=column("hist_len", "<u2"),
            hist_bucket=rows["hist_bucket"][entries].astype("<u2").tobytes(),
            hist_count=rows["hist_count"][entries].astype("<u4").tobytes(), **u32,
        )  # fmt: skip
        paths = self._paths_of(host) if self.traced else PathColumns()
        return Summary(
            host=f"h{host}", instance="i", start_ns=start_ns, width_ns=WIDTH_NS,
            endpoints=table.endpoints, flows=flows, paths=paths,
            findings=tuple(self._findings(host, start_ns + WIDTH_NS)), health=Health(),
        )  # fmt: skip

    def _findings(self, host: int, now_ns: int) -> list[Finding]:
        return [
            Finding(each.finding, each.truth, f"{each.truth}: {each.finding}", now_ns)
            for each in self.failures
            if each.finding and f"h{host}" in each.hosts
            and self.began_ns + each.start_ns < now_ns
        ]  # fmt: skip

    # --- paths ----------------------------------------------------------------------------------

    def _paths_of(self, host: int) -> PathColumns:
        known = self._paths[host]
        if known is None or known[0] != self.routing.version:
            known = self._paths[host] = (self.routing.version, self._traced(host))
        return known[1]

    def _traced(self, host: int) -> PathColumns:
        clos, table = self.clos, self._tables[host]
        own = np.arange(self._flow_first[host], self._flow_first[host + 1])
        others = (PORTS * table.replied[:, None] + np.arange(PORTS)).ravel()
        flow = np.concatenate([own, others])
        reply = np.repeat([0, 1], [len(own), len(others)])
        route = np.concatenate([clos.there[own], clos.back[others]])
        used, row = np.unique(route, return_inverse=True)
        ends = [table.row[each[flow // PORTS]] for each in (clos.source, clos.target)]
        return PathColumns(
            source=ends[0].astype("<u2").tobytes(), target=ends[1].astype("<u2").tobytes(),
            source_port=(FIRST_PORT + flow % PORTS).astype("<u2").tobytes(),
            reply=reply.astype("u1").tobytes(),
            outer_port=(1_024 + flow % 60_000).astype("<u2").tobytes(),
            route=row.astype("<u2").tobytes(),
            routes=tuple(self.routing.shown(clos.routes[int(r)]) for r in used),
        )  # fmt: skip

    # --- answers --------------------------------------------------------------------------------

    def reply(self, host: str, request: Request) -> Reply:
        """Answer a question as the agent of `host` would."""
        if host in self._gone(self.start_ns + self.window_number * WIDTH_NS):
            return Failed(Why.REFUSED, "connection refused")
        if isinstance(request, StatusRequest):
            return Status(
                host=host, instance="i", version="", endpoints=(), pinglist_version=1, targets=0,
                last_window_ns=0, health=Health(),
            )  # fmt: skip
        if isinstance(request, PathRequest) and request.ways:
            return self._counting().survey(request)
        if isinstance(request, PathRequest) and request.count and self.traced:
            return self._counting().path(request)
        return Failed(Why.CANNOT, "a simulated host has no flow tables")

    def _counting(self) -> Counting:
        now_ns = np.asarray([self.start_ns + self.window_number * WIDTH_NS])
        active = [
            effect
            for failure in self.failures
            for effect in failure.effects
            if self._active(effect, failure, now_ns)[0]
        ]
        return Counting(self.clos, self.routing, self.rng, active)

    def fail(self, failures: Sequence[Failure], *, now_ns: int) -> None:
        """Let failures begin at `now_ns`, or as much later as they say."""
        self.failures, self.began_ns = tuple(replace(each) for each in failures), now_ns
