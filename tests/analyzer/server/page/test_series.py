# SPDX-License-Identifier: Apache-2.0
import asyncio
import time

import numpy as np

from analyzer.config import History
from analyzer.history.blocks import Block, Table
from analyzer.server.page.series import FRESH_S, MAX_KEPT, Series
from analyzer.store.tiers import Tiers
from tests.analyzer.server.page.looking import on

MINUTE_NS = 60 * 10**9
NAMES = ("a/rail0", "b/rail0", "c/rail0")
ROWS = [(0, 1, 10, 1, 9, 100, 200, 400), (1, 0, 20, 0, 20, 100, 300, 900), (0, 2, 5, 5, 0, 0, 0, 0)]
"""Source, target, sent, lost, round trips, and their least, mean and largest."""
NO_COMPONENT = Table((), {"component": np.zeros(0, np.int64)}, {
    name: np.zeros(0, np.uint32) for name in ("sent", "lost", "refused", "rtt_count", "rtt_mean_ns")
})  # fmt: skip


def block(start_ns):
    columns = np.array(ROWS, np.int64).T
    keys = {"source": columns[0], "target": columns[1]}
    named = ("sent", "lost", "rtt_count", "rtt_min_ns", "rtt_mean_ns", "rtt_max_ns")
    told = dict(zip(named, columns[2:].astype(np.uint32), strict=True))
    told["refused"] = np.zeros(len(ROWS), np.uint32)
    order = ("sent", "lost", "refused", "rtt_count", "rtt_min_ns", "rtt_mean_ns", "rtt_max_ns")
    pairs = Table(NAMES, keys, {name: told[name] for name in order})
    return Block(start_ns, 12, pairs, NO_COMPONENT)


def written(looked):
    """Write two minutes; return their starts."""
    now_ns = looked.analyzer.clock()
    starts = [now_ns - now_ns % MINUTE_NS - back * MINUTE_NS for back in (3, 2)]
    tiers = Tiers(looked.analyzer.config.database, History())
    tiers.begin(now_ns)
    for start_ns in starts:
        tiers.put(block(start_ns))
    return starts


def test_a_pair_s_minutes_have_what_is_kept_and_null_for_what_is_not(tmp_path):
    async def work(looked):
        starts = written(looked)
        series = Series(looked.analyzer, time.monotonic)
        assert await series.of_pair("a/rail0", "b/rail0") == [
            [start_ns, 10, 1, None, None, None, 100, 200, 400] for start_ns in starts
        ]
        lost = await series.of_pair("a/rail0", "c/rail0")
        assert lost[0][1:] == [5, 5, None, None, None, None, None, None]
        assert await series.of_pair("c/rail0", "a/rail0") == []

    on(tmp_path, work)


def test_a_task_s_minutes_are_the_sums_of_what_its_endpoints_probed(tmp_path):
    async def work(looked):
        starts = written(looked)
        series = Series(looked.analyzer, time.monotonic)
        mean = round(float(np.exp((9 * np.log(200) + 20 * np.log(300)) / 29)))
        assert await series.of_task("t", NAMES[:2]) == [[at, 35, 6, mean] for at in starts]
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
