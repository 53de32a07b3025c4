# SPDX-License-Identifier: Apache-2.0
import asyncio
import time

import pytest

from analyzer.config import History
from analyzer.history.spread import RATIO
from analyzer.server.page.series import FRESH_S, MAX_KEPT, Series
from analyzer.store.tiers import Tiers
from tests.analyzer.history.tables import MINUTE_NS, block
from tests.analyzer.server.page.looking import on

NAMES = ("a/rail0", "b/rail0", "c/rail0")


def written(looked):
    """Write two minutes; return their starts."""
    now_ns = looked.analyzer.clock()
    starts = [now_ns - now_ns % MINUTE_NS - back * MINUTE_NS for back in (3, 2)]
    tiers = Tiers(looked.analyzer.config.database, History())
    tiers.begin(now_ns)
    for start_ns, spread in zip(starts, (False, True), strict=True):
        tiers.put(block(start_ns, sent=(10, 20), lost=(1, 2), rtt=(200, 300), spread=spread))
    return starts


def test_a_pair_s_minutes_have_quantiles_where_they_are_known_and_null_elsewhere(tmp_path):
    async def work(looked):
        starts = written(looked)
        series = Series(looked.analyzer, time.monotonic)
        assert await series.of_pair("a/rail0", "b/rail0") == [
            [start_ns, 10, 1, *quantiles, 200, 200, 200]
            for start_ns, quantiles in zip(starts, ([None] * 3, [200] * 3), strict=True)
        ]
        assert await series.of_pair("c/rail0", "b/rail0") == []

    on(tmp_path, work)


def test_a_pair_of_which_nothing_came_back_has_no_time(tmp_path):
    async def work(looked):
        now_ns = looked.analyzer.clock()
        tiers = Tiers(looked.analyzer.config.database, History())
        tiers.begin(now_ns)
        tiers.put(block(now_ns - now_ns % MINUTE_NS - MINUTE_NS))
        series = Series(looked.analyzer, time.monotonic)
        [row] = await series.of_pair("c/rail0", "a/rail0")
        assert row[1:] == [20, 1, *[None] * 6]

    on(tmp_path, work)


def test_a_task_s_minutes_are_the_sums_of_what_its_endpoints_probed(tmp_path):
    async def work(looked):
        starts = written(looked)
        series = Series(looked.analyzer, time.monotonic)
        mean = round((200 * 300) ** 0.5)
        before, now = await series.of_task("t", [NAMES[0], NAMES[2]])
        assert before == [starts[0], 30, 3, mean, None, None, None]
        assert now[:4] == [starts[1], 30, 3, mean]
        assert now[4:] == [pytest.approx(ns, rel=RATIO - 1) for ns in (200, 300, 300)]
        assert await series.of_task("u", ["nobody/rail0"]) == []
        assert await series.of_task("v", []) == []

    on(tmp_path, work)


def test_where_there_is_no_history_there_is_no_series(tmp_path):
    async def work(looked):
        series = Series(looked.analyzer, time.monotonic)
        assert await series.of_pair("a/rail0", "b/rail0") == await series.of_task("t", NAMES) == []

    on(tmp_path, work)


def test_what_was_read_stands_for_a_while_also_for_who_asks_meanwhile(tmp_path):
    async def work(looked):
        at, reads = [0.0], []
        series = Series(looked.analyzer, lambda: at[0])

        def read(since_ns, until_ns):
            reads.append(until_ns - since_ns)
            return [[1]]

        asking = (series._read(("a", "b"), read) for _ in range(3))
        assert await asyncio.gather(*asking) == [[[1]]] * 3
        at[0] = FRESH_S
        await series._read(("a", "b"), read)
        assert reads == [3600 * 10**9] * 2
        for n in range(MAX_KEPT + 1):
            await series._read((str(n), ""), read)
        assert len(series._known) == MAX_KEPT

    on(tmp_path, work)


def test_a_disk_that_cannot_be_read_costs_the_series_alone(tmp_path):
    async def work(looked):
        def read(since_ns, until_ns):
            raise OSError("gone")

        series = Series(looked.analyzer, time.monotonic)
        assert await series._read(("a", "b"), read) == []

    on(tmp_path, work)
