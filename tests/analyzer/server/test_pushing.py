# SPDX-License-Identifier: Apache-2.0
"""Controllers that push what should be, from a request to what comes of it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from analyzer.config import Controllers, Ovn, Pushed
from analyzer.roster import admission
from analyzer.server.intent import CHANGE_EXAMPLE, WHOLE_EXAMPLE
from netagent.wire.controller import ControllerState, PluggedPort, Working
from tests.analyzer.certificates import Authority
from tests.analyzer.cluster import endpoint
from tests.analyzer.server.process import Process
from tests.analyzer.server.test_routes import on, problem
from tests.waiting import until

PATH = "/v1/controllers/acme/intent"
ACME = Controllers(pushed={"acme": Pushed(clients=("sdn-1", "sdn-2"))})
DOCS = Path(__file__).parents[3] / "docs" / "controllers.md"


def test_what_is_pushed_is_told_and_given_back(tmp_path):
    async def work(lab):
        assert "nothing was pushed" in problem(await lab.http.get(PATH), 404)
        told = (await lab.http.get("/v1/intent")).json()
        assert (told["source"], list(told["away"])) == ("acme", ["intent"])
        taken = await lab.http.put(PATH, json=WHOLE_EXAMPLE)
        assert taken.json() == {
            "controller": "acme", "version": "1042", "ports": 1, "placements": 1, "chassis": 1,
        }  # fmt: skip
        assert (await lab.http.get(PATH)).json() == WHOLE_EXAMPLE
        told = (await lab.http.get("/v1/intent", params={"source": "acme"})).json()
        assert (told["away"], told["ladder"]["asked"]) == ({}, 7)
        assert told["ports"][0]["port"]["pod"] == "ml/train-a-0"
        assert told["databases"] == [
            {"name": "intent", "remote": "anybody, version 1042", "lacks": []}
        ]
        taken = (await lab.http.patch(PATH, json=CHANGE_EXAMPLE)).json()
        assert (taken["version"], taken["ports"], taken["chassis"]) == ("1043", 0, 1)

    on(tmp_path, work, controllers=ACME)


def test_a_lost_change_is_refused_and_asks_for_the_whole(tmp_path):
    async def work(lab):
        await lab.http.put(PATH, json=WHOLE_EXAMPLE)
        answer = await lab.http.patch(PATH, json={"since": "1043", "version": "1044"})
        assert "1042" in problem(answer, 409)
        assert "PUT the whole" in answer.json()["remedy"]
        assert "never came" in (await lab.http.get("/v1/intent")).json()["away"]["intent"]
        status = (await lab.http.get("/v1/status")).json()["pushed"]["acme"]
        assert (status["version"], status["whole"], status["refused"]) == ("1042", 1, 1)
        assert list(status["away"]) == ["intent"]
        text = (await lab.http.get("/metrics")).text
        assert 'netagent_intent_pushed_total{controller="acme",what="refused"} 1.0' in text
        assert 'netagent_intent_away{controller="acme"} 1.0' in text
        await lab.http.put(PATH, json=WHOLE_EXAMPLE)
        assert (
            'netagent_intent_away{controller="acme"} 0.0' in (await lab.http.get("/metrics")).text
        )

    on(tmp_path, work, controllers=ACME)


def test_only_those_named_may_push_and_readers_may_read(tmp_path):
    async def work(lab):
        for lab.peer in ("admin", "h0", "tenant", "grafana", ""):
            assert "who may not say" in problem(await lab.http.put(PATH, json=WHOLE_EXAMPLE), 403)
            assert "who may not say" in problem(await lab.http.patch(PATH, json={}), 403)
        for lab.peer in ("sdn-1", "sdn-2"):
            assert (await lab.http.put(PATH, json=WHOLE_EXAMPLE)).status_code == 200
            problem(await lab.http.put("/v1/controllers/other/intent", json=WHOLE_EXAMPLE), 404)
            problem(await lab.http.get("/v1/intent"), 403)
        for lab.peer, status in (("sdn-1", 200), ("admin", 200), ("grafana", 200), ("h0", 403)):
            assert (await lab.http.get(PATH)).status_code == status
        lab.peer = "admin"
        told = (await lab.http.get("/v1/intent")).json()["databases"][0]["remote"]
        assert told == "sdn-2, version 1042"

    on(
        tmp_path, work, controllers=ACME, readers=("grafana",), tenants={"tenant": ("train-a",)}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({**WHOLE_EXAMPLE, "routers": {}}, "unknown field `routers`"),
        ({"version": "1", "ports": {"p": {"vlan": 7}}}, "unknown field `vlan`"),
        ({"version": "1", "placements": {"p": {"since_ns": 7}}}, "unknown field `since_ns`"),
        ({"ports": {}}, "missing required field `version`"),
        ({"version": "1", "ports": {"p": None}}, "got `null`"),
        ({"version": "1", "ports": {"p": {"owner": "x" * 513}}}, "length <= 512"),
        ({"version": "1", "ports": {"p": {"macs": ["none"]}}}, "ports.p.macs: 'none'"),
        ([], "Expected `object`"),
    ],
)
def test_nothing_is_taken_of_what_is_not_understood(tmp_path, body, words):
    async def work(lab):
        assert words in problem(await lab.http.put(PATH, json=body), 400)
        problem(await lab.http.get(PATH), 404)

    on(tmp_path, work, controllers=ACME)


def test_other_forms_and_too_much_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(admission, "BURST", 3)
    monkeypatch.setattr(admission, "PER_S", 0)

    async def work(lab):
        for form in ("text/plain", "application/msgpack"):
            headers = {"content-type": form}
            problem(await lab.http.put(PATH, content=b"{}", headers=headers), 415)
        answers = [await lab.http.put(PATH, json=WHOLE_EXAMPLE) for _ in range(5)]
        assert [each.status_code for each in answers] == [200, 200, 200, 503, 503]
        assert lab.analyzer.pushed["acme"].counts["refused"] == 2

    on(tmp_path, work, controllers=ACME)


def test_of_several_controllers_one_is_named(tmp_path):
    nowhere = Ovn(northbound=("unix:/nowhere",), southbound=("unix:/nowhere",))

    async def work(lab):
        await lab.http.put(PATH, json=WHOLE_EXAMPLE)
        await until(lambda: lab.analyzer.controller.pid)  # a start that is cut short is not ended
        answer = await lab.http.get("/v1/intent")
        problem(answer, 400)
        assert "ovn, acme, b" in answer.json()["remedy"]
        problem(await lab.http.get("/v1/intent", params={"source": "c"}), 404)
        for source, ports in (("ovn", 0), ("acme", 1), ("b", 0)):
            told = (await lab.http.get("/v1/intent", params={"source": source})).json()
            assert (told["source"], len(told["ports"])) == (source, ports)

    pushed = {name: Pushed(clients=(name,)) for name in ("acme", "b")}
    on(tmp_path, work, controllers=Controllers(ovn=nowhere, pushed=pushed))


def test_what_was_pushed_is_held_against_hosts_and_names_their_endpoints(tmp_path):
    """A port that is plugged in and bound nowhere is a difference; a pod's name finds its end."""

    async def work(lab):
        await lab.register("gpu-0417", endpoint("gpu-0417", "train-a-0"))
        await lab.register("h1", endpoint("h1", "train-a-1"))
        placed = {"train-a-0-net1": {"chassis": ""}}
        await lab.http.put(PATH, json=WHOLE_EXAMPLE | {"placements": placed})
        [record] = lab.analyzer.registry.endpoints_of("gpu-0417")
        state = ControllerState(
            source="acme", chassis="gpu-0417", working=Working.CONNECTED,
            ports=(PluggedPort(name="train-a-0-net1", interface=record.endpoint.port),),
        )  # fmt: skip
        now_ns = lab.analyzer.clock()
        lab.analyzer.driven.take("gpu-0417", now_ns, state, now_ns)
        lab.analyzer.differed()
        await until(lambda: lab.analyzer.differing.standing)
        told = lab.analyzer.differing.standing[0]
        assert (told.finding.component.name, told.lasts) == ("port train-a-0-net1", False)
        assert told.endpoints == (record.endpoint.id,)
        asked = {"source": {"pod": "ml/train-a-0"}, "target": "train-a-1/rail0"}
        answer = (await lab.http.post("/v1/diagnose", json=asked)).json()
        assert answer["source"] == "train-a-0/rail0"
        del asked["source"]["pod"]
        asked["source"]["port"] = "train-a-0-net1"
        assert (await lab.http.post("/v1/diagnose", json=asked)).json() == answer

    on(tmp_path, work, controllers=ACME)


