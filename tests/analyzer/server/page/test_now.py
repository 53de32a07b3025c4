# SPDX-License-Identifier: Apache-2.0
import time
from dataclasses import replace

import pytest

from analyzer.server.page.now import MAX_INCIDENTS, RECOVERED, STARTING_NS, now, state, tick
from analyzer.server.page.page import Page
from analyzer.server.sight import Sight
from netagent.model.path import Component, Kind
from netagent.model.verdict import IncidentState
from tests.analyzer.picture.scenes import HOSTS
from tests.analyzer.server.page.looking import WINDOW, incident, on

WELL = {"at_ns": 0, "width_ns": 5 * 10**9, "pairs": 12, "sent": 60}


def test_a_cluster_that_is_well_says_so_and_how_much_was_looked_at(tmp_path):
    async def work(looked):
        page = Page(looked.analyzer)
        told = await now(page, Sight())
        assert (told["state"], told["line"]) == ("well", "All 12 pairs that are probed are well.")
        assert told["counts"] == {
            "hosts": HOSTS, "rnics": 2 * HOSTS, "tasks": 3, "pairs": 12,
            "probes_per_s": round(sum(f.sent for f in WINDOW) / 5), "windows_behind": 0,
        }  # fmt: skip
        assert told["incidents"] == told["recovered"] == []
        short = await tick(page, Sight())
        assert (short["state"], short["line"]) == (told["state"], told["line"])

    on(tmp_path, work)


def test_the_headline_names_the_part_where_a_host_s_sentence_does_not(tmp_path):
    async def work(looked):
        rnic = Component(Kind.RNIC, "h1/rnic0")
        await looked.tell(incident("i1", "t0", component=rnic, summary="rnic0 is down"))
        told = await now(Page(looked.analyzer), Sight())
        assert told["line"] == "1 active: rnic h1/rnic0: rnic0 is down"

    on(tmp_path, work)


def test_what_is_wrong_comes_first_and_what_is_over_last(tmp_path):
    async def work(looked):
        over = [
            incident(f"r{n}", "t0", state=IncidentState.RECOVERED, recovered_ns=n)
            for n in range(RECOVERED + 2)
        ]
        await looked.tell(incident("i1", "t0"), *over)
        told = await now(Page(looked.analyzer), Sight())
        assert (told["state"], told["line"]) == ("incidents", "1 active: spine-0 loses")
        assert [each["id"] for each in told["incidents"]] == ["i1"]
        ids = [each["id"] for each in told["recovered"]]
        assert ids == [f"r{n}" for n in range(RECOVERED + 1, 1, -1)]
        [short] = told["incidents"]
        assert (short["kind"], short["pairs_failing"], short["is_late"]) == ("switch", 1, False)
        assert (await now(Page(looked.analyzer), Sight(("t1",))))["state"] == "well"

    on(tmp_path, work)


def test_what_is_confirmed_and_has_a_name_leads_the_line(tmp_path):
    async def work(looked):
        given = [
            incident("a", "t0", component=None, summary="who knows"),
            incident("b", "t0", summary="b may lose"),
            incident("c", "t0", summary="c loses", state=IncidentState.CONFIRMED),
            incident("d", "t0", component=None, summary="who", state=IncidentState.CONFIRMED),
        ]
        for n, each in enumerate(given):
            await looked.tell(replace(each, detected_ns=10 - abs(n - 2)))
            expected = ["who knows", "b may lose", "c loses", "c loses"][n]
            line = (await now(Page(looked.analyzer), Sight()))["line"]
            assert line.startswith(f"{n + 1} active: ")
            assert line.endswith(expected)

    on(tmp_path, work)


def test_of_a_flood_of_incidents_some_are_told_and_the_rest_counted(tmp_path):
    async def work(looked):
        await looked.tell(*(incident(f"i{n}", "t0") for n in range(MAX_INCIDENTS + 3)))
        told = await now(Page(looked.analyzer), Sight())
        assert (len(told["incidents"]), told["incidents_omitted"]) == (MAX_INCIDENTS, 3)

    on(tmp_path, work)


@pytest.mark.parametrize(
    ("totals", "age_ns", "expected"),
    [
        (None, 0, "starting"),
        (None, STARTING_NS + 60 * 10**9, "blind"),
        (WELL, 0, "blind"),
        (WELL | {"at_ns": None}, 0, "well"),
        (WELL | {"at_ns": None, "pairs": 0}, 0, "blind"),
    ],
)
def test_what_is_not_known_is_not_called_well(tmp_path, totals, age_ns, expected):
    async def work(looked):
        analyzer = looked.analyzer
        analyzer.started_ns = analyzer.clock() - age_ns
        if totals is not None and totals["at_ns"] is None:
            totals["at_ns"] = time.time_ns() - 6 * 10**9
        assert state(analyzer, Sight(), totals).state == expected

    on(tmp_path, work)


def test_before_the_first_window_nothing_is_watched(tmp_path):
    async def work(looked):
        looked.judge.bench.picture.expire(1 << 62)
        told = await now(Page(looked.analyzer), Sight())
        assert told["state"] == "starting"
        assert told["counts"]["pairs"] is None
        assert [each["what"] for each in told["unwatched"]] == ["everything"]

    on(tmp_path, work)
