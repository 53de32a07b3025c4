# SPDX-License-Identifier: Apache-2.0

import asyncio
import contextlib
import threading

import structlog

from analyzer.config import History
from analyzer.history.files import Piece, Tier, What
from analyzer.intake.flows import FlowNumbers
from analyzer.judge.history import MAX_WAITING, Historian
from analyzer.localize.topology import LearnedTopology
from analyzer.store.parquet import HALF
from tests.analyzer.history.tables import ENDPOINTS, MINUTE_NS, WIDTH_NS, table_of
from tests.waiting import until

START_NS = 29_000_000 * MINUTE_NS
ROWS = {(0, 1, 1): (9, 1, [1000]), (1, 2, 1): (5, 0, [])}


class Seen:
    """A historian that runs, and windows for it."""

    def __init__(self, folder, **keep):
        self.folder = folder / "db.history"
        self.historian = Historian(str(folder / "db"), History(**keep), lambda: START_NS * 2)
        self.numbers, self.topology = FlowNumbers(), LearnedTopology()

    def windows(self, first, count):
        for n in range(first, first + count):
            _, table = table_of(ROWS, START_NS + n * WIDTH_NS, self.numbers)
            self.historian.saw(table, ENDPOINTS, self.topology)

    def file(self, minute, what=What.PAIRS):
        return self.folder / Piece(Tier.MINUTE, START_NS + minute * MINUTE_NS, what).path


@contextlib.asynccontextmanager
async def running(folder, **keep):
    seen = Seen(folder, **keep)
    await seen.historian.begin()
    task = asyncio.create_task(seen.historian.run())
    try:
        yield seen
    finally:
        seen.historian.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_minute_is_written_once_it_is_over_and_not_again_after_a_restart(tmp_path):
    async def inside():
        async with running(tmp_path) as seen:
            seen.windows(0, 15)
            await until(seen.file(0, What.COMPONENTS).exists)
            written = seen.file(0).stat().st_mtime_ns
        async with running(tmp_path) as seen:
            seen.windows(6, 21)  # some of them were read again
            await until(seen.file(1, What.COMPONENTS).exists)
            assert seen.file(0).stat().st_mtime_ns == written
            assert seen.historian.lost == 0

    asyncio.run(inside())


def test_where_it_is_switched_off_nothing_is_written(tmp_path):
    async def inside():
        async with running(tmp_path, enabled=False) as seen:
            seen.windows(0, 30)
            figures = seen.historian.figures.told(findings={}, history={})
        assert not seen.folder.exists()
        assert figures.windows == 0  # they ended before it began
        assert seen.historian.wants(0)

    asyncio.run(inside())


def test_what_windows_add_up_to_is_counted_whether_or_not_it_is_written(tmp_path):
    clock_ns = START_NS
    for enabled in (True, False):
        historian = Historian(str(tmp_path / "db"), History(enabled=enabled), lambda: clock_ns)
        _, table = table_of(ROWS, START_NS, FlowNumbers())
        historian.saw(table, ENDPOINTS, LearnedTopology())
        told = historian.figures.told(findings={"rnic-down": 1}, history=historian.counts())
        assert (told.windows, told.groups[0].sent, told.groups[0].lost) == (1, 15, 1)
        assert told.findings == {"rnic-down": 1}
        assert told.history["minutes_lost"] == 0


def test_a_minute_that_the_disk_refuses_is_lost_and_counted_and_the_next_one_written(tmp_path):
    async def inside():
        async with running(tmp_path) as seen:
            bad = seen.file(0)
            bad.parent.mkdir(parents=True)
            bad.with_name(bad.name + HALF).symlink_to("/dev/full")
            seen.windows(0, 27)
            await until(seen.file(1, What.COMPONENTS).exists)
            assert seen.historian.lost == 1
            assert not bad.exists()

    with structlog.testing.capture_logs() as logs:
        asyncio.run(inside())
    assert [each["event"] for each in logs if each["log_level"] != "debug"] == [
        "history_not_written"
    ]


def test_a_disk_that_stands_still_delays_nobody_and_little_waits_for_it(tmp_path, monkeypatch):
    goes_on = threading.Event()

    async def inside():
        async with running(tmp_path) as seen:
            tiers = seen.historian.tiers
            put = tiers.put
            began = threading.Event()

            def slow(block):
                began.set()
                goes_on.wait()
                put(block)

            monkeypatch.setattr(tiers, "put", slow)
            seen.windows(0, 15)
            await until(began.is_set)
            seen.windows(15, 12 * (MAX_WAITING + 2))
            assert seen.historian.lost == 2
            goes_on.set()
            await until(seen.file(MAX_WAITING, What.COMPONENTS).exists)

    try:
        asyncio.run(inside())
    finally:
        goes_on.set()


def test_a_bug_in_it_is_logged_and_the_window_is_judged_all_the_same(tmp_path, monkeypatch):
    async def inside():
        async with running(tmp_path) as seen:
            monkeypatch.setattr(seen.historian, "_ledger", None)
            seen.windows(0, 1)
            seen.historian.expire(0)

    with structlog.testing.capture_logs() as logs:
        asyncio.run(inside())
    assert [each["event"] for each in logs] == ["history_failed"] * 2


def test_a_folder_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "db.history").touch()

    async def inside():
        async with running(tmp_path) as seen:
            seen.windows(0, 15)
            await until(lambda: seen.historian.lost)

    with structlog.testing.capture_logs() as logs:
        asyncio.run(inside())
    assert [each["event"] for each in logs] == ["history_not_read", "history_not_written"]
