# SPDX-License-Identifier: Apache-2.0
"""What is known of round trips survives a restart of the analyzer; a bad file never stops one."""

import asyncio
import contextlib
from dataclasses import replace
from random import Random

import httpx
import msgspec
import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.config import Config
from analyzer.detect.latency.slowness import Slowness
from analyzer.intake.flows import FlowNumbers
from analyzer.judge import bench
from analyzer.judge import kept as room
from analyzer.judge.kept import BASELINES, ROUTES, Keeper
from analyzer.server import analyzer as assembly
from analyzer.server import asker
from analyzer.server.analyzer import Analyzer
from analyzer.server.routes import application
from netagent.model.ids import EndpointId, FlowId
from netagent.wire.codec import encode
from netagent.wire.columns import pack
from netagent.wire.messages import Health, PathColumns, Summary
from tests.analyzer.cluster import endpoint, registration
from tests.analyzer.detect.latency import trips
from tests.analyzer.detect.latency.trips import WIDTH_NS
from tests.analyzer.server.direct import Direct
from tests.waiting import until

MSGPACK = {"content-type": "application/msgpack", "accept": "application/msgpack"}
START_NS = 360_000 * WIDTH_NS
HOSTS = {"h": ["a", "z"], "h2": ["b"], "h3": ["c"]}
FLOWS = [
    FlowId(EndpointId(source, 0), EndpointId(target, 0), port)
    for target in "bc"
    for source in "az"
    for port in range(1, 5)
]
SLOW = set(FLOWS[:8])
"""Those to b, which crosses something that becomes slow."""


def traced(spine):
    """Return what h2 says of the ways of its replies, over one of two spines."""
    path = pack(
        PathColumns,
        routes=(("L2", f"S{spine}", "L1"),),
        source=[0], target=[1], source_port=[1], reply=[1], outer_port=[1], route=[0],
    )  # fmt: skip
    return {"endpoints": (FLOWS[0].source, FLOWS[0].target), "paths": path}


class Cluster:
    """Two hosts whose flows take so many microseconds, and the time."""

    def __init__(self):
        self.window, self.random = 0, Random(1)
        self.now_ns = START_NS

    def clock(self):
        return self.now_ns

    async def live(self, analyzer, windows, us):
        transport = httpx.ASGITransport(application(analyzer))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for host, names in HOSTS.items():
                ends = [endpoint(host, name) for name in names]
                message = encode(registration(host, *ends))
                await client.put(f"/v1/hosts/{host}/endpoints", content=message, headers=MSGPACK)
            for _ in range(windows):
                await self.one(analyzer, client, us)

    async def one(self, analyzer, client, us):
        rtts_ns = {
            flow: [
                1_000 * (us if flow in SLOW else 15) * self.random.lognormvariate(0, 0.05)
                for _ in range(6)
            ]
            for flow in FLOWS
        }
        at_ns = START_NS + self.window * WIDTH_NS
        self.now_ns = at_ns + WIDTH_NS + 10**8
        others = [
            Summary(host=host, instance="i", start_ns=at_ns, width_ns=WIDTH_NS, health=Health())
            for host in ("h2", "h3")
        ]
        others[0] = msgspec.structs.replace(others[0], **traced(1 + self.window % 2))
        for summary in (trips.summary(rtts_ns, at_ns), *others):
            answer = await client.post("/v1/summaries", content=encode(summary), headers=MSGPACK)
            assert answer.status_code == 200
        slowness = self.diagnosis._slowness
        await until(lambda: slowness.until_ns >= at_ns + WIDTH_NS)
        self.window += 1


@contextlib.asynccontextmanager
async def running(folder, cluster):
    config = Config(database=str(folder / "netagent.duckdb"))
    judge = Direct(cluster.clock)
    analyzer = await Analyzer.start(
        config, "analyzer.toml", clock=cluster.clock, open_link=judge.open
    )
    await judge.all_taken()
    cluster.diagnosis, cluster.baselines = judge.diagnosis, judge.bench.baselines
    cluster.routes = judge.bench.routes
    try:
        yield analyzer
    finally:
        await analyzer.stop()


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(asker, "TICK_S", 0.001)


FILE = "netagent.duckdb.baselines"


def slow(cluster):
    return set(cluster.diagnosis._slowness.slow)


async def life(folder, meanwhile, *, long=30):
    """Let a path become slow, restart, and return what is known of it some windows later."""
    cluster = Cluster()
    async with running(folder, cluster) as analyzer:
        await cluster.live(analyzer, 18, 15)
        await cluster.live(analyzer, long, 60)
        assert slow(cluster) == SLOW
        assert await cluster.baselines.save()
        await cluster.live(analyzer, 3, 60)  # then it is killed: nothing more is saved
    meanwhile(folder / FILE)
    async with running(folder, cluster) as analyzer:
        await cluster.live(analyzer, 1, 60)
        at_once = slow(cluster)
        await cluster.live(analyzer, 9, 60)
        return at_once, slow(cluster)


