# SPDX-License-Identifier: Apache-2.0
"""A disk that is full: incidents are shown, agents are refused and accused of nothing."""

import asyncio
import contextlib
import os
import subprocess
import threading

import httpx
import pytest

from analyzer.config import Config, Recording
from analyzer.server import asker, journal
from analyzer.server.analyzer import Analyzer
from analyzer.server.disk import MINUTE_NS, SLOW_NS, Disk, Longest, why_late
from analyzer.server.routes import application
from analyzer.store import segments
from netagent.model.errors import CapabilityMissing, Unreachable
from netagent.wire.codec import encode
from netagent.wire.messages import Health, Status, Summary
from tests.analyzer.cluster import SECOND, endpoint, registration
from tests.analyzer.server.direct import Direct
from tests.conftest import ROOT, require
from tests.waiting import until

MSGPACK = {"content-type": "application/msgpack", "accept": "application/msgpack"}
WIDTH_NS = 5 * SECOND
START_NS = 360_000 * WIDTH_NS
HOSTS = ("h0", "h1", "h2", "h3")


def test_it_refuses_from_the_first_failure_to_the_first_write_that_works():
    told = []
    disk = Disk(refused=told.append)
    assert disk.takes
    assert not disk.worked("summaries")
    assert disk.failed("summaries", "full", 5)
    assert not disk.failed("summaries", "still full", 7)
    assert (disk.takes, disk.since_ns, disk.error, told) == (False, 5, "still full", [5, 7])
    assert disk.worked("summaries")
    assert (disk.takes, disk.since_ns, disk.error) == (True, None, "")


def test_a_small_write_that_fits_does_not_mean_that_a_large_one_does():
    disk = Disk(refused=lambda _: None)
    assert disk.failed("summaries", "full", 5)
    assert not disk.failed("incidents", "full", 6)
    assert not disk.worked("incidents")
    assert not disk.worked("incidents")
    assert (disk.takes, disk.since_ns) == (False, 5)
    assert disk.worked("summaries")


def test_the_longest_counts_for_a_minute_or_two():
    longest, start_ns = Longest(), 1000 * MINUTE_NS
    assert longest.ns(start_ns) == 0
    for took_ns in (3, 9, 5):
        longest.took(took_ns, start_ns)
    assert longest.ns(start_ns + MINUTE_NS) == 9
    longest.took(7, start_ns + MINUTE_NS)
    assert longest.ns(start_ns + MINUTE_NS) == 9
    assert longest.ns(start_ns + 2 * MINUTE_NS) == 7
    assert longest.ns(start_ns + 3 * MINUTE_NS) == 0


@pytest.mark.parametrize(
    ("storing_s", "sync_s"),
    [(2.1, 1.0), (4.4, 1.0), (30.0, 30.0)],  # as a device of two operations a second has them
)
def test_a_disk_is_slow_whose_syncs_are(storing_s, sync_s):
    said = why_late(int(storing_s * SECOND), int(sync_s * SECOND))
    assert said.startswith("its disk is slow")


def test_a_sync_is_known_as_long_as_what_waited_for_it():
    disk, start_ns = Disk(refused=lambda _: None), 1000 * MINUTE_NS
    disk.synced.append(3 * SECOND)
    assert disk.sync_ns(start_ns) == 3 * SECOND
    disk.took(3 * SECOND, start_ns)
    disk.took(4 * SECOND, start_ns + MINUTE_NS)  # it waited behind the one before
    for minutes, longest in ((2, 3 * SECOND), (3, 0)):
        assert disk.sync_ns(start_ns + minutes * MINUTE_NS) == longest


