# SPDX-License-Identifier: Apache-2.0
"""Which links lost most, asked for."""

import pytest

from analyzer.config import History
from analyzer.store.tiers import Tiers
from tests.analyzer.history.tables import MINUTE_NS, block
from tests.analyzer.server.test_routes import on, problem

PATH = "/v1/history/worst"
HOUR_NS = 498_000 * 60 * MINUTE_NS
"""When some hour begins."""


def test_links_that_lost_most_and_what_was_judged_are_told_to_administrators(tmp_path):
    async def work(lab):
        now_ns = lab.analyzer.clock()
        start_ns = now_ns // MINUTE_NS * MINUTE_NS - 20 * MINUTE_NS
        tiers = Tiers(str(tmp_path / "netagent.duckdb"), History())
        tiers.begin(start_ns)
        for n in range(10):
            tiers.put(block(start_ns + n * MINUTE_NS, sent=(500, 1), lost=(5, 0)))
        asked = {"since_ns": start_ns, "until_ns": start_ns + 20 * MINUTE_NS}
        found = (await lab.http.get(PATH, params=asked)).json()
        none = (await lab.http.get(PATH, params=asked | {"kind": "host"})).json()
        for odd in (
            {"since_ns": 5}, {"since_ns": 5, "until_ns": 4}, {"since_ns": 0, "until_ns": now_ns},
            asked | {"kind": "cable"}, asked | {"limit": 0},
        ):  # fmt: skip
            problem(await lab.http.get(PATH, params=odd), 400)
        lab.peer = "reader"
        problem(await lab.http.get(PATH, params=asked), 403)
        return found, none

    found, none = on(tmp_path, work, readers=("reader",))
    [lossy] = found["worst"]
    assert lossy.pop("rtt_p99_ns") == pytest.approx(1_000, rel=0.05)
    assert lossy == {"component": "link x -- y", "sent": 5000, "lost": 50}
    # The newest minutes are not written yet, wherever in its minute now is.
    assert (found["windows"], found["damaged"]) == (120, 0)
    assert 240 - 240 // 5 <= found["expected"] <= 240
    assert none["worst"] == []


@pytest.mark.parametrize("minute", [1, 3, 7, 30])
def test_what_was_before_the_first_window_is_nothing_that_was_missed(tmp_path, minute):
    """Wherever in its hour now is: an hour may have been merged since the first window."""

    async def work(lab):
        now_ns = HOUR_NS + minute * MINUTE_NS + 20 * 10**9
        lab.analyzer.clock = lambda: now_ns
        first_ns = now_ns // MINUTE_NS * MINUTE_NS - 8 * MINUTE_NS
        week = {"since_ns": now_ns - 7 * 24 * 60 * MINUTE_NS, "until_ns": now_ns}
        none = (await lab.http.get(PATH, params=week)).json()
        tiers = Tiers(str(tmp_path / "netagent.duckdb"), History())
        tiers.begin(first_ns)
        for n in range(8):
            tiers.put(block(first_ns + n * MINUTE_NS, sent=(500, 1), lost=(5, 0)))
        found = (await lab.http.get(PATH, params=week)).json()
        later = (await lab.http.get(PATH, params=week | {"since_ns": first_ns + MINUTE_NS})).json()
        return first_ns, none, found, later

    first_ns, none, found, later = on(tmp_path, work)
    assert none["expected"] == none["windows"] == 0
    assert found["first_ns"] == first_ns
    assert later["first_ns"] == first_ns + MINUTE_NS
    assert 0 <= found["expected"] - found["windows"] <= 12  # no more than the minute that is half
    assert found["expected"] - later["expected"] == 12