def test_a_path_that_was_slow_before_a_restart_is_slow_after_it(tmp_path):
    assert asyncio.run(life(tmp_path, lambda path: None)) == (SLOW, SLOW)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-7]),
        lambda path: path.write_bytes(b""),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["none", "cut", "empty", "a folder"],
)
def test_without_its_file_an_analyzer_starts_all_the_same_and_begins_anew(tmp_path, damage):
    with structlog.testing.capture_logs() as logs:
        assert asyncio.run(life(tmp_path, damage)) == (set(), set())
    told = [line for line in logs if line["event"] == "state_not_restored"]
    assert len(told) == (1 if (tmp_path / FILE).exists() else 0)


def test_two_minutes_are_read_again_and_no_window_twice(tmp_path):
    async def inside():
        cluster = Cluster()
        async with running(tmp_path, cluster) as analyzer:
            await cluster.live(analyzer, 12, 15)
            assert await cluster.baselines.save()
            await cluster.live(analyzer, 5, 15)
            before = learned(cluster)
        async with running(tmp_path, cluster) as analyzer:
            assert learned(cluster) == before == [17] * len(FLOWS)
        (tmp_path / FILE).unlink()
        async with running(tmp_path, cluster) as analyzer:
            assert learned(cluster) == [17] * len(FLOWS)  # all are within the two minutes

    def learned(cluster):
        numbers = cluster.diagnosis._numbers
        of = cluster.diagnosis._slowness._baselines._of_mean.windows
        return [int(of[numbers.known(flow)]) for flow in FLOWS]

    assert assembly.REPLAY_NS > 17 * WIDTH_NS
    asyncio.run(inside())


def test_it_is_saved_every_minute_at_the_end_of_a_half_minute(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "BASELINES", replace(BASELINES, every_s=0.01))
    monkeypatch.setattr(room, "LOOK_S", 0.01)

    async def inside():
        cluster = Cluster()
        async with running(tmp_path, cluster) as analyzer:
            await cluster.live(analyzer, 3, 15)
            path = tmp_path / FILE
            await until(path.exists)
            path.unlink()  # of before the first window
            assert cluster.diagnosis.baselines() is None
            await cluster.live(analyzer, 3, 15)
            await until(path.exists)

    asyncio.run(inside())


def test_a_disk_that_refuses_is_logged_and_leaves_the_file_that_was(tmp_path):
    class Diagnosis:
        def baselines(self):
            return Slowness().save(FlowNumbers())

    keeper = Keeper(BASELINES, str(tmp_path / "db"), Diagnosis(), lambda: 0)
    (tmp_path / "db.baselines").write_bytes(b"before")
    (tmp_path / "db.baselines.half").symlink_to("/dev/full")
    with structlog.testing.capture_logs() as logs:
        assert asyncio.run(keeper.save())
    assert [line["event"] for line in logs] == ["state_not_saved"]
    assert (tmp_path / "db.baselines").read_bytes() == b"before"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_whatever_the_file_holds_nothing_is_adopted_and_nothing_raised(tmp_path, data):
    class Diagnosis:
        def adopt(self, saved, now_ns):
            raise AssertionError(saved)

    keeper = Keeper(BASELINES, str(tmp_path / "db"), Diagnosis(), lambda: 0)
    (tmp_path / "db.baselines").write_bytes(data)
    assert asyncio.run(keeper.restore()) == 0


@pytest.mark.parametrize("few", [True, False], ids=["few bytes", "many bytes"])
def test_of_much_only_what_came_after_the_routes_were_kept_is_read_again(
    tmp_path, monkeypatch, few
):
    monkeypatch.setattr(assembly, "REPLAY_BYTES", 1 << 40 if few else 0)

    async def inside():
        cluster = Cluster()
        async with running(tmp_path, cluster) as analyzer:
            await cluster.live(analyzer, 4, 15)
            assert await cluster.routes.save()
            way = shown(cluster)
            assert way == ("L2", "S2", "L1")
            await cluster.live(analyzer, 3, 15)
            assert shown(cluster) == ("L2", "S1", "L1")
        async with running(tmp_path, cluster) as analyzer:
            assert shown(cluster) == ("L2", "S1", "L1")
            assert analyzer.counters.replayed == 3 * (7 if few else 4)  # and at that instant
            seen = [agent.last_window_ns for agent in analyzer.registry.agents()]
            assert seen == [START_NS + 6 * WIDTH_NS] * len(HOSTS)
            assert cluster.diagnosis.flows == len(FLOWS)
        assert (tmp_path / "netagent.duckdb.routes").stat().st_mode & 0o777 == 0o600

    def shown(cluster):
        known = cluster.diagnosis._topology._traced
        row = int(known._taken.latest[1, known.numbers.known(FLOWS[0])])
        return known.routes.shown(row)

    asyncio.run(inside())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_whatever_the_file_of_routes_holds_all_is_read_again(tmp_path, data):
    class Diagnosis:
        def adopt_routes(self, saved):
            raise AssertionError(saved)

    keeper = Keeper(ROUTES, str(tmp_path / "db"), Diagnosis(), lambda: 0)
    (tmp_path / "db.routes").write_bytes(data)
    assert asyncio.run(keeper.restore()) == 0
