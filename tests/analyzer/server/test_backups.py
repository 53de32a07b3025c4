# SPDX-License-Identifier: Apache-2.0
"""Backups of a running analyzer: who may, and that what it acknowledged before is in them."""

import asyncio
import contextlib
import json
import threading
import time

import httpx
import pytest

from analyzer import cli
from analyzer.config import Config, Recording
from analyzer.server.analyzer import Analyzer
from analyzer.server.identity import PEER
from analyzer.server.routes import application
from analyzer.store import backup, space
from netagent.model.path import Component, Kind, Layer
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Accepted, Health, Summary
from tests.analyzer.cluster import SECOND, endpoint, registration
from tests.analyzer.server.direct import Direct
from tests.analyzer.server.process import Process
from tests.analyzer.store import backups
from tests.waiting import wait_until

MSGPACK = {"content-type": "application/msgpack", "accept": "application/msgpack"}
WIDTH_NS = 5 * SECOND


@contextlib.asynccontextmanager
async def running(folder, peer=None):
    """Give an analyzer, and a client that shows the certificate of `peer`."""
    config = Config(database=str(folder / "netagent.duckdb"), recording=Recording(enabled=False))
    judge = Direct(time.time_ns)
    analyzer = await Analyzer.start(config, "analyzer.toml", open_link=judge.open)
    app = application(analyzer)

    async def identified(scope, receive, send):
        scope["state"] = {PEER: peer}
        await app(scope, receive, send)

    transport = httpx.ASGITransport(identified)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield analyzer, client
    finally:
        await analyzer.stop()


def on(folder, work, **fields):
    async def inside():
        async with asyncio.timeout(60), running(folder, **fields) as (analyzer, client):
            return await work(analyzer, client)

    return asyncio.run(inside())


def test_an_administrator_gets_a_backup_of_any_name_or_of_none(tmp_path, monkeypatch):
    monkeypatch.setattr(backup, "BACKUPS_KEPT", 1)

    async def work(analyzer, client):
        await analyzer.store.put(("h0", 1, 0), 1, b"one")
        first = (await client.post("/v1/backup", json={"name": "first"})).json()
        other = (await client.post("/v1/backup")).json()
        return first, other

    first, other = on(tmp_path, work, peer="admin")
    folder = tmp_path / "netagent.duckdb.backups"
    assert first["folder"] == str(folder / "first")
    assert (first["summaries"], first["dropped"]) == (1, [])
    assert other["dropped"] == ["first"]
    assert [str(each) for each in folder.iterdir()] == [other["folder"]]
    assert first["made_ns"] <= other["made_ns"]


def test_nobody_else_does(tmp_path):
    async def work(_, client):
        return (await client.post("/v1/backup")).status_code

    assert on(tmp_path, work, peer="h0") == 403
    assert not (tmp_path / "netagent.duckdb.backups").exists()


@pytest.mark.parametrize("name", ["..", "a/b", ".x", "x.half", "x" * 200, "a\n"])
def test_a_name_that_is_no_folders_is_refused(tmp_path, name):
    async def work(_, client):
        return (await client.post("/v1/backup", json={"name": name})).status_code

    assert on(tmp_path, work) == 400


def test_one_at_a_time_and_none_without_room(tmp_path, monkeypatch):
    async def work(analyzer, client):
        async with analyzer.backing_up:
            busy = await client.post("/v1/backup")
        monkeypatch.setattr(space, "SHARE", 1)
        monkeypatch.setattr(space, "MOST_BYTES", 1 << 60)
        full = await client.post("/v1/backup")
        return (busy.status_code, full.status_code), full.json()["remedy"]

    statuses, remedy = on(tmp_path, work)
    assert statuses == (409, 503)
    assert "free some" in remedy


# --- a process ------------------------------------------------------------------------------------