def test_nothing_of_it_outlives_a_restart(tmp_path):
    async def first(lab):
        await lab.http.put(PATH, json=WHOLE_EXAMPLE)

    async def second(lab):
        change = {"since": "1042", "version": "1043"}
        assert "nothing was pushed" in problem(await lab.http.patch(PATH, json=change), 409)
        assert "nothing was pushed" in (await lab.http.get("/v1/intent")).json()["away"]["intent"]

    on(tmp_path, first, controllers=ACME)
    on(tmp_path, second, controllers=ACME)


def documented():
    """Return the commands of docs/controllers.md that push, in order."""
    blocks = re.findall(r"^```\n(curl .*?)\n```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    return [command for block in blocks for command in block.split("\n\n")]


def test_the_commands_of_the_docs_do_what_they_say(tmp_path):
    """As its client types them, with certificates; curl prints what the analyzer answers."""
    assert shutil.which("curl"), "install curl"
    authority = Authority(tmp_path)
    cert, key = authority.sign("sdn-1")
    (tmp_path / "sdn-1.pem").write_text(cert.read_text() + key.read_text())
    assert authority.ca == tmp_path / "ca.pem"
    settings = re.search(r"\[controllers\.pushed\.acme\]\n.*\n.*", DOCS.read_text())[0] + "\n"
    with Process(tmp_path, authority, more=settings) as server:
        said = []
        for command in documented():
            run = command.replace("https://analyzer.example:8420", server.url)
            done = subprocess.run(
                ["bash", "-c", run], capture_output=True, text=True, cwd=tmp_path, check=False
            )
            assert done.returncode == 0, done.stderr
            said.append(json.loads(done.stdout))
    whole, change, again, kept = said
    assert (whole["version"], change["version"], again["version"]) == ("1042", "1043", "1043")
    assert (whole["ports"], change["ports"]) == (1, 2)
    assert kept["version"] == "1043"
    assert kept["ports"].keys() == {"train-a-0-net1", "train-a-1-net1"}
