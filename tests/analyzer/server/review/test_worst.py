# SPDX-License-Identifier: Apache-2.0
"""Which links lost most, asked for."""

import pytest

from analyzer.config import History
from analyzer.store.tiers import Tiers
from tests.analyzer.history.tables import MINUTE_NS, block
from tests.analyzer.server.test_routes import on, problem

PATH = "/v1/history/worst"


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
    assert (found["windows"], found["expected"], found["damaged"]) == (120, 240, 0)
    assert none["worst"] == []
