# SPDX-License-Identifier: Apache-2.0
"""A rail-optimised Clos fabric of two or three tiers, its tasks, and the flows that they probe.

Each RNIC is cabled to the leaf of its segment and rail. In two tiers every leaf is cabled to every
spine; in three, to the aggregation switches of its pod, and each of those to its own group of
cores. Tasks are placed wherever hosts are free; in each, the hosts of one pipeline stage are
replicas that talk to each other (all pairs), and so do neighbouring stages of one replica:
SkeletonHunter, Figure 9.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import Component, Kind, link, link_ends, rnic

PORTS = 4
"""Flows per ordered pair; the default of the agent's configuration."""
FIRST_PORT = 40_000
Route = tuple[str, ...]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """How large a fabric is. `hosts` is a multiple of `hosts_per_segment`."""

    hosts: int = 32
    rails: int = 8
    hosts_per_segment: int = 16
    spines: int = 8
    """Spines; in three tiers, aggregation switches per pod."""
    segments_per_pod: int = 0
    """0: two tiers."""
    cores_per_group: int = 4
    """Cores above each aggregation switch, shared with its fellows of other pods."""
    replicas: int = 8
    stages: int = 4
    """A task has replicas times stages hosts; the last one takes what is left."""
    least_replicas: int = 1
    """A small task has fewer stages rather than fewer replicas."""

    @property
    def rnics(self) -> int:
        """Return the number of RNICs."""
        return self.hosts * self.rails


