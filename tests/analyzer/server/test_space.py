# SPDX-License-Identifier: Apache-2.0
"""Room on the disk: what goes first, what stays, and that it is told."""

import asyncio
import errno
import os
import subprocess
import time
from itertools import pairwise

import pytest
import structlog

from analyzer import cli
from analyzer.server.disk import Disk
from analyzer.server.space import NEEDED_NS, TOLD_NS, Space
from analyzer.store import backup
from analyzer.store.manifest import SUMMARIES
from analyzer.store.space import Freed, Room
from analyzer.store.tables import Store
from netagent.model.errors import CapabilityMissing
from tests.analyzer.cluster import SECOND
from tests.analyzer.server.filling import Hosts, fill
from tests.analyzer.server.process import Process
from tests.analyzer.store import backups
from tests.conftest import ROOT, require
from tests.waiting import wait_until

NOW_NS = 10**18
FULL = f"{os.strerror(errno.ENOSPC)}; free disk space under x"


class Small:
    """Has a disk of 2,000 bytes, of which 100 shall be free."""

    def __init__(self, free=100, most=99):
        self.free, self.most, self.asked, self.error = free, most, [], None

    def room(self):
        return Room(2_000, self.free)

    async def make_room(self, *, before_ns, least=0):
        self.asked.append((before_ns, least))
        if self.error is not None:
            raise self.error
        taken = min(max(self.room().short, least), self.most)
        self.most -= taken
        self.free += taken
        return Freed(taken, 0)


class Bench:
    def __init__(self, **fields):
        self.store, self.now = Small(**fields), [NOW_NS]
        self.disk = Disk(refused=lambda _: None)
        self.space = Space(self.store, self.disk, lambda: self.now[0])

    def look(self):
        with structlog.testing.capture_logs() as logs:
            asyncio.run(self.space.look())
        return [each["event"] for each in logs]


def test_with_room_nothing_is_touched():
    bench = Bench()
    assert bench.look() == []
    assert bench.store.asked == []
    assert list(bench.space.warnings()) == []
    assert bench.space.told()["free_bytes"] == 100


def test_before_the_disk_refuses_the_oldest_go_and_that_is_told_for_an_hour():
    bench = Bench(free=60)
    assert bench.look() == ["deleted_for_room"]
    assert bench.store.asked == [(NOW_NS - NEEDED_NS, 0)]
    assert bench.store.free == 100
    told = bench.space.told()
    assert (told["summaries_trimmed_for_space"], told["deleted_for_space_ns"]) == (40, NOW_NS)
    assert not bench.space.is_short
    assert bench.look() == []
    [warning] = bench.space.warnings()
    assert "ran out of room" in warning
    bench.now[0] += TOLD_NS
    assert list(bench.space.warnings()) == []


def test_where_nothing_more_may_go_that_is_told_until_there_is_room():
    bench = Bench(free=10, most=50)
    assert bench.look() == ["deleted_for_room", "disk_short"]
    assert bench.look() == []
    assert "nothing that it stores may be deleted" in list(bench.space.warnings())[-1]
    bench.store.free = 500
    assert bench.look() == ["disk_short"]
    assert not bench.space.is_short
    assert len(list(bench.space.warnings())) == 1


def test_each_refused_write_makes_room_once_whatever_the_disk_says_that_it_has():
    bench = Bench(free=500)
    bench.disk.failed("summaries", FULL, NOW_NS)
    assert bench.look() == ["deleted_for_room"]
    assert bench.look() == []
    assert "refuses" in next(bench.space.warnings())
    bench.disk.failed("summaries", FULL, NOW_NS)
    assert bench.look() == ["deleted_for_room"]
    assert bench.space.summaries == 2
    bench.disk.failed("summaries", "Input/output error", NOW_NS)
    assert bench.look() == []


@pytest.mark.parametrize("error", [OSError("gone"), CapabilityMissing("database", "closed")])
def test_a_store_that_cannot_is_asked_again(error):
    bench = Bench(free=10)
    bench.store.error = error
    assert bench.look() == ["no_room_made", "disk_short"]
    bench.store.error = None
    assert bench.look() == ["deleted_for_room", "disk_short"]
    assert not bench.space.is_short


# --- a process on a small disk --------------------------------------------------------------------

