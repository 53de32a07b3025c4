# SPDX-License-Identifier: Apache-2.0
"""History, asked for; and from a real analyzer's judge to its commands."""

import asyncio
import csv
import io
import json
import time

import pytest

from analyzer import cli
from analyzer.config import History
from analyzer.roster.registry import Registry
from analyzer.simulate.agents import WIDTH_NS, Agents
from analyzer.simulate.clos import Clos, Shape
from analyzer.store.parquet import Parquet
from analyzer.store.tables import Store
from analyzer.store.tiers import Tiers
from netagent.wire.codec import encode
from tests.analyzer.history.tables import MINUTE_NS, block
from tests.analyzer.server.test_assembly import MSGPACK, Process
from tests.analyzer.server.test_routes import on, problem
from tests.waiting import wait_until

CLOS = Clos(Shape(hosts=4, hosts_per_segment=2, spines=2, replicas=4, stages=1), seed=1)


def filled(folder, minutes, now_ns):
    """Write so many minutes before now."""
    tiers = Tiers(str(folder / "netagent.duckdb"), History())
    tiers.begin(now_ns)
    start_ns = now_ns // MINUTE_NS * MINUTE_NS - minutes * MINUTE_NS
    for n in range(minutes):
        tiers.put(block(start_ns + n * MINUTE_NS))
    return start_ns


def ask(lab, **query):
    return lab.http.get("/v1/history", params=query)


def test_rows_come_in_pages_and_the_last_hour_unless_asked_otherwise(tmp_path):
    async def work(lab):
        now_ns = lab.analyzer.clock()
        start_ns = filled(tmp_path, 90, now_ns)
        first = (await ask(lab, endpoint="a/rail0", limit=100)).json()
        assert (first["tier"], first["width_ns"], first["damaged"]) == ("minute", MINUTE_NS, 0)
        assert first["until_ns"] - first["since_ns"] == 3600 * 10**9
        rest = (await ask(lab, endpoint="a/rail0", after=first["next"])).json()
        assert rest["next"] is None
        assert len(first["rows"] + rest["rows"]) in {2 * 59, 2 * 60}  # a minute may end meanwhile
        asked = {"since_ns": start_ns, "until_ns": start_ns + MINUTE_NS}
        (row,) = (await ask(lab, component="link x -- y", **asked)).json()["rows"]
        assert (row["start_ns"], row["sent"], row["rtt_mean_ns"]) == (start_ns, 10, 1000)
        pair = {"source": "c/rail0", "target": "a/rail0", "since_ns": start_ns}
        assert len((await ask(lab, **pair)).json()["rows"]) == 90
        assert (await ask(lab, tier="hour", **pair)).json()["rows"]

    on(tmp_path, work)


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"component": "switch x", "source": "a/rail0"},
        {"endpoint": "a/rail0", "target": "a/rail0"},
        {"component": "switch x", "tier": "day"},
        {"component": "switch x", "since_ns": 5, "until_ns": 5},
        {"component": "switch x", "since_ns": -5},
        {"component": "switch x", "after": "x"},
        {"component": "switch x", "limit": 0},
        {"component": "switch x", "since_ns": "yesterday"},
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, query):
    async def work(lab):
        problem(await ask(lab, **query), 400)

    on(tmp_path, work)


def test_only_admins_ask_and_others_wait_meanwhile(tmp_path):
    async def work(lab):
        lab.peer = "h0"
        problem(await ask(lab, component="switch x"), 403)
        lab.peer = "admin"
        async with lab.analyzer.reading:
            waits = asyncio.create_task(ask(lab, component="switch x"))
            done, _ = await asyncio.wait([waits], timeout=0.05)
            assert not done
        assert (await waits).json()["rows"] == []

    on(tmp_path, work)


def test_many_pairs_are_told_as_one(tmp_path):
    async def work(lab):
        start_ns = filled(tmp_path, 5, lab.analyzer.clock())
        asked = {"endpoint": "a/rail0", "since_ns": start_ns}
        told = (await lab.http.get("/v1/history/together", params=asked)).json()
        assert (told["tier"], len(told["rows"])) == ("minute", 5)
        row = told["rows"][0]
        assert (row["start_ns"], row["sent"], row["lost"]) == (start_ns, 30, 1)
        assert row["rtt_p50_ns"] == row["rtt_p99_ns"] == row["rtt_max_ns"] == 1000
        problem(await lab.http.get("/v1/history/together"), 400)
        lab.peer = "h0"
        problem(await lab.http.get("/v1/history/together", params=asked), 403)

    on(tmp_path, work)


