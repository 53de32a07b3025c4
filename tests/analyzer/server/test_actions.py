# SPDX-License-Identifier: Apache-2.0
"""The routes of actions: who may ask, and what an analyzer that is told of incidents does."""

from dataclasses import replace

import pytest

from analyzer.actions import broker
from analyzer.actions.broker import Mode
from analyzer.actions.verbs import Verb
from analyzer.config import Actions
from netagent.model.errors import Unreachable
from netagent.model.path import Component, Kind, controller
from netagent.model.verdict import IncidentState
from netagent.wire.actions import ActionReply, HostVerb
from netagent.wire.controller import ControllerState
from tests.analyzer.certificates import Authority
from tests.analyzer.cluster import endpoint
from tests.analyzer.server.process import Process
from tests.analyzer.server.test_routes import incident, on, problem
from tests.waiting import until

ADVISE = Actions(mode=Mode.ADVISE)
ACT = Actions(mode=Mode.ACT, verbs=(Verb.RECOMPUTE,), share=1.0)
SEEN = ("ovn-controller: connected",)


class Agents:
    """Stands in for the fleet."""

    def __init__(self):
        self.asked = []

    async def act(self, host, request, *, deadline_s=50.0):
        self.asked.append((host, request))
        return ActionReply(
            host=host, verb=request.verb, done=not request.dry_run, read=SEEN, command="as read"
        )


def about(part, name="i1", state=IncidentState.CONFIRMED, **fields):
    made = incident(name, state, **fields)
    return replace(made, verdict=replace(made.verdict, component=part, layer=part.layer))


async def driven(lab, host="h1"):
    """Make `host` one that a controller drives; return who stands in for its agent."""
    lab.analyzer.acting._agents = agents = Agents()
    peer, lab.peer = lab.peer, None
    await lab.register(host, endpoint(host, f"{host}-a"))
    lab.peer = peer
    now_ns = lab.analyzer.clock()
    lab.analyzer.driven.take(host, now_ns, ControllerState(source="ovn"), now_ns)
    return agents


async def tell(lab, made):
    lab.diagnosis.change(made)
    await until(lambda: lab.analyzer.journal.get(made.id) is not None)
    await until(lambda: lab.analyzer.journal.get(made.id).state is made.state)


