# SPDX-License-Identifier: Apache-2.0
"""The agents of a simulated fabric: window after window, the messages that they would send.

Every probe is drawn, as an agent with default settings sends it: an endpoint visits its targets in
turn, four pings at a time, two on each of two source ports, sizes in turn. What a failure does to
it follows from the components that it and its reply cross at that instant.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from analyzer.questions import Failed, Reply, Request, StatusRequest, Why
from analyzer.simulate.answers import Counting
from analyzer.simulate.bursts import Bursts
from analyzer.simulate.churn import Churn
from analyzer.simulate.clocks import SteppedClock
from analyzer.simulate.clos import FIRST_PORT, PORTS, Clos, Ints
from analyzer.simulate.failures import SECOND, Failure
from analyzer.simulate.harm import Harm
from analyzer.simulate.measured import Bools, Columns, Floats, Probes, Runs, columns_of
from analyzer.simulate.messages import Messages
from analyzer.simulate.routing import Routing
from analyzer.simulate.spray import Spray
from netagent.model.finding import Finding
from netagent.wire.messages import (
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
    bursts: bool = False
    """Whether tasks' own bursts queue."""
    spray: bool = False
    """Whether each packet takes a way of its own."""
    churn: Churn | None = None
    rotate: int = 0
    """Windows after which an RNIC exchanges the last of its source ports, with all others of its
    host, as agents do; 0: never, as by RDMA. What was traced of the old one agents say for two
    minutes more, and these do not."""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, 1])
        clos = self.clos
        if self.churn is not None:
            clos.place(self.churn.task_of.copy())
        self.window_number = 0
        self._base, self._hash = self._drawn(clos.flows)
        self._runs = Runs.of(clos.flows)
        self._rotation = self.rng.integers(1 << 20, size=clos.shape.rnics)
        self._phase = self.rng.integers(VISIT_NS, size=clos.shape.rnics)
        self._turns_phase = np.repeat(self._rotation[:: clos.shape.rails], clos.shape.rails)
        self.routing = Routing(clos, Spray(clos, self.seed) if self.spray else None)
        self._bursts = Bursts(clos, self.seed)
        self._messages = Messages(clos, self.routing)
        self._harm = Harm(clos, self.routing, self.failures, self.began_ns)
        self._clocks: dict[int, SteppedClock] = {}
        """Hosts whose clocks jump, and did so lately."""
        self._held: dict[int, Probes] = {}
        """What those measured and did not send yet."""
        self._instances: dict[int, int] = {}
        """Host -> how often its agent began anew."""
        self.replied_ns = 0
        """When the newest answer is complete."""
        self._generation = 1
        self._news: list[tuple[int, Registration]] = []
        self.closed_ns: dict[tuple[str, int], int] = {}
        """(host, start of a window) -> when it was closed, of hosts whose clocks jump."""

    def _drawn(self, flows: int) -> tuple[Floats, Floats]:
        """Return median round trips, ln(ns), and hash values of new flows."""
        base = np.log(self.noise.rtt_ns) + self.rng.normal(0, self.noise.between, flows)
        return base, self.rng.random(flows)

    # --- who is there ---------------------------------------------------------------------------

    def registrations(self) -> list[Registration]:
        """Return each agent's registration, as of the beginning."""
        hosts = np.arange(self.clos.shape.hosts)
        there = np.ones(len(hosts), np.bool_)
        if self.churn is not None:
            there = self.churn.alive(hosts, np.full(len(hosts), self.start_ns))
        return [self._registration(n, there=bool(there[n])) for n in hosts.tolist()]

    def idle(self) -> set[str]:
        """Return the hosts without a container that is up."""
        hosts = np.arange(self.clos.shape.hosts)
        if self.churn is None:
            return set()
        there = self.churn.alive(hosts, np.full(len(hosts), self.now_ns))
        return {f"h{n}" for n in np.flatnonzero(~there).tolist()}

    def news(self) -> list[tuple[int, Registration]]:
        """Return the registrations that came since last asked, and when, in order."""
        news, self._news = self._news, []
        return sorted(news, key=lambda each: each[0])

    def _registration(self, host: int, *, there: bool) -> Registration:
        rails = self.clos.shape.rails
        endpoints = self.clos.endpoints[host * rails : (host + 1) * rails] if there else []
        return Registration(
            host=f"h{host}", instance=self._instance(host), generation=self._generation,
            rpc_url="", endpoints=tuple(endpoints),
        )  # fmt: skip

    def _instance(self, host: int) -> str:
        return "i" + str(self._instances.get(host, ""))

    def _churned(self, churn: Churn, start_ns: int) -> None:
        """Let containers come and go, as they will in the window that begins."""
        moved, changes = churn.window(start_ns, start_ns + WIDTH_NS)
        if moved:
            old = self.clos.place(churn.task_of.copy(), self.routing.turned)
            self._move(np.repeat(old, PORTS) * PORTS + np.tile(np.arange(PORTS), len(old)))
        for change in changes:
            self._generation += 1
            registration = self._registration(change.host, there=change.there)
            self._news.append((change.at_ns, registration))

    def _move(self, was: Ints) -> None:
        """Take other flows; `was` has the number that each had before, or less than 0."""
        base, hashes = self._drawn(len(was))
        stays = was >= 0
        base[stays], hashes[stays] = self._base[was[stays]], self._hash[was[stays]]
        runs = Runs.of(len(was))
        runs.run[stays] = self._runs.run[was[stays]]
        runs.since_ns[stays] = self._runs.since_ns[was[stays]]
        self._base, self._hash, self._runs = base, hashes, runs
        now = {old: new for new, old in enumerate(was.tolist()) if old >= 0}
        self._held = {host: held.renumbered(now) for host, held in self._held.items()}
        self.routing.moved()
        self._messages = Messages(self.clos, self.routing)
        self._harm.moved()

    # --- one window -----------------------------------------------------------------------------

    def window(self) -> list[Summary]:
        """Return what all agents that live send in the next window."""
        start_ns, until_ns = self.now_ns, self.now_ns + WIDTH_NS
        if self.churn is not None:
            self._churned(self.churn, start_ns)
        if self.rotate and self.window_number:
            self._exchange()
        self.window_number += 1
        probes = self._sent(start_ns)
        mine, stepped = self._divided(probes)
        rows = columns_of(mine, self._runs)
        self.routing.turn(self.failures, self.began_ns, until_ns, self.rng)
        self._restarted(start_ns, until_ns)
        gone = self._gone(until_ns)
        summaries = [
            self._summary(host, start_ns, rows)
            for host in range(self.clos.shape.hosts)
            if f"h{host}" not in gone and host not in self._clocks
        ]
        for host, clock in self._clocks.items():
            summaries += self._of_stepped(host, clock, stepped[host], until_ns)
        return summaries

    def _exchange(self) -> None:
        """Let the RNICs whose turn it is probe from another port."""
        turn, clos = self.window_number, self.clos
        due = np.flatnonzero((self._turns_phase + turn) % self.rotate == 0)
        flows = clos.exchange(due, FIRST_PORT + PORTS + turn % 20_000, self.routing.turned)
        self._base[flows], self._hash[flows] = self._drawn(len(flows))
        self._runs.run[flows] = 0
        self._messages.exchanged(flows)
        self.routing.moved()

    def _sent(self, start_ns: int) -> Probes:
        """Return all probes of a window, and what became of them."""
        flow, at_ns, large = self._probes(start_ns)
        for chosen in self._chosen(flow, at_ns):
            flow, at_ns, large = flow[chosen], at_ns[chosen], large[chosen]
        there, back = self.routing.taken(flow, self.rng)
        lost = self.rng.random(len(flow)) < self.noise.loss
        harmed, added_ns = self._harm.crossed(
            flow, at_ns, large, (there, back), self._hash, self.rng
        )
        lost |= harmed
        if self.bursts:
            added_ns += self._bursts.added_ns(at_ns, there, back, self.rng)
        if self.churn is not None:
            lost |= ~self.churn.alive(self._hosts(flow, self.clos.target), at_ns)
        kept_ns = self._harm.kept(flow, at_ns, self.rng)
        lost |= kept_ns.sum(axis=0) > TIMEOUT_NS
        refused = self._harm.refused(flow, at_ns) & ~lost
        rtt_ns = self._unhindered(flow) + added_ns
        return Probes(flow, at_ns, large, lost, refused, rtt_ns, kept_ns)

    def _hosts(self, flow: Ints, ends: Ints) -> Ints:
        return ends[flow // PORTS] // self.clos.shape.rails

    def _chosen(self, flow: Ints, at_ns: Ints) -> list[Bools]:
        """Return which probes are sent at all; nothing if it is all of them."""
        chosen: list[Bools] = []
        if self.churn is not None:
            ends = [self._hosts(flow, each) for each in (self.clos.source, self.clos.target)]
            chosen.append(self.churn.probed(ends[0], ends[1], at_ns))
        for failure in self.failures:
            if failure.back_ns and self.began_ns + failure.start_ns < self.now_ns:
                # What an agent measured in a window that it does not see the end of is gone.
                own, back_ns = self._harm.at(failure.kills)[0][flow], self._harm.back_ns(failure)
                chosen.append(~own | (at_ns >= back_ns))
        return [np.logical_and.reduce(chosen)] if chosen else []

    @property
    def now_ns(self) -> int:
        """Return when the newest window ends."""
        return self.start_ns + self.window_number * WIDTH_NS

    def _gone(self, now_ns: int) -> set[str]:
        return {*self.crashed, *self._harm.gone(now_ns)}

    def _restarted(self, start_ns: int, until_ns: int) -> None:
        """Let agents that are back register; what they had lost in a row is forgotten."""
        for failure in self.failures:
            back_ns = self._harm.back_ns(failure)
            if failure.back_ns and start_ns <= back_ns < until_ns:
                host = int(failure.kills[1:])
                self._instances[host] = self._instances.get(host, 1) + 1
                there = self.churn is None or bool(
                    self.churn.alive(np.asarray([host]), np.asarray([back_ns]))[0]
                )
                self._news.append((back_ns, self._registration(host, there=there)))
                self._runs.run[self._harm.at(failure.kills)[0]] = 0

    def _divided(self, probes: Probes) -> tuple[Probes, dict[int, Probes]]:
        """Return the probes of hosts whose clocks are right, and those of each other host."""
        if not self._clocks:
            return probes, {}
        host = self._hosts(probes.flow, self.clos.source)
        others = {each: probes.of(host == each) for each in self._clocks}
        return probes.of(~np.isin(host, list(self._clocks))), others

    def _of_stepped(
        self, host: int, clock: SteppedClock, probes: Probes, until_ns: int
    ) -> Iterator[Summary]:
        """Yield what a host sends whose clock jumps."""
        held = self._held.pop(host, None)
        held = probes if held is None else held.and_then(probes)
        for closed in clock.until(until_ns):
            due = held.at_ns < closed.true_ns
            rows = columns_of(held.of(due), self._runs)
            held = held.of(~due)
            self.closed_ns[f"h{host}", closed.start_ns] = closed.true_ns
            yield self._summary(host, closed.start_ns, rows, steps=closed.steps)
        self._held[host] = held

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

    def _unhindered(self, flow: Ints) -> Floats:
        """Return the round trips (ns) that probes have in health."""
        noise, count = self.noise, len(flow)
        ln = self._base[flow] + self.rng.normal(0, noise.within, count)
        tail = np.where(self.rng.random(count) < noise.tail, self.rng.random(count), 0.0)
        rtt_ns: Floats = np.exp(ln + tail * np.log(TAIL))
        return rtt_ns

    def _summary(self, host: int, start_ns: int, rows: Columns, *, steps: int = 0) -> Summary:
        messages = self._messages
        return Summary(
            host=f"h{host}", instance=self._instance(host), start_ns=start_ns, width_ns=WIDTH_NS,
            endpoints=messages.endpoints(host), flows=messages.flows(host, rows),
            paths=messages.paths(host, start_ns) if self.traced else PathColumns(),
            findings=tuple(self._findings(host, start_ns + WIDTH_NS)),
            health=Health(clock_steps=steps),
        )  # fmt: skip

    def _findings(self, host: int, now_ns: int) -> list[Finding]:
        return [
            Finding(each.finding, each.truth, f"{each.truth}: {each.finding}", now_ns)
            for each in self.failures
            if each.finding and f"h{host}" in each.hosts
            and self.began_ns + each.start_ns < now_ns
        ]  # fmt: skip

    # --- answers --------------------------------------------------------------------------------

    def reply(self, host: str, request: Request, *, now_ns: int | None = None) -> Reply:
        """Answer a question, put at `now_ns`, as the agent of `host` would; see `replied_ns`."""
        now_ns = self.now_ns if now_ns is None else now_ns
        self.replied_ns = now_ns
        if host in self._gone(now_ns):
            return Failed(Why.REFUSED, "connection refused")
        if isinstance(request, StatusRequest):
            clock = self._clocks.get(int(host[1:]))
            return Status(
                host=host, instance=self._instance(int(host[1:])), version="", endpoints=(),
                pinglist_version=1, targets=0, last_window_ns=0, health=Health(),
                wall_ns=now_ns if clock is None else clock.wall_ns(now_ns),
            )  # fmt: skip
        if isinstance(request, PathRequest) and (request.ways or (request.count and self.traced)):
            counting = Counting(self.clos, self.routing, self.rng, self._harm.active, now_ns)
            reply = counting.survey(request) if request.ways else counting.path(request)
            self.replied_ns = counting.until_ns
            return reply
        return Failed(Why.CANNOT, "a simulated host has no flow tables")

    def fail(self, failures: Sequence[Failure], *, now_ns: int) -> None:
        """Let failures begin at `now_ns`, the end of a window, or as much later as they say."""
        self.failures, self.began_ns = tuple(failures), now_ns
        self._harm = Harm(self.clos, self.routing, failures, now_ns)
        self._clocks = {
            int(each.truth.name[1:]): SteppedClock(
                [(now_ns + each.start_ns + at_ns, by_ns) for at_ns, by_ns in each.steps],
                now_ns, WIDTH_NS,
            )
            for each in failures
            if each.steps
        }  # fmt: skip