class Pushes(threading.Thread):
    """Hosts that deliver one window after the other until they are stopped, or the analyzer is."""

    def __init__(self, analyzer, first_ns):
        super().__init__()
        self.client, self.start_ns = analyzer.client(), first_ns
        self.acknowledged = []
        self.stopping = threading.Event()

    def run(self):
        with contextlib.suppress(httpx.HTTPError), self.client:
            while not self.stopping.is_set():
                for host in ("h0", "h1"):
                    answer = self.client.post("/v1/summaries", **summary(host, self.start_ns))
                    assert answer.status_code == 200
                    self.acknowledged.append((host, self.start_ns))
                self.start_ns += WIDTH_NS


def summary(host, start_ns):
    message = Summary(
        host=host, instance="one", start_ns=start_ns, width_ns=WIDTH_NS, health=Health()
    )
    return {"content": encode(message), "headers": MSGPACK}


def told_before(database):
    """Store an incident, as a judge told it; return it."""
    spine = Component(Kind.SWITCH, "spine-0")
    verdict = Verdict(spine, Layer.UNDERLAY, Symptom.LOSS, 0.9, "spine-0 loses")
    incident = Incident("i1", IncidentState.CONFIRMED, verdict, 1, 2, 3)
    backups.using(database, lambda store: store.put_incidents([incident]))
    return incident


def populated(client):
    """Register three hosts, and declare a task."""
    for host in ("h0", "h1", "h2"):
        message = registration(host, endpoint(host, f"c-{host}"))
        path = f"/v1/hosts/{host}/endpoints"
        assert client.put(path, content=encode(message), headers=MSGPACK).status_code == 200
    assert client.put("/v1/tasks/declared", json={"containers": ["x0"]}).status_code == 200


def restored(client, incident, acknowledged):
    """Hold a restored analyzer against what was acknowledged."""
    ids = {each["id"] for each in client.get("/v1/incidents").json()["incidents"]}
    assert incident.id in ids
    assert "declared" in {each["id"] for each in client.get("/v1/tasks").json()["tasks"]}
    endpoints = client.get("/v1/endpoints").json()["endpoints"]
    assert {each["id"] for each in endpoints} == {f"c-h{n}/rail0" for n in range(3)}
    for host, start_ns in acknowledged:
        said = client.post("/v1/summaries", **summary(host, start_ns))
        assert decode(said.content, Accepted).duplicate, (host, start_ns)


def test_all_that_was_acknowledged_before_a_backup_is_there_after_a_kill_and_a_restore(
    tmp_path, capsys
):
    now_ns = time.time_ns() // WIDTH_NS * WIDTH_NS
    incident = told_before(tmp_path / "state" / "netagent.duckdb")
    with Process(tmp_path) as analyzer, analyzer.client() as client:
        pushes = Pushes(analyzer, now_ns - 10**5 * WIDTH_NS)
        pushes.start()
        populated(client)
        wait_until(lambda: len(pushes.acknowledged) > 20)
        before = list(pushes.acknowledged)
        assert cli.main(["backup", "one", "--url", analyzer.url, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert client.delete("/v1/tasks/declared").status_code == 200
        count = len(pushes.acknowledged)
        wait_until(lambda: len(pushes.acknowledged) > count + 20)
        analyzer.kill()
        pushes.stopping.set()
        pushes.join()
    assert told["summaries"] >= len(before)
    restore = ["restore", told["folder"], "--config", str(analyzer.config)]
    assert cli.main(restore) == 2
    assert "--replace" in capsys.readouterr().err
    assert cli.main([*restore, "--replace", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summaries"] == told["summaries"]
    with Process(tmp_path) as analyzer, analyzer.client() as client:
        restored(client, incident, before)
        assert cli.main([*restore, "--replace"]) == 2
        assert "in use" in capsys.readouterr().err
        status = client.get("/v1/status").json()
        assert status["rows_set_aside"] == status["counters"]["unreadable_summaries"] == 0
