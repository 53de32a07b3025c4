# SPDX-License-Identifier: Apache-2.0
"""Windows of a small cluster as values, and what they show, counted one probe after the other."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from analyzer.intake.flows import FlowNumbers, WindowRows
from analyzer.intake.paths import PathRow, PathTable
from analyzer.intake.table import WindowTable
from analyzer.localize.topology import LearnedTopology
from analyzer.picture.scene import Ends, Scene
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.wire.histogram import bucket_of

T = TypeVar("T")

WIDTH_NS = 5 * 10**9
START_NS = 1_000 * WIDTH_NS
HOSTS, RAILS = 6, 2
PORTS = (40_000, 40_001)


def host_of(number: int) -> str:
    """Return the host of an endpoint by its number."""
    return f"h{number // RAILS}"


def leaf_of(number: int) -> str:
    """Return its leaf: three hosts are a segment."""
    return f"leaf-s{number // RAILS // 3}-r{number % RAILS}"


def task_of(number: int) -> str:
    """Return its task: two hosts each."""
    return f"t{number // RAILS // 2}"


def endpoint(number: int) -> Endpoint:
    """Return an endpoint by its number."""
    host, rail = divmod(number, RAILS)
    return Endpoint(
        EndpointId(f"c{host}", rail), task_of(number), host_of(number), f"10.0.{rail}.{host}",
        "02:00:00:00:00:01", f"172.30.{rail}.{host}", f"rnic{rail}", "br-int", f"c{host}-r{rail}",
    )  # fmt: skip


ENDPOINTS = tuple(endpoint(number) for number in range(HOSTS * RAILS))


@dataclass(frozen=True)
class Flow:
    """What a flow did: ends by number, round trips in ns, and the spines of its ways."""

    source: int
    target: int
    port: int
    lost: int
    trips: tuple[int, ...]
    spines: tuple[int | None, int | None]
    """There and back; None: not traced."""

    @property
    def sent(self) -> int:
        """Return the number of its probes."""
        return self.lost + len(self.trips)

    @property
    def id(self) -> FlowId:
        """Return its name."""
        return FlowId(ENDPOINTS[self.source].id, ENDPOINTS[self.target].id, self.port)

    def way(self, *, reply: bool) -> tuple[str, ...] | None:
        """Return the routers of a direction; None where it was not traced."""
        spine = self.spines[reply]
        ends = (self.target, self.source) if reply else (self.source, self.target)
        first, last = map(leaf_of, ends)
        if spine is None:
            return None
        return (first,) if first == last else (first, f"spine-{spine}", last)


_spine = st.none() | st.integers(0, 2)
_flow = st.builds(
    Flow,
    st.integers(0, len(ENDPOINTS) - 1),
    st.integers(0, len(ENDPOINTS) - 1),
    st.sampled_from(PORTS),
    st.integers(0, 5),
    st.lists(st.integers(1_000, 1 << 24), max_size=6).map(tuple),
    st.tuples(_spine, _spine),
).filter(lambda flow: flow.source != flow.target and flow.sent > 0)
flows = st.lists(_flow, max_size=24, unique_by=lambda flow: (flow.source, flow.target, flow.port))
"""Windows."""


def table_of(given: Iterable[Flow], numbers: FlowNumbers, start_ns: int = START_NS) -> WindowTable:
    """Return a window's rows."""
    given = list(given)
    flow = np.array([numbers.number(each.id) for each in given], np.int64)
    buckets = [sorted(Counter(map(bucket_of, each.trips)).items()) for each in given]
    entries = [entry for each in buckets for entry in each]

    def column(of: Callable[[Flow], float], kind: type = np.uint32) -> "np.ndarray":
        return np.array([of(each) for each in given], kind)

    rows = WindowRows(
        "", "", Window(start_ns, WIDTH_NS), flow,
        sent=column(lambda f: f.sent), lost=column(lambda f: f.lost),
        refused=column(lambda _: 0), sent_large=column(lambda _: 0),
        lost_large=column(lambda _: 0), run=column(lambda _: 0, np.uint16),
        run_ms=column(lambda _: 0), count=column(lambda f: len(f.trips)),
        min_ns=column(lambda f: min(f.trips, default=0)),
        max_ns=column(lambda f: max(f.trips, default=0)),
        mean_ln=column(lambda f: _mean(map(math.log, f.trips)), np.float64),
        var_ln=column(lambda _: 0, np.float64),
        prober_ns=column(lambda f: 100 + f.source), responder_ns=column(lambda f: 200 + f.target),
        hist_len=np.array([len(each) for each in buckets], np.uint16),
        hist_bucket=np.array([bucket for bucket, _ in entries], np.uint16),
        hist_count=np.array([count for _, count in entries], np.uint32),
    )  # fmt: skip
    hosts = tuple(f"h{n}" for n in range(HOSTS))
    host = np.array([each.source // RAILS for each in given], np.int64)
    return WindowTable(numbers, hosts, host, rows, numbers.ends(flow).reshape(2, -1))


def topology_of(given: Iterable[Flow], numbers: FlowNumbers) -> LearnedTopology:
    """Return what traces of the flows' ways showed, and of where each RNIC is plugged in."""
    topology = LearnedTopology(numbers=numbers)
    learn(topology, given)
    return topology


def learn(topology: LearnedTopology, given: Iterable[Flow]) -> None:
    """Trace the flows' ways."""
    of = {end.id: end.underlay for end in ENDPOINTS}
    paths = [
        PathRow(each.id, reply, 1, way)
        for each in given
        for reply in (False, True)
        if (way := each.way(reply=reply)) is not None
    ]
    for _ in range(2):  # that a way is whole is known once its last leaf is
        topology.learn(PathTable.of(paths), of.get, wall_ns=START_NS)


def known() -> Mapping[EndpointId, Endpoint]:
    """Return all endpoints by name."""
    return {end.id: end for end in ENDPOINTS}


def scene_of(given: Iterable[Flow]) -> Scene:
    """Return a window as it is looked at."""
    given, numbers = list(given), FlowNumbers()
    table, topology = table_of(given, numbers), topology_of(given, numbers)
    return Scene(table, Ends(known(), numbers), topology)


def finished(drawing: Generator[None, None, T]) -> T:
    """Return what is drawn piece by piece."""
    try:
        while True:
            next(drawing)
    except StopIteration as drawn:
        found: T = drawn.value
        return found


def traced(given: Iterable[Flow]) -> dict[int, str]:
    """Return the leaves that traces begin with, by the endpoint's number: all that is known."""
    found = {}
    for each in given:
        for end, reply in ((each.source, False), (each.target, True)):
            if each.way(reply=reply) is not None:
                found[end] = leaf_of(end)
    return found


def whole(given: list[Flow], each: Flow, *, reply: bool) -> tuple[str, ...] | None:
    """Return a way whose end is known: its last leaf is what traces of that end begin with."""
    way, last = each.way(reply=reply), each.source if reply else each.target
    return way if way is not None and last in traced(given) else None


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def mean_ns(trips: Iterable[int]) -> int | None:
    """Return the geometric mean of round trips."""
    found = list(trips)
    return round(math.exp(_mean(map(math.log, found)))) if found else None


def quantile(trips: Iterable[int], share: float) -> int | None:
    """Return the smallest round trip that so many are not above."""
    found = sorted(trips)
    return found[math.ceil(share * len(found)) - 1] if found else None


def by(
    given: Iterable[Flow], key: Callable[[Flow], object]
) -> "dict[object, tuple[int, int, list[int], set[tuple[int, int]]]]":
    """Return probes sent and lost, round trips and pairs of what has the same key."""
    found: dict[object, list[Any]] = defaultdict(lambda: [0, 0, [], set()])
    for each in given:
        of = found[key(each)]
        of[0] += each.sent
        of[1] += each.lost
        of[2] += each.trips
        of[3].add((each.source, each.target))
    return {name: (of[0], of[1], of[2], of[3]) for name, of in found.items()}
