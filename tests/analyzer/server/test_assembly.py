# SPDX-License-Identifier: Apache-2.0
"""The analyzer as a process: mutual TLS, clean stop, kill -9, command line."""

import asyncio
import contextlib
import io
import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from msgspec import structs

from analyzer import cli
from analyzer.replay import records
from analyzer.replay.player import read
from analyzer.server.assembly import newest_ends
from analyzer.server.identity import IdentifiedProtocol
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Accepted, Registered, Summary
from tests.analyzer.certificates import Authority
from tests.analyzer.cluster import SECOND, endpoint, registration
from tests.analyzer.server.process import Process
from tests.waiting import wait_until

START_S = 120.0
"""Seconds for a process to start on a busy machine: the interpreter alone takes a second of one."""
MSGPACK = {"content-type": "application/msgpack", "accept": "application/msgpack"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


def summary(start_ns):
    message = Summary(host="h0", instance="one", start_ns=start_ns, width_ns=5 * SECOND)
    return {"content": encode(message), "headers": MSGPACK}


def test_when_hosts_certificates_end_is_known_by_what_they_showed_last():
    def shown(host, year):
        connection = object.__new__(IdentifiedProtocol)
        subject = ((("commonName", host),),)
        connection.certificate = {"subject": subject, "notAfter": f"Jan  5 09:34:43 {year} GMT"}
        return connection

    hosts = [SimpleNamespace(host=f"h{n}") for n in range(3)]
    analyzer = SimpleNamespace(
        registry=SimpleNamespace(agents=lambda: hosts), ends={"h1": 7.0, "h2": 8.0, "gone": 9.0}
    )
    strangers = [shown("admin", 2030), object()]
    found = newest_ends(analyzer, [shown("h0", 2031), shown("h0", 2030), *strangers])
    assert found == {"h0": 1925372083.0, "h1": 7.0, "h2": 8.0}
    assert newest_ends(analyzer, [shown("h1", 2031)])["h1"] == 1925372083.0


def test_over_mutual_tls_each_host_speaks_for_itself_and_strangers_not_at_all(authority, tmp_path):
    body = {"content": encode(registration("h0", endpoint("h0", "a0"))), "headers": MSGPACK}
    path = "/v1/hosts/h0/endpoints"
    stranger = Authority(tmp_path, "stranger")
    foreign = authority.client()
    foreign.load_cert_chain(*map(str, stranger.sign("h0")))
    with Process(tmp_path, authority) as analyzer:
        with analyzer.client(authority.client("h0")) as h0:
            answer = h0.put(path, **body)
            assert decode(answer.content, Registered).sources
            assert h0.post("/v1/hosts/h0/pinglist", json={}).json()["groups"]
            assert decode(h0.post("/v1/summaries", **summary(5)).content, Accepted)
            assert h0.put("/v1/tasks/t", json={"containers": []}).status_code == 403
        with analyzer.client(authority.client("h1")) as h1:
            refused = h1.put(path, **body)
            assert refused.status_code == 403
            assert "h1" in refused.json()["error"]
            assert h1.post("/v1/summaries", **summary(10)).status_code == 403
            assert h1.post("/v1/hosts/h0/pinglist", json={}).status_code == 403
            assert h1.get("/v1/endpoints").status_code == 403
        with analyzer.client(authority.client("admin")) as admin:
            assert admin.put("/v1/tasks/t", json={"containers": []}).status_code == 200
        for context in (authority.client(), foreign):
            with analyzer.client(context) as nobody, pytest.raises(httpx.HTTPError):
                nobody.get("/v1/endpoints")
        plain = analyzer.url.replace("https", "http")
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{plain}/v1/endpoints", trust_env=False)
        assert analyzer.stop()[0] == 0


def test_a_stolen_key_takes_no_container_and_has_nobody_else_asked(authority, tmp_path):
    """The key of h2 claims a container of h1, joins a declared task, and sends others astray."""

    def put(client, host, *endpoints, url=None, generation=1):
        message = registration(host, *endpoints, generation=generation)
        body = encode(structs.replace(message, rpc_url=url or f"https://{host}:8421"))
        return client.put(f"/v1/hosts/{host}/endpoints", content=body, headers=MSGPACK)

    victim = endpoint("h1", "victim")
    taken = replace(endpoint("h2", "victim"), address="10.9.9.9", underlay="172.30.9.9")
    with Process(tmp_path, authority) as analyzer, contextlib.ExitStack() as stack:
        names = ("h0", "h1", "h2", "admin")
        clients = {n: stack.enter_context(analyzer.client(authority.client(n))) for n in names}
        task = {"containers": ["a0", "victim"]}
        assert clients["admin"].put("/v1/tasks/train-a", json=task).status_code == 200
        assert put(clients["h0"], "h0", endpoint("h0", "a0")).status_code == 200
        assert put(clients["h1"], "h1", victim).status_code == 200
        spy = endpoint("h2", "spy", task="train-a")
        assert put(clients["h2"], "h2", taken, spy).status_code == 200
        urls = ("http://h2:8421", "https://h1:8421", "https://h2:8421/admin?x=", "https://10.0.0.1")
        for url in urls:
            refused = put(clients["h2"], "h2", taken, url=url, generation=2)
            assert (refused.status_code, url in refused.json()["error"]) == (400, True)
        told = clients["admin"].get("/v1/endpoints?task=train-a").json()
        assert [(e["id"], e["host"]) for e in told["endpoints"]] == [
            ("a0/rail0", "h0"),
            ("victim/rail0", "h1"),
        ]
        assert told["conflicts"][0]["loser"] == "h2"
        (target,) = clients["h0"].get("/v1/hosts/h0/pinglist").json()["targets"]
        assert target["address"] == victim.address
        assert "netagent_claims_refused_total 1.0" in clients["admin"].get("/metrics").text
        assert analyzer.database.stat().st_mode & 0o777 == 0o600
        assert analyzer.database.parent.stat().st_mode & 0o777 == 0o700


def test_plain_http_beyond_loopback_is_refused_at_the_start(tmp_path, capsys):
    config = tmp_path / "analyzer.toml"
    config.write_text('listen = "0.0.0.0:0"\n')
    assert cli.main(["serve", "--config", str(config)]) == 2
    assert "not loopback" in capsys.readouterr().err


def test_an_address_in_use_is_a_configuration_error(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = tmp_path / "analyzer.toml"
        config.write_text(f'listen = "127.0.0.1:{taken.getsockname()[1]}"\n')
        assert cli.main(["serve", "--config", str(config)]) == 2
    assert "cannot listen" in capsys.readouterr().err


async def poll_while(client, admin, stop):
    """Hold two long polls, call `stop`, and return what the polls were answered."""
    polls = [
        asyncio.create_task(client.post("/v1/hosts/h0/pinglist", json={"wait_s": 50})),
        asyncio.create_task(admin.get(f"/v1/incidents/events?after={2**62}&wait_s=50")),
    ]
    metrics = ""
    while "netagent_long_polls 2.0" not in metrics:
        metrics = (await admin.get("/metrics")).text
    stopped = asyncio.create_task(asyncio.to_thread(stop))
    return [(await poll).status_code for poll in polls], await stopped


def test_sigterm_stops_at_once_whoever_is_waiting(authority, tmp_path):
    def client(analyzer, name):
        context = authority.client(name)
        return httpx.AsyncClient(base_url=analyzer.url, verify=context, trust_env=False, timeout=60)

    async def inside(analyzer):
        async with (
            client(analyzer, "h0") as h0,
            client(analyzer, "admin") as admin,
            asyncio.timeout(180),
        ):
            return await poll_while(h0, admin, analyzer.stop)

    with Process(tmp_path, authority) as analyzer:
        host, port = analyzer.url.rpartition("/")[2].split(":")
        with socket.create_connection((host, int(port))):  # somebody who never says hello
            polls, (status, seconds, rest) = asyncio.run(inside(analyzer))
    assert polls == [204, 200]
    assert status == 0
    assert seconds < 20  # polls would wait for fifty seconds, and a handshake for thirty
    assert rest[-1]["event"] == "stopped"


def test_what_was_acknowledged_survives_kill_9_of_the_analyzer(tmp_path):
    acknowledged = []
    for life in range(2):
        with Process(tmp_path) as analyzer, analyzer.client() as client:
            message = registration("h0", endpoint("h0", f"a{life}"), generation=life + 1)
            client.put("/v1/hosts/h0/endpoints", content=encode(message), headers=MSGPACK)
            for n in range(20):
                start_ns = (life * 100 + n) * 5 * SECOND
                assert client.post("/v1/summaries", **summary(start_ns)).status_code == 200
                acknowledged.append(start_ns)
            analyzer.process.send_signal(signal.SIGKILL)
            analyzer.process.wait()
    with Process(tmp_path) as analyzer, analyzer.client() as client:
        [replay] = [line for line in analyzer.log if line["event"] == "replayed"]
        assert replay["summaries"] == len(acknowledged)
        for start_ns in acknowledged:
            again = decode(client.post("/v1/summaries", **summary(start_ns)).content, Accepted)
            assert again.duplicate
        states = [(e["id"], e["state"]) for e in listed(client, "?vanished=true")]
        assert states == [("a0/rail0", "gone"), ("a1/rail0", "up")]
        assert analyzer.stop()[0] == 0


def test_the_judge_may_be_killed_at_any_time_and_dies_with_the_analyzer(tmp_path):
    def status():
        return client.get("/v1/status").json()

    with Process(tmp_path) as analyzer, analyzer.client() as client:
        message = registration("h0", endpoint("h0", "a0"))
        client.put("/v1/hosts/h0/endpoints", content=encode(message), headers=MSGPACK)
        killed, start_ns = set(), time.time_ns() // (5 * SECOND) * 5 * SECOND
        for n in range(3):
            wait_until(lambda: status()["judge"]["pid"] not in {None, *killed}, "a judge", START_S)
            killed.add(pid := status()["judge"]["pid"])
            os.kill(pid, signal.SIGKILL)
            at_ns = start_ns - n * 5 * SECOND
            assert client.post("/v1/summaries", **summary(at_ns)).status_code == 200
        wait_until(lambda: status()["judge"]["pid"] not in {None, *killed}, "a judge", START_S)
        wait_until(lambda: client.get("/v1/findings").status_code == 200, "its word", START_S)
        assert client.get("/v1/findings").json()["findings"] == []
        last = status()
        assert (last["judge"]["starts"], last["summaries_kept"]) == (4, 3)
        assert last["counters"]["bad_summaries"] == last["incidents_active"] == 0
        assert "netagent_judge_starts_total 4.0" in client.get("/metrics").text
        with io.BytesIO(client.get("/v1/recording").content) as file:
            made = list(read(file))
        newest = max(n for n, each in enumerate(made) if isinstance(each, records.Header))
        told = [each for each in made[newest:] if isinstance(each, records.Ingested)]
        assert len(told) == 3  # the last judge was told of all
        analyzer.process.kill()
        wait_until(lambda: not Path(f"/proc/{last['judge']['pid']}").exists())


def listed(client, query):
    return client.get(f"/v1/endpoints{query}").json()["endpoints"]


def test_a_second_analyzer_on_the_same_database_is_refused_with_the_remedy(tmp_path, capsys):
    with Process(tmp_path) as analyzer:
        assert cli.main(["serve", "--config", str(analyzer.config)]) == 2
        assert f"PID {analyzer.process.pid}" in capsys.readouterr().err


def test_the_commands_reach_an_analyzer_over_mutual_tls(authority, tmp_path, capsys, monkeypatch):
    cert, key = map(str, authority.sign("admin"))
    with Process(tmp_path, authority) as analyzer:
        for name, value in (
            ("NETAGENT_ANALYZER_URL", analyzer.url),
            ("NETAGENT_CA", str(authority.ca)),
            ("NETAGENT_CERT", cert),
            ("NETAGENT_KEY", key),
        ):
            monkeypatch.setenv(name, value)
        with analyzer.client(authority.client("h0")) as h0:
            body = encode(registration("h0", endpoint("h0", "a0")))
            h0.put("/v1/hosts/h0/endpoints", content=body, headers=MSGPACK)
        for verb, words in (
            (["tasks"], "train-a  learned"),
            (["endpoints"], "a0/rail0  up"),
            (["incidents"], "no incidents"),
        ):
            assert cli.main(verb) == 0
            assert words in capsys.readouterr().out
        assert cli.main(["show", "none"]) == 1
        assert "no incident 'none'" in capsys.readouterr().err
        monkeypatch.delenv("NETAGENT_CERT")
        monkeypatch.delenv("NETAGENT_KEY")
        assert cli.main(["tasks"]) == 2
        assert "--cert" in capsys.readouterr().err
