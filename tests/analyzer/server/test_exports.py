# SPDX-License-Identifier: Apache-2.0

import io

import pytest

from analyzer.replay.frames import payloads
from netagent.wire.codec import decode
from netagent.wire.messages import Summary
from tests.analyzer.history.tables import MINUTE_NS
from tests.analyzer.server.test_history import filled
from tests.analyzer.server.test_routes import SECOND, on, problem

FILES, WINDOWS = "/v1/history/files", "/v1/history/windows"


def span(since_ns, until_ns, **more):
    return {"params": {"since_ns": since_ns, "until_ns": until_ns, **more}}


def test_files_of_a_time_are_listed_in_pages_and_given_as_they_are(tmp_path):
    async def work(lab):
        hour_ns = 60 * MINUTE_NS
        middle_ns = (
            lab.analyzer.clock() // hour_ns * hour_ns - 30 * MINUTE_NS
        )  # none is put together
        start_ns = filled(tmp_path, 5, middle_ns)
        two = span(start_ns + 1, start_ns + MINUTE_NS + 1, limit=5)
        first = (await lab.http.get(FILES, **two)).json()
        two["params"]["after"] = first["next"]
        rest = (await lab.http.get(FILES, **two)).json()
        names = first["files"] + rest["files"]
        assert (len(first["files"]), len(names), rest["next"]) == (5, 8, None)
        for name in names:
            got = await lab.http.get(f"{FILES}/{name}")
            assert got.content == (tmp_path / "netagent.duckdb.history" / name).read_bytes()
        hours = await lab.http.get(FILES, **span(0, start_ns, tier="hour"))
        assert hours.status_code == 200

    on(tmp_path, work)


@pytest.mark.parametrize(
    "path",
    [
        "minute/2026-11-26/0415.pairs.parquet",
        "minute/2026-11-26/netagent.duckdb",
        "minute/..%2F../netagent.duckdb",
        "..%2F/x/netagent.duckdb",
    ],
)
def test_nothing_but_files_of_the_history_is_given(tmp_path, path):
    async def work(lab):
        assert (await lab.http.get(f"{FILES}/{path}")).status_code == 404

    on(tmp_path, work)


def test_stored_windows_of_a_time_are_given_oldest_first(tmp_path):
    async def work(lab):
        for host in ("h0", "h1"):
            await lab.register(host)
            for n in (3, 1, 2):
                assert (await lab.push(host, 5 * n * SECOND)).status_code == 200
        answer = await lab.http.get(WINDOWS, **span(5 * SECOND, 15 * SECOND))
        found = [decode(each, Summary) for _, _, each in payloads(io.BytesIO(answer.content))]
        assert [(each.start_ns // SECOND, each.host) for each in found] == [
            (5, "h0"), (5, "h1"), (10, "h0"), (10, "h1"),
        ]  # fmt: skip

    on(tmp_path, work)


def test_only_admins_export_and_only_what_is_a_time(tmp_path):
    async def work(lab):
        for path in (FILES, WINDOWS):
            for times in ((5, 5), (-1, 5), (5, 1 << 63)):
                problem(await lab.http.get(path, **span(*times)), 400)
        problem(await lab.http.get(FILES, **span(0, 5, tier="day")), 400)
        lab.peer = "h0"
        for path in (FILES, WINDOWS, f"{FILES}/minute/2026-11-26/0415.pairs.parquet"):
            problem(await lab.http.get(path, **span(0, 5)), 403)

    on(tmp_path, work)