OLD = 250
"""Summaries of 100 KB that lie there from two hours ago."""


@pytest.fixture
def small(tmp_path):
    """Return a folder on a disk of 64 MiB, which is unmounted in the end."""
    require(ROOT)
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def numbers(database):
    """Return the numbers of the files with summaries."""
    folder = backup.beside(database, SUMMARIES)
    return sorted(int(path.stem) for path in folder.glob("*.segment"))


def populate(database):
    """Store old summaries."""
    then_ns = time.time_ns() - 7200 * SECOND

    async def work(store):
        for n in range(OLD):
            await store.put(("old", n, 0), then_ns + n * SECOND, os.urandom(100_000))

    database.parent.mkdir()
    backups.using(database, work)


def squeeze(status, small, database):
    """Take all room that there is, again and again, until nothing more is deleted for it."""
    seen = [numbers(database)]
    while True:
        fill(small)
        before = status()["disk"]["summaries_trimmed_for_space"]

        def settled(before=before):
            told = status()["disk"]
            return told["is_short"] or told["summaries_trimmed_for_space"] > before

        wait_until(settled, "room is made, or none can be", 30)
        seen.append(numbers(database))
        if status()["disk"]["summaries_trimmed_for_space"] == before:
            return seen


def test_a_full_disk_costs_the_oldest_summaries_and_nothing_that_was_acknowledged_since(
    small, capsys
):
    analyzer = Process(small, more="[recording]\nenabled = false\n")
    populate(analyzer.database)
    with analyzer:
        client = analyzer.client()
        hosts = Hosts(analyzer, ("h0", "h1", "h3"), dead=("h2",))
        hosts.start()

        def status():
            return client.get("/v1/status").json()

        def incidents():
            return client.get("/v1/incidents").json()

        assert status()["disk"]["takes"]
        seen = squeeze(status, small, analyzer.database)
        wait_until(lambda: hosts.refused and not status()["disk"]["takes"], "refused", 30)
        wait_until(lambda: incidents()["incidents"], "a dead agent is told", 60)
        shown = incidents()
        assert cli.main(["incidents", "--url", analyzer.url]) == 0
        assert "the analyzer itself: its disk refuses" in capsys.readouterr().out
        metrics = client.get("/metrics").text
        (small / "filler").unlink()
        wait_until(lambda: hosts.acknowledged and not hosts.waiting, "all is delivered", 60)
        wait_until(lambda: not status()["disk"]["is_short"], "there is room", 30)
        hosts.stop()
        wait_until(lambda: status()["disk"]["takes"], "the disk takes again", 30)
        wait_until(lambda: status()["disk"]["incidents_not_stored"] == 0, "all is stored", 30)
        after, last = status(), incidents()
        client.close()
        assert analyzer.stop()[0] == 0
        hosts.end()
    assert [each["component"] for each in shown["incidents"]] == ["agent h2"]
    assert len(shown["warnings"]) == 3
    assert [each["component"] for each in last["incidents"]] == ["agent h2"]
    assert last["incidents"][0]["stored"]
    trimmed = after["disk"]["summaries_trimmed_for_space"]
    assert f"netagent_summaries_trimmed_for_space_total {trimmed}.0" in metrics
    oldest = [each[0] for each in seen]
    assert oldest == sorted(oldest)
    for before, later in pairwise(seen):
        assert [n for n in before if n >= later[0]] == [n for n in later if n <= before[-1]]
    stored, unreadable = on_disk(analyzer.database)
    assert set(hosts.acknowledged) <= stored
    assert unreadable == 0
    kept = sorted(n for host, n in stored if host == "old")
    assert trimmed == OLD - len(kept) > 0
    assert kept == list(range(OLD - len(kept), OLD))


def on_disk(database):
    """Return which summaries are stored, and how many of them cannot be read."""
    lost = []

    async def work(store):
        rows = await store._rows("SELECT host, start_ns FROM windows", [])
        return set(rows), [each async for each in store.replay(0)]

    async def inside():
        store = Store(str(database), lost=lambda: lost.append(1))
        try:
            return await work(store)
        finally:
            await store.close()

    stored, read = asyncio.run(inside())
    assert len(read) + len(lost) == len(stored)
    return stored, len(lost)