async def post(lab, what, status=200, **body):
    answer = await lab.http.post(f"/v1/actions/{what}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def trail(lab):
    return (await lab.http.get("/v1/actions")).json()


def test_by_default_nothing_is_proposed_shown_or_done(tmp_path, monkeypatch):
    monkeypatch.setattr(broker, "CONFIRM_NS", 0)

    async def work(lab):
        agents = await driven(lab)
        await tell(lab, about(controller("h1")))
        assert (await lab.http.get("/v1/incidents/i1")).json()["actions"] == []
        for what, body in (("dry-run", {"incident": "i1"}), ("do", {"id": "i1-00000000"})):
            answer = await lab.http.post(f"/v1/actions/{what}", json=body)
            assert "only observes" in problem(answer, 409)
        told = await trail(lab)
        assert (told["mode"], told["entries"], told["breaker"]) == ("observe", [], None)
        assert agents.asked == []

    on(tmp_path, work)


def test_an_incident_that_is_told_is_acted_upon_and_once_over_restarts(tmp_path, monkeypatch):
    monkeypatch.setattr(broker, "CONFIRM_NS", 0)

    async def before(lab):
        agents = await driven(lab)
        await tell(lab, about(controller("h1")))
        await until(lambda: lab.analyzer.acting.counts["recompute", "done"])
        [(host, request)] = agents.asked
        assert (host, request.bridge, request.dry_run) == ("h1", "br-int", False)
        metrics = (await lab.http.get("/metrics")).text
        assert 'netagent_actions_total{step="done",verb="recompute"} 1.0' in metrics
        assert "netagent_actions_breaker_open 0.0" in metrics
        await until(lambda: not lab.analyzer.acting.broker.news)  # all is written down

    async def after(lab):
        agents = await driven(lab)
        await tell(lab, about(controller("h1"), updated_ns=9))
        await tell(lab, about(controller("h1"), state=IncidentState.RECOVERED))
        await until(lambda: lab.analyzer.acting.counts["recompute", "helped"])
        entries = (await trail(lab))["entries"]
        assert [each["step"] for each in entries] == ["started", "done", "helped"]
        assert entries[0]["action"]["incident"] == "i1"
        assert agents.asked == []
        short = (await lab.http.get("/v1/actions", params={"limit": 1})).json()
        assert short["entries"] == entries[-1:]

    on(tmp_path, before, actions=ACT)
    on(tmp_path, after, actions=ACT)


def test_a_person_looks_and_does_by_the_name_in_the_certificate(tmp_path):
    async def work(lab):
        lab.peer = "anna"
        agents = await driven(lab)
        await tell(lab, about(controller("h1")))
        [offered] = (await post(lab, "dry-run", incident="i1"))["actions"]
        assert (offered["command"], offered["read"], offered["problem"]) == (
            "as read", list(SEEN), "",
        )  # fmt: skip
        [shown] = (await lab.http.get("/v1/incidents/i1")).json()["actions"]
        assert shown["id"] == offered["id"]
        assert shown["command"].endswith("inc-engine/recompute")
        assert (await post(lab, "do", id=offered["id"]))["done"]
        assert "begun before" in (await post(lab, "do", 409, id=offered["id"]))["error"]
        assert "nothing to undo" in (await post(lab, "undo", 409, id=offered["id"]))["error"]
        assert [request.dry_run for _, request in agents.asked] == [True, False]
        assert {request.by for _, request in agents.asked} == {"anna"}
        [started, _] = (await trail(lab))["entries"]
        assert (started["step"], started["by"]) == ("started", "anna")
        await post(lab, "dry-run", 404, incident="i2")

    on(tmp_path, work, actions=ADVISE, admins=("anna",))


def test_the_breaker_is_shown_and_closed_by_a_person(tmp_path):
    async def work(lab):
        lab.analyzer.acting.broker.opened = "recompute on h1 failed: timeout"
        lab.peer = "anna"
        assert (await trail(lab))["breaker"] == "recompute on h1 failed: timeout"
        assert "netagent_actions_breaker_open 1.0" in (await lab.http.get("/metrics")).text
        was = (await post(lab, "close", why="restarted it"))["was"]
        assert was == "recompute on h1 failed: timeout"
        told = await trail(lab)
        assert told["breaker"] is None
        assert (told["entries"][-1]["by"], told["entries"][-1]["text"]) == ("anna", "restarted it")
        assert (await post(lab, "close"))["was"] is None

    on(tmp_path, work, actions=ACT, admins=("anna",))


@pytest.mark.parametrize("peer", ["h1", "h2", "grafana", "tenant", ""])
def test_nobody_but_administrators_has_anything_done(tmp_path, peer):
    async def work(lab):
        lab.peer = peer
        agents = await driven(lab)
        await tell(lab, about(controller("h1"), tasks=("train-a",)))
        for what, body in (
            ("dry-run", {"incident": "i1"}),
            ("do", {"id": "i1-00000000"}),
            ("undo", {"id": "i1-00000000"}),
            ("close", {}),
        ):
            assert "names" in problem(await lab.http.post(f"/v1/actions/{what}", json=body), 403)
        reads = peer == "grafana"
        assert (await lab.http.get("/v1/actions")).status_code == (200 if reads else 403)
        shown = await lab.http.get("/v1/incidents/i1")
        if shown.status_code == 200:
            assert bool(shown.json()["actions"]) == reads
        assert agents.asked == []

    on(
        tmp_path, work, actions=ADVISE, admins=("anna",), readers=("grafana",),
        tenants={"tenant": ("train-a",)},
    )  # fmt: skip


def test_a_web_page_has_nothing_done(tmp_path):
    """It can send forms unasked, but no JSON."""

    async def work(lab):
        await driven(lab)
        for what in ("do", "undo", "close", "dry-run"):
            for form in ("text/plain", "application/x-www-form-urlencoded"):
                answer = await lab.http.post(
                    f"/v1/actions/{what}", content="{}", headers={"content-type": form}
                )
                assert answer.status_code == 415

    on(tmp_path, work, actions=ADVISE)


@pytest.mark.parametrize("odd", ["../../etc/passwd", "i1-../..", "", "x" * 100_000, "i1-0000000g"])
def test_an_id_that_is_none_is_refused(tmp_path, odd):
    async def work(lab):
        agents = await driven(lab)
        await tell(lab, about(controller("h1")))
        assert "no such action" in (await post(lab, "do", 409, id=odd))["error"]
        assert "nothing to undo" in (await post(lab, "undo", 409, id=odd))["error"]
        assert agents.asked == []

    on(tmp_path, work, actions=ADVISE)


def test_what_a_host_names_oddly_is_in_no_command(tmp_path):
    async def work(lab):
        await driven(lab)
        await tell(lab, about(Component(Kind.HOST, "h1;reboot")))
        assert (await lab.http.get("/v1/incidents/i1")).json()["actions"] == []

    on(tmp_path, work, actions=ADVISE)


def test_a_host_that_does_not_answer_is_told(tmp_path):
    async def work(lab):
        agents = await driven(lab)

        async def away(host, request, *, deadline_s=1.0):
            raise Unreachable(host, "timeout")

        agents.act = away
        await tell(lab, about(controller("h1")))
        [offered] = (await post(lab, "dry-run", incident="i1"))["actions"]
        assert offered["problem"] == "h1: timeout"
        answer = await post(lab, "do", 409, id=offered["id"])
        assert answer["error"] == "not done: h1: timeout"
        assert HostVerb.RECOMPUTE in (await trail(lab))["breaker"]

    on(tmp_path, work, actions=ADVISE)


def test_over_tls_another_hosts_certificate_has_nothing_done(tmp_path):
    authority = Authority(tmp_path)
    more = 'admins = ["ops"]\n[actions]\nmode = "act"\nverbs = ["recompute"]\n'
    with Process(tmp_path, authority, more=more) as serving:
        for name, status in (("h0", 403), ("analyzer", 403), ("ops", 409)):
            with serving.client(authority.client(name)) as client:
                for what in ("do", "undo"):
                    answer = client.post(f"/v1/actions/{what}", json={"id": "i1-00000000"})
                    assert answer.status_code == status
        with serving.client(authority.client("ops")) as client:
            told = client.get("/v1/actions").json()
        assert (told["mode"], told["verbs"], told["entries"]) == ("act", ["recompute"], [])