@dataclass
class Clos:
    """A fabric with its flows; RNIC n is rail n % rails of host n // rails."""

    shape: Shape
    seed: int = 0
    routes: list[Route] = field(init=False, default_factory=list)
    """Every route that a flow takes, or took."""
    there: Ints = field(init=False)
    """(n_flows,): row of `routes`; of the replies in `back`."""
    back: Ints = field(init=False)
    port: Ints = field(init=False)
    """(n_flows,): source port."""
    source: Ints = field(init=False)
    """(n_pairs,): RNIC; flows PORTS * n to PORTS * n + 3 are of pair n."""
    target: Ints = field(init=False)
    first_pair: Ints = field(init=False)
    """(n_rnics + 1,): pairs of RNIC n are first_pair[n] to first_pair[n + 1]."""

    task_of: Ints = field(init=False)
    """(n_hosts,): number of the task that has a container on each host; -1: none."""

    def __post_init__(self) -> None:
        self._row: dict[Route, int] = {}
        self._ways: dict[tuple[str, str, frozenset[str]], list[Route]] = {}
        self._known_parts: tuple[int, list[tuple[str, str]], list[str]] = (0, [], [])
        self._rng = np.random.default_rng(self.seed)
        order = np.random.default_rng([self.seed, 2]).permutation(self.shape.hosts)
        self.task_of = np.empty(self.shape.hosts, np.int64)
        self.task_of[order] = np.arange(self.shape.hosts) // (
            self.shape.replicas * self.shape.stages
        )
        self.source = self.target = self.there = self.back = self.port = np.empty(0, np.int64)
        self._lay(np.empty(0, np.int64))

    def place(self, task_of: Ints, without: frozenset[str] = frozenset()) -> Ints:
        """Let other tasks be there; return (n_pairs,) number that each pair had, -1 if it is new.

        Numbers of tasks are never used again.
        """
        rnics = self.shape.rnics
        before = self.source * rnics + self.target
        stays = self.task_of[self.source // self.shape.rails]
        stays = stays == task_of[self.source // self.shape.rails]
        self.task_of = task_of
        for name in ("endpoints", "_number", "_number_of"):
            self.__dict__.pop(name, None)
        return self._lay(np.where(stays, before, -1), without)

    def _lay(self, before: Ints, without: frozenset[str] = frozenset()) -> Ints:
        """Lay the flows of all tasks; `before` has the keys of pairs that are there already."""
        there, back, rnics = self.there, self.back, self.shape.rnics
        pairs = sorted(self._pairs())
        columns = np.asarray(pairs, np.int64).reshape(-1, 2).T
        self.source, self.target = np.ascontiguousarray(columns)
        counts = np.bincount(self.source, minlength=rnics)
        self.first_pair = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        known = {key: n for n, key in enumerate(before.tolist()) if key >= 0}
        keys = (self.source * rnics + self.target).tolist()
        old = np.asarray([known.get(key, -1) for key in keys], np.int64)
        stays = np.repeat(old >= 0, PORTS)
        was = (PORTS * old[:, None] + np.arange(PORTS)).ravel()[stays]
        new = np.flatnonzero(~stays)
        draws = self._rng.integers(1 << 30, size=(2, len(new)))
        made = np.empty((2, len(pairs) * PORTS), np.int64)
        for reply, rows in enumerate((there, back)):
            made[reply, stays] = rows[was]
            made[reply, new] = [
                self.route(flow, draw, reply=bool(reply), without=without)
                for flow, draw in zip(new.tolist(), draws[reply].tolist(), strict=True)
            ]
        self.there, self.back = made
        ports = FIRST_PORT + np.arange(len(stays)) % PORTS
        ports[stays] = self.port[was]
        self.port = ports
        return old

    def exchange(self, rnics: Ints, port: int, without: frozenset[str] = frozenset()) -> Ints:
        """Let the last flow of each pair of these RNICs come from `port`, and go other ways.

        Return the flows.
        """
        counts = np.diff(self.first_pair)[rnics]
        first = np.repeat(self.first_pair[rnics] - np.cumsum(counts) + counts, counts)
        flows = PORTS * (first + np.arange(int(counts.sum()))) + PORTS - 1
        self.port[flows] = port
        draws = self._rng.integers(1 << 30, size=(2, len(flows)))
        for reply, rows in enumerate((self.there, self.back)):
            rows[flows] = [
                self.route(flow, draw, reply=bool(reply), without=without)
                for flow, draw in zip(flows.tolist(), draws[reply].tolist(), strict=True)
            ]
        return flows

    @property
    def tasks(self) -> list[str]:
        """Return the names of the tasks that are there."""
        return [f"t{n}" for n in np.unique(self.task_of).tolist() if n >= 0]

    def routes_of(self, task: str) -> list[Route]:
        """Return the routes that a task's probes and their replies take."""
        hosts = self.task_of[self.source // self.shape.rails] == int(task[1:])
        mine = np.repeat(hosts, PORTS)
        return [self.routes[row] for row in {*self.there[mine].tolist(), *self.back[mine].tolist()}]

    def _pairs(self) -> set[tuple[int, int]]:
        shape, made = self.shape, set[tuple[int, int]]()
        for task in np.unique(self.task_of[self.task_of >= 0]).tolist():
            hosts = np.flatnonzero(self.task_of == task).tolist()
            count = min(shape.stages, max(1, len(hosts) // shape.least_replicas))
            stages = [hosts[n::count] for n in range(count)]
            edges = {(a, b) for stage in stages for a in stage for b in stage if a != b}
            for here, after in pairwise(stages):
                edges |= {e for a, b in zip(here, after, strict=False) for e in ((a, b), (b, a))}
            made |= {
                (a * shape.rails + rail, b * shape.rails + rail)
                for a, b in edges
                for rail in range(shape.rails)
            }
        return made

    def leaf(self, number: int) -> str:
        """Return the name of the leaf that an RNIC is cabled to."""
        host, rail = divmod(number, self.shape.rails)
        return f"leaf-s{host // self.shape.hosts_per_segment}-r{rail}"

    def leaf_number(self, number: int) -> int:
        """Return a number for the leaf of an RNIC."""
        host, rail = divmod(number, self.shape.rails)
        return host // self.shape.hosts_per_segment * self.shape.rails + rail

    def pod(self, number: int) -> int:
        """Return the pod of an RNIC, in three tiers."""
        return (
            number
            // self.shape.rails
            // self.shape.hosts_per_segment
            // (self.shape.segments_per_pod or 1)
        )

    def ways(self, flow: int, *, reply: bool, without: frozenset[str] = frozenset()) -> list[Route]:
        """Return the routes of equal cost of a direction of a flow.

        Switches and links whose names are in `without` are avoided, where there is another way.
        """
        ends = self.source[flow // PORTS], self.target[flow // PORTS]
        a, b = map(int, ends[::-1] if reply else ends)
        key = (self.leaf(a), self.leaf(b), without)
        known = self._ways.get(key)
        if known is None:
            made = self._every_way(a, b)
            avoiding = [way for way in made if not self.crosses(way, without)]
            known = self._ways[key] = avoiding or made
        return known

    def _every_way(self, a: int, b: int) -> list[Route]:
        first, last, shape = self.leaf(a), self.leaf(b), self.shape
        if first == last:
            return [(first,)]
        if not shape.segments_per_pod:
            return [(first, f"spine-{n}", last) for n in range(shape.spines)]
        p, q = self.pod(a), self.pod(b)
        groups = range(shape.spines)
        if p == q:
            return [(first, f"agg-p{p}-{g}", last) for g in groups]
        return [
            (first, f"agg-p{p}-{g}", f"core-{g}-{c}", f"agg-p{q}-{g}", last)
            for g in groups
            for c in range(shape.cores_per_group)
        ]

    @staticmethod
    def crosses(route: Route, names: frozenset[str]) -> bool:
        """Return whether a route crosses a switch or a link of these names."""
        if not names:
            return False
        return not names.isdisjoint({*route, *(link(*ends).name for ends in pairwise(route))})

    def route(
        self, flow: int, draw: int, *, reply: bool, without: frozenset[str] = frozenset()
    ) -> int:
        """Return the row of the route that the hash value `draw` takes."""
        ways = self.ways(flow, reply=reply, without=without)
        return self.row(ways[draw % len(ways)])

    def row(self, way: Route) -> int:
        """Return the row of a route, a new one where it is not known yet."""
        if way not in self._row:
            self._row[way] = len(self.routes)
            self.routes.append(way)
        return self._row[way]

    @property
    def flows(self) -> int:
        """Return the number of flows."""
        return len(self.source) * PORTS

    @cached_property
    def endpoints(self) -> list[Endpoint]:
        """Return the endpoint of each RNIC: a container on each host, as large as the host."""
        made = []
        for number in range(self.shape.rnics):
            host, rail = divmod(number, self.shape.rails)
            task = self.task_of[host]
            high, low = divmod(host, 256)
            made.append(
                Endpoint(
                    EndpointId(f"t{task}-c{host}", rail),
                    f"t{task}",
                    f"h{host}",
                    f"10.{rail}.{high}.{low}",
                    "",
                    f"172.{16 + rail}.{high}.{low}",
                    f"mlx5_{rail}",
                    "br-int",
                    f"p{host}-{rail}",
                )
            )
        return made

    def flow(self, number: int) -> FlowId:
        """Return the identity of a flow."""
        pair = number // PORTS
        a, b = (self.endpoints[int(each[pair])].id for each in (self.source, self.target))
        return FlowId(a, b, int(self.port[number]))

    def number(self, endpoint: EndpointId) -> int:
        """Return the number of an endpoint's RNIC."""
        return self._number[endpoint]

    @cached_property
    def _number(self) -> dict[EndpointId, int]:
        return {each.id: n for n, each in enumerate(self.endpoints)}

    def number_of(self, component: Component) -> int:
        """Return the number of an RNIC, given as a component."""
        return self._number_of[component]

    @cached_property
    def _number_of(self) -> dict[Component, int]:
        return {self.rnic(n): n for n in range(self.shape.rnics)}

    def rnic(self, number: int) -> Component:
        """Return an RNIC as a component."""
        endpoint = self.endpoints[number]
        return rnic(endpoint.host, endpoint.rnic)

    @property
    def links(self) -> list[tuple[str, str]]:
        """Return every link that a route crosses or crossed, each once, sorted."""
        return self._parts()[0]

    @property
    def switches(self) -> list[str]:
        """Return every switch that a route crosses or crossed, sorted."""
        return self._parts()[1]

    def _parts(self) -> tuple[list[tuple[str, str]], list[str]]:
        count, links, switches = self._known_parts
        if count < len(self.routes):
            links = sorted({(min(e), max(e)) for route in self.routes for e in pairwise(route)})
            switches = sorted({hop for route in self.routes for hop in route})
            self._known_parts = (len(self.routes), links, switches)
        return links, switches

    def crossings(self, at: Component | tuple[str, str]) -> Ints:
        """Return (n_routes,) how often each crosses a switch, link or direction of a link."""
        return np.asarray([_times(at, route) for route in self.routes], np.int64)


def _times(at: Component | tuple[str, str], route: Route) -> int:
    if isinstance(at, tuple):
        return sum(each == at for each in pairwise(route))
    if at.kind is Kind.SWITCH:
        return route.count(at.name)
    if at.kind is not Kind.LINK:
        return 0
    ends = link_ends(at)
    return sum(each in (ends, ends[::-1]) for each in pairwise(route))