def test_what_became_of_minutes_is_counted(tmp_path):
    async def work(lab):
        lab.judge.bench.history.lost = 3
        told = (await lab.http.get("/v1/history/counts")).json()
        assert told == {"files_written": 0, "minutes_lost": 3, "late": 0, "files_damaged": 0}
        lab.peer = "h0"
        problem(await lab.http.get("/v1/history/counts"), 403)

    on(tmp_path, work)


# --- a real one ---------------------------------------------------------------------------------


def known_since_long(folder, agents, registered_ns):
    """Let a fabric's agents have registered before the analyzer starts."""
    registry = Registry()
    (folder / "state").mkdir()

    async def inside():
        store = Store(str(folder / "state" / "netagent.duckdb"))
        for message in agents.registrations():
            registry.apply(message, registered_ns)
            await store.put_host(registry.export_host(message.host))
        await store.close()

    asyncio.run(inside())


def sent(client, agents, windows):
    """Deliver windows; return probes sent by minute."""
    by_minute = {}
    for _ in range(windows):
        for each in agents.window():
            content = encode(each)
            answer = client.post("/v1/summaries", content=content, headers=MSGPACK)
            assert answer.status_code == 200
        minute = (agents.now_ns - WIDTH_NS) // MINUTE_NS * MINUTE_NS
        by_minute[minute] = by_minute.get(minute, 0) + 100 * len(CLOS.endpoints)
    return by_minute


def test_minutes_under_way_survive_a_kill_and_commands_show_them(tmp_path, capsys, monkeypatch):
    windows = 40
    start_ns = time.time_ns() // WIDTH_NS * WIDTH_NS - (windows + 1) * WIDTH_NS
    agents = Agents(CLOS, seed=1, start_ns=start_ns)
    known_since_long(tmp_path, agents, start_ns - MINUTE_NS)
    folder = tmp_path / "state" / "netagent.duckdb.history"
    with Process(tmp_path) as analyzer, analyzer.client() as client:
        by_minute = sent(client, agents, windows)
        assert not list(folder.rglob("*.parquet"))
        analyzer.process.kill()
    with Process(tmp_path) as analyzer:
        monkeypatch.setenv("NETAGENT_ANALYZER_URL", analyzer.url)
        wait_until(lambda: len(list(folder.glob("minute/*/*.components.parquet"))) >= 2)
        end = str(CLOS.endpoints[0].id)
        told = history(capsys, "--endpoint", end, "--json")
        whole = {row["start_ns"] for row in told["rows"] if row["start_ns"] >= start_ns}
        assert whole  # others may be written meanwhile
        rnics = {f"{each.host}/{each.rnic}" for each in CLOS.endpoints}
        found = {}
        for name in sorted(rnics):
            for row in history(capsys, "--component", f"rnic {name}", "--json")["rows"]:
                found[row["start_ns"]] = found.get(row["start_ns"], 0) + row["sent"]
        for minute in whole:  # each probe crosses two RNICs
            assert found[minute] == 2 * by_minute[minute]
        assert cli.main(["history", "--endpoint", end, "--csv"]) == 0
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert all(
            row["rtt_p50_ns"] <= row["rtt_p99_ns"] <= row["rtt_max_ns"] for row in told["rows"]
        )
        assert [int(row["sent"]) for row in rows if int(row["start_ns"]) in whole] == [
            row["sent"] for row in told["rows"] if row["start_ns"] in whole
        ]
        assert cli.main(["history", end, "--since", "10m"]) == 0
        assert "p99  |" in capsys.readouterr().out  # of all its pairs
        assert cli.main(["history", "--component", "switch nowhere"]) == 1
        assert "nothing is known" in capsys.readouterr().out
        to = tmp_path / "out"
        assert cli.main(["export", "--since", "10m", "-o", str(to), "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["window_rows"]
        assert said["minute_files"] >= 4 * len(whole)
        with Parquet(to / "spill") as parquet:
            probes = "SELECT start_ns, sum(sent) FROM read_parquet($files) GROUP BY 1"
            minutes = dict(parquet.rows(probes, {"files": str(to / "minute/*/*.pairs.parquet")}))
            raw = "SELECT sum(sent) FROM read_parquet($files)"
            assert parquet.rows(raw, {"files": str(to / "windows/*.parquet")}) == [
                (sum(by_minute.values()),)
            ]
        assert {minute: minutes[minute] for minute in whole} == {n: by_minute[n] for n in whole}
        assert (to / "incidents.parquet").exists()


def history(capsys, *words):
    assert cli.main(["history", "--since", "10m", *words]) == 0
    return json.loads(capsys.readouterr().out)