def test_a_disk_that_syncs_at_once_is_not_blamed():
    said = why_late(4 * SECOND, SECOND // 50)
    assert said.startswith("not by its disk (its disk takes 0.02 s at most)")


class Fleet:
    """Agents that answer for their status, but those that are dead."""

    def __init__(self):
        self.dead, self.asked = set(), 0

    async def status(self, host, *, deadline_s=0.0):
        self.asked += 1
        if host in self.dead:
            raise Unreachable(host, "refused")
        return Status(
            host=host, instance="i", version="1", endpoints=(), pinglist_version=1, targets=0,
            last_window_ns=0, health=Health(),
        )  # fmt: skip

    async def close(self):
        pass


class Cluster:
    """Agents that deliver every window, and keep in their spools what is refused."""

    def __init__(self, analyzer, judge, now):
        self.analyzer, self.judge, self.now, self.window = analyzer, judge, now, 0
        self.spools = {host: [] for host in HOSTS}
        self.refused = 0
        transport = httpx.ASGITransport(application(analyzer))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost")
        self.fleet = Fleet()
        analyzer.asker._agents = self.fleet

    async def register(self):
        for host in HOSTS:
            body = encode(registration(host, endpoint(host, f"c-{host}")))
            answer = await self.http.put(
                f"/v1/hosts/{host}/endpoints", content=body, headers=MSGPACK
            )
            assert answer.status_code == 200

    async def live(self, windows, *, most=99):
        """Let windows pass, in each of which an agent tries to deliver `most` at most."""
        for _ in range(windows):
            at_ns = START_NS + self.window * WIDTH_NS
            self.now[0] = at_ns + WIDTH_NS + SECOND // 10
            for host in set(HOSTS) - self.fleet.dead:
                self.spools[host].append(at_ns)
                await self.deliver(host, most)
            self.now[0] = at_ns + WIDTH_NS + 2 * SECOND
            self.analyzer.asker._wake.set()
            closed = self.judge.diagnosis._windows._closed
            await until(lambda at_ns=at_ns, closed=closed: max(closed, default=-1) >= at_ns)
            await until(lambda: not self.judge.diagnosis.judging)
            self.window += 1

    async def deliver(self, host, most):
        spool = self.spools[host]
        for start_ns in spool[:most]:
            message = Summary(
                host=host, instance="i", start_ns=start_ns, width_ns=WIDTH_NS, health=Health()
            )
            answer = await self.http.post("/v1/summaries", content=encode(message), headers=MSGPACK)
            if answer.status_code != 200:
                assert answer.status_code == 503, answer.text
                self.refused += 1
                return
            spool.remove(start_ns)

    async def status(self):
        return (await self.http.get("/v1/status")).json()

    async def incidents(self):
        found = (await self.http.get("/v1/incidents")).json()["incidents"]
        return [(each["component"], each["state"], each["stored"]) for each in found]


@contextlib.asynccontextmanager
async def running(folder):
    now = [START_NS]
    config = Config(database=str(folder / "netagent.duckdb"), recording=Recording(enabled=False))
    judge = Direct(lambda: now[0])
    analyzer = await Analyzer.start(
        config, "analyzer.toml", clock=lambda: now[0], open_link=judge.open
    )
    cluster = Cluster(analyzer, judge, now)
    try:
        await cluster.register()
        yield cluster
    finally:
        await cluster.http.aclose()
        await analyzer.stop()


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(asker, "TICK_S", 0.001)
    monkeypatch.setattr(journal, "RETRY_S", 0.01)


@pytest.fixture
def tiny(tmp_path):
    """Return a folder on a disk of a few megabytes, which is unmounted in the end."""
    require(ROOT)
    folder = tmp_path / "tiny"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder):
    """Leave no byte on the disk; return the file that holds them."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(b"\0" * size) == size:
                    pass
    return filler


class Full:
    """Stands in for writes of a store, which fail."""

    def __init__(self, store):
        self.store = store
        self.put, self.put_incidents = store.put, store.put_incidents

    def fill(self):
        async def refuse(*_):
            raise CapabilityMissing("database", "No space left on device")

        self.store.put = self.store.put_incidents = refuse

    def unlink(self):
        del self.store.put, self.store.put_incidents


async def through_a_full_disk(cluster, fill):
    """Fill the disk for some windows, in which an agent dies; return what was told meanwhile."""
    await cluster.live(4)
    assert await cluster.incidents() == []
    assert (await cluster.status())["disk"]["takes"]
    full = fill()
    await cluster.live(8)
    assert cluster.refused >= 8
    assert await cluster.incidents() == []  # nobody is accused of what was refused
    told = (await cluster.status())["disk"]
    assert not told["takes"]
    assert told["refuses_since_ns"] >= START_NS + 4 * WIDTH_NS
    assert told["error"]
    cluster.fleet.dead = {"h2"}
    await cluster.live(3)
    shown = await cluster.incidents()
    unstored = (await cluster.status())["disk"]["incidents_not_stored"]
    full.unlink()
    return shown, unstored


async def recovered(cluster):
    """Return what is told once there is space again and agents deliver little by little."""
    await cluster.live(8, most=3)
    await until(lambda: cluster.analyzer.journal.unstored == 0)
    told = (await cluster.status())["disk"]
    assert told["takes"]
    assert (told["refuses_since_ns"], told["error"], told["incidents_not_stored"]) == (None, "", 0)
    return await cluster.incidents()


def through(folder, choose):
    async def inside():
        async with asyncio.timeout(180), running(folder) as cluster:
            shown, unstored = await through_a_full_disk(cluster, choose(cluster))
            return shown, unstored, await recovered(cluster)

    return asyncio.run(inside())


DEAD = ("agent h2", "confirmed")


def test_with_a_real_disk_that_is_full_incidents_are_shown_and_no_agent_is_accused(tiny):
    shown, unstored, after = through(tiny, lambda _: lambda: fill(tiny))
    [(component, state, is_stored)] = shown
    assert (component, state) == DEAD
    assert unstored == (not is_stored)  # the database may have room in itself
    assert after == [(*DEAD, True)]


def test_with_a_store_that_refuses_it_is_the_same(tmp_path):
    def choose(cluster):
        full = Full(cluster.analyzer.store)

        def fill():
            full.fill()
            return full

        return fill

    shown, unstored, after = through(tmp_path, choose)
    assert (shown, unstored) == ([(*DEAD, False)], 1)
    assert after == [(*DEAD, True)]


def test_a_disk_that_is_slow_is_told_while_it_stores_and_after(tmp_path, monkeypatch):
    begun, gate, sync = threading.Event(), threading.Event(), os.fdatasync

    def slow(file):
        begun.set()
        assert gate.wait(180)
        sync(file)

    async def inside():
        async with asyncio.timeout(180), running(tmp_path) as cluster:
            await cluster.live(1)
            analyzer = cluster.analyzer
            assert analyzer.warnings() == []
            monkeypatch.setattr(segments, "monotonic_ns", lambda: cluster.now[0])
            monkeypatch.setattr(os, "fdatasync", slow)
            cluster.spools["h0"].append(START_NS - WIDTH_NS)
            delivering = asyncio.create_task(cluster.deliver("h0", 1))
            await until(begun.is_set)
            cluster.now[0] += SLOW_NS
            [warning] = analyzer.warnings()
            assert warning.startswith("it stores late: its disk is slow")
            gate.set()
            await delivering
            assert analyzer.warnings() == [warning]
            disk = (await cluster.status())["disk"]
            assert (disk["storing_ns"], disk["sync_ns"]) == (SLOW_NS, SLOW_NS)
            cluster.now[0] += 2 * MINUTE_NS
            return analyzer.warnings()

    assert asyncio.run(inside()) == []


def test_what_waits_for_something_else_than_the_disk_is_told_so(tmp_path):
    async def inside():
        async with asyncio.timeout(180), running(tmp_path) as cluster:
            await cluster.live(1)
            store, gate = cluster.analyzer.store, asyncio.Event()
            put = store.put

            async def slow(*summary):
                await gate.wait()
                return await put(*summary)

            store.put = slow
            cluster.spools["h0"].append(START_NS - WIDTH_NS)
            delivering = asyncio.create_task(cluster.deliver("h0", 1))
            await until(lambda: cluster.analyzer.service.arriving_ns() is not None)
            cluster.now[0] += 30 * SECOND  # far more than a sync takes on a busy machine
            [warning] = cluster.analyzer.warnings()
            gate.set()
            await delivering
            return warning

    assert asyncio.run(inside()).startswith("it stores late: not by its disk")


def test_after_a_full_disk_a_host_that_never_delivers_again_is_told_in_the_end(tmp_path):
    async def inside():
        async with asyncio.timeout(180), running(tmp_path) as cluster:
            await cluster.live(2)
            full = Full(cluster.analyzer.store)
            full.fill()
            await cluster.live(3)
            full.unlink()
            cluster.spools["h1"] = []

            async def mute(host, most, deliver=cluster.deliver):
                if host != "h1":
                    await deliver(host, most)

            cluster.deliver = mute
            await cluster.live(12)
            early = await cluster.incidents()
            await cluster.live(10)
            return early, await cluster.incidents()

    early, late = asyncio.run(inside())
    assert early == []
    assert [component for component, _, _ in late] == ["agent h1"]
