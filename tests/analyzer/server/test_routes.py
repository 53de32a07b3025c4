# SPDX-License-Identifier: Apache-2.0
"""The routes, called without sockets; the diagnosis is a stand-in that records and plays."""

import asyncio
import contextlib
import io
import time

import duckdb
import httpx
import msgpack
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.config import Config, Controllers, Kubernetes, Pushed, Recording, Tasks
from analyzer.diagnosis.engine import IncidentChanged
from analyzer.replay.player import play, read
from analyzer.roster.admission import BURST_BYTES
from analyzer.server import analyzer as server
from analyzer.server import clock
from analyzer.server.analyzer import Analyzer
from analyzer.server.identity import PEER
from analyzer.server.judge import BACKLOG_BYTES
from analyzer.server.routes import application
from analyzer.skeleton import recording
from netagent.model.endpoint import EndpointState
from netagent.model.errors import CapabilityMissing, RemoteProtocolError
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, Layer
from netagent.model.pinglist import PingList
from netagent.model.task import Task
from netagent.model.verdict import Incident, IncidentState, Pair, Symptom, Verdict
from netagent.probing.roster import Roster
from netagent.wire.codec import MAX_BODY_BYTES, ContentType, decode, encode
from netagent.wire.messages import Accepted, Health, Registered, Summary, TrafficBlock
from netagent.wire.roster import MAX_FOLLOW_BYTES, Follow, Update
from tests.analyzer.cluster import SECOND, endpoint, registration
from tests.analyzer.server.direct import Direct
from tests.waiting import until

SPINE = Component(Kind.SWITCH, "spine-0")

MSGPACK = {"content-type": "application/msgpack", "accept": "application/msgpack"}


def incident(name="i1", state=IncidentState.OPEN, **fields):
    pair = Pair(EndpointId("a0", 0), EndpointId("a1", 0), 10, 9)
    verdict = Verdict(SPINE, Layer.UNDERLAY, Symptom.LOSS, 0.9, "spine-0 loses", failing=(pair,))
    values = {"detected_ns": 1, "localized_ns": 2, "updated_ns": 3, **fields}
    return Incident(name, state, verdict, **values)


class Diagnosis:
    """A diagnosis whose incidents the test sets."""

    def __init__(self, *_):
        self.seen, self.restored, self.events = [], [], []
        self.fail, self.steps = None, 0
        self.refusals, self.stood = 0, 0

    def restore(self, incidents, now_ns):
        self.restored = incidents

    flows = routes = 1 << 30  # too many to write its state down
    judging = False

    def baselines(self):
        return None

    def refused(self, now_ns):
        self.refusals += 1

    def stood_still(self, now_ns):
        self.stood += 1

    def arriving(self, since_ns, now_ns):
        pass

    def begin(self, now_ns):
        self.began = True

    def decoded(self, coming):
        return [None] * len(coming)

    def ingest(self, summary, now_ns, taken=None, *, may_wait=False):
        if self.fail:
            raise self.fail
        self.seen.append((summary.host, summary.start_ns, now_ns))

    def step(self, now_ns):
        self.steps += 1
        if self.fail:
            raise self.fail
        return []

    def deadline(self):
        return 0  # always something to do

    def next_event(self):
        return self.events.pop(0) if self.events else None

    def change(self, *incidents):
        self.events += map(IncidentChanged, incidents)

    def findings(self):
        return [Finding(FindingKind.RNIC_DOWN, Component(Kind.RNIC, "h0/rnic0"), "no carrier", 5)]

    def topology(self):
        return {"links": [["leaf-0", "spine-0"]]}

    def diagnose(self, source, target, *, layers=False, service=None):
        yield from ()
        if self.fail:
            raise self.fail
        outcome = "inconsistent" if layers else "delivered"
        return {"source": str(source), "target": str(target), "outcome": outcome}


class Lab:
    """An analyzer and a client that shows the certificate of `peer`."""

    def __init__(self, analyzer, diagnosis=None, judge=None):
        self.analyzer, self.diagnosis, self.judge = analyzer, diagnosis, judge
        self.peer = None
        app = application(analyzer)

        async def identified(scope, receive, send):
            scope["state"] = {PEER: self.peer}
            await app(scope, receive, send)

        transport = httpx.ASGITransport(identified, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def register(self, *args, **fields):
        message = registration(*args, **fields)
        answer = await self.http.put(
            f"/v1/hosts/{message.host}/endpoints", content=encode(message), headers=MSGPACK
        )
        assert answer.status_code == 200, answer.text
        return decode(answer.content, Registered)

    async def pinglist(self, host):
        """Return the list of `host`, whole."""
        answer = await self.http.get(f"/v1/hosts/{host}/pinglist", headers=MSGPACK)
        return decode(answer.content, PingList)

    async def follow(self, roster, host, wait_s=0):
        """Let an agent ask once; return the status."""
        answer = await self.http.post(
            f"/v1/hosts/{host}/pinglist", content=encode(roster.asks(wait_s)), headers=MSGPACK
        )
        if answer.status_code == 200:
            roster.take(decode(answer.content, Update))
        return answer.status_code

    async def push(self, host="h0", start_ns=5 * SECOND, **fields):
        message = Summary(
            host=host, instance="one", start_ns=start_ns, width_ns=5 * SECOND, **fields
        )
        return await self.http.post("/v1/summaries", content=encode(message), headers=MSGPACK)

    async def push_traffic(self, host, container, start_s, sent):
        block = TrafficBlock(
            start_ns=start_s * SECOND,
            tick_ns=SECOND,
            endpoint=b"\0\0",
            sent=b"".join(value.to_bytes(8, "little") for value in sent),
        )
        message = Summary(
            host=host,
            instance="one",
            start_ns=start_s * SECOND,
            width_ns=5 * SECOND,
            endpoints=(EndpointId(container, 0),),
            traffic=(block,),
        )
        await self.http.post("/v1/summaries", content=encode(message), headers=MSGPACK)

    async def events(self, after=None):
        query = {"wait_s": 10} if after is None else {"wait_s": 10, "after": after}
        return (await self.http.get("/v1/incidents/events", params=query)).json()


@contextlib.asynccontextmanager
async def running(folder, **fields):
    config = Config(database=str(folder / "netagent.duckdb"), **fields)
    diagnosis = Diagnosis()
    judge = Direct(time.time_ns, diagnosis)
    analyzer = await Analyzer.start(config, "analyzer.toml", open_link=judge.open)
    await judge.all_taken()
    try:
        yield Lab(analyzer, diagnosis, judge)
    finally:
        await analyzer.stop()


def on(folder, work, **fields):
    """Run `work(lab)` against an analyzer whose database lies in `folder`."""

    async def inside():
        async with asyncio.timeout(60), running(folder, **fields) as lab:
            return await work(lab)

    return asyncio.run(inside())


def problem(answer, status):
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error", "remedy"}
    assert body["remedy"]
    return body["error"]


# --- agents ---------------------------------------------------------------------------------------


def test_agents_register_and_get_their_lists_in_either_form(tmp_path):
    async def work(lab):
        await lab.register("h0", endpoint("h0", "a0"))
        registered = await lab.register("h1", endpoint("h1", "a1"))
        roster = Roster("h1")
        assert await lab.follow(roster, "h1") == 200
        assert registered.sources == roster.sources
        assert [str(t.target) for t in roster.pinglist().targets] == ["a0/rail0"]
        assert await lab.pinglist("h1") == roster.pinglist()
        plain = await lab.http.get("/v1/hosts/h1/pinglist")
        assert decode(plain.content, PingList, ContentType.JSON) == roster.pinglist()
        as_json = await lab.http.put(
            "/v1/hosts/h1/endpoints",
            content=encode(registration("h1", endpoint("h1", "a1")), ContentType.JSON),
            headers={"content-type": "application/json; charset=utf-8"},
        )
        assert decode(as_json.content, Registered, ContentType.JSON) == registered
        await lab.push(health=Health(answered=3), endpoints=(EndpointId("a0", 0),), stamps=b"\2")
        agents = (await lab.http.get("/v1/agents")).json()["agents"]
        assert [(a["host"], a["silent_ms"] < 10_000) for a in agents] == [
            ("h0", True),
            ("h1", True),
        ]
        assert [a["health"] and a["health"]["answered"] for a in agents] == [3, None]
        endpoints = (await lab.http.get("/v1/endpoints")).json()["endpoints"]
        assert {e["id"]: e["stamps"] for e in endpoints} == {"a0/rail0": "rnic", "a1/rail0": None}

    on(tmp_path, work)


def test_a_long_poll_ends_when_the_list_changes_and_not_before(tmp_path):
    async def work(lab):
        await lab.register("h0", endpoint("h0", "a0"))
        roster = Roster("h0")
        assert await lab.follow(roster, "h0") == 200
        poll = asyncio.create_task(lab.follow(roster, "h0", wait_s=15))
        await until(lambda: len(lab.analyzer.waiters))
        await lab.register("h2", endpoint("h2", "b2", task="other"))
        assert not poll.done()
        await lab.register("h1", endpoint("h1", "a1"))
        assert await poll == 200
        assert len(roster.pinglist().targets) == 1

    on(tmp_path, work)


def test_who_registers_hears_of_its_own_list_at_once(tmp_path):
    async def work(lab):
        await lab.http.put("/v1/tasks/job", json={"containers": ["a0", "a1"], "rails": [0]})
        await lab.register("h0", endpoint("h0", "a0"))
        roster = Roster("h1")
        poll = asyncio.create_task(lab.follow(roster, "h1", wait_s=15))
        await until(lambda: len(lab.analyzer.waiters))
        registered = await lab.register("h1", endpoint("h1", "a1"))
        assert await poll == 200
        assert roster.sources == registered.sources
        assert [peer.host for peer in roster.peers()] == ["h0"]

    on(tmp_path, work)


def test_a_list_is_answered_at_once_when_what_the_agent_has_is_another(tmp_path):
    async def work(lab):
        await lab.register("h0", endpoint("h0", "a0"))
        await lab.register("h1", endpoint("h1", "a1"))
        roster = Roster("h1")
        assert await lab.follow(roster, "h1", wait_s=15) == 200
        assert await lab.follow(roster, "h1") == 204
        for asked in ({"version": 3}, {"version": roster.pinglist().version, "groups": []}):
            answer = await lab.http.post("/v1/hosts/h1/pinglist", json={**asked, "wait_s": 15})
            assert answer.json()["version"] == roster.pinglist().version
        for bad in ({"wait_s": 1e9}, {"schema": 99}):
            problem(await lab.http.post("/v1/hosts/h1/pinglist", json=bad), 400)
        assert len(lab.analyzer.waiters) == 0

    on(tmp_path, work)


def test_a_later_question_of_a_host_ends_the_earlier_one(tmp_path):
    async def work(lab):
        roster = Roster("h0")
        first = asyncio.create_task(lab.follow(roster, "h0", wait_s=15))
        await until(lambda: len(lab.analyzer.waiters) == 1)
        second = asyncio.create_task(lab.follow(roster, "h0", wait_s=15))
        assert await first == 204
        assert not second.done()
        await lab.register("h0", endpoint("h0", "a0"))
        assert await second == 200
        assert lab.analyzer.following == {}
        large = {"tasks": [["t" * MAX_FOLLOW_BYTES, "", ""]]}
        problem(await lab.http.post("/v1/hosts/h0/pinglist", json=large), 400)

    on(tmp_path, work)


def test_long_polls_do_not_hold_a_stop(tmp_path):
    async def work(lab):
        roster = Roster("h0")
        polls = [
            asyncio.create_task(lab.follow(roster, "h0", wait_s=15)),
            asyncio.create_task(lab.events(after=2**62)),
        ]
        await until(lambda: len(lab.analyzer.waiters) == 2)
        lab.analyzer.waiters.stop()
        assert await asyncio.gather(*polls) == [204, {"next": 2**62, "events": [], "warnings": []}]
        assert await lab.follow(roster, "h0", wait_s=15) == 204

    on(tmp_path, work)


def test_a_summary_is_taken_once_and_handed_on(tmp_path):
    async def work(lab):
        first, again = await lab.push(), await lab.push()
        assert not decode(first.content, Accepted).duplicate
        assert decode(again.content, Accepted).duplicate
        await until(lambda: lab.diagnosis.seen)
        assert [seen[:2] for seen in lab.diagnosis.seen] == [("h0", 5 * SECOND)]

    on(tmp_path, work)


@pytest.mark.parametrize("error", [RemoteProtocolError, ZeroDivisionError])
def test_a_summary_that_the_diagnosis_cannot_use_is_stored_and_counted(tmp_path, error):
    async def work(lab):
        lab.diagnosis.fail = error("odd columns")
        assert (await lab.push()).status_code == 200
        await until(lambda: lab.analyzer.counters.bad_summaries == 1)
        assert (await lab.analyzer.store.usage())[0] == 1

    on(tmp_path, work)


def test_a_bug_in_what_the_analyzer_keeps_does_not_refuse_what_is_stored(tmp_path):
    async def work(lab):
        lab.analyzer.traffic.add = lambda *_: 1 / 0
        assert (await lab.push()).status_code == 200
        assert lab.analyzer.counters.bad_summaries == 1

    on(tmp_path, work)


def test_a_summary_is_refused_while_too_much_waits_to_be_judged(tmp_path):
    async def work(lab):
        await lab.register("h0", endpoint("h0", "a0"))
        lab.judge.backlog_bytes = BACKLOG_BYTES + 1
        assert "judging" in problem(await lab.push(), 503)
        await until(lambda: lab.diagnosis.refusals)
        assert lab.analyzer.registry.agent("h0").last_window_ns == 5 * SECOND
        assert (await lab.analyzer.store.usage())[0] == 0
        told = (await lab.http.get("/v1/status")).json()
        assert told["judge"]["backlog_bytes"] == BACKLOG_BYTES + 1
        assert told["counters"]["refused_summaries"] == 1
        lab.judge.backlog_bytes = BACKLOG_BYTES
        assert (await lab.push()).status_code == 200

    on(tmp_path, work)


def test_a_restart_knows_registry_tasks_lists_and_the_latest_summaries(tmp_path):
    async def before(lab):
        await lab.register("h0", endpoint("h0", "a0"))
        await lab.register("h1", endpoint("h1", "a1"))
        version = (await lab.pinglist("h1")).version
        await lab.push()
        await lab.http.put("/v1/tasks/job", json={"containers": ["a0"], "rails": [0]})
        listing = [(await lab.http.get(f"/v1/{what}")).json() for what in ("endpoints", "tasks")]
        return version, lab.diagnosis.seen, listing

    async def after(lab):
        pinglist = (await lab.http.get("/v1/hosts/h1/pinglist")).json()
        listing = [(await lab.http.get(f"/v1/{what}")).json() for what in ("endpoints", "tasks")]
        return pinglist, lab.diagnosis.seen, listing

    version, seen, listing = on(tmp_path, before)
    pinglist, replayed, again = on(tmp_path, after)
    assert seen == replayed
    assert listing == again
    assert pinglist["version"] != version  # a0 went over to the declared task meanwhile
    assert pinglist["targets"] == []


def test_a_database_that_cannot_be_read_leaves_a_status(tmp_path):
    async def work(lab):
        async def refuse():
            raise CapabilityMissing("database", "no space")

        assert (await lab.http.get("/v1/status")).json()["summaries_kept"] == 0
        lab.analyzer.store.usage = refuse
        told = (await lab.http.get("/v1/status")).json()
        assert (told["summaries_kept"], told["stood_still"]) == (None, 0)

    on(tmp_path, work)


def test_a_summary_that_the_disk_refuses_is_counted_and_the_diagnosis_hears_of_it(tmp_path):
    async def work(lab):
        async def refuse(*_):
            raise CapabilityMissing("database", "no space")

        await lab.register("h0", endpoint("h0", "a0"))
        lab.analyzer.store.put = refuse
        problem(await lab.push(), 503)
        await until(lambda: lab.diagnosis.refusals)
        assert lab.diagnosis.refusals == lab.analyzer.counters.refused_summaries == 1
        assert lab.analyzer.registry.agent("h0").last_window_ns == 5 * SECOND
        assert "netagent_refused_summaries_total 1.0" in (await lab.http.get("/metrics")).text
        del lab.analyzer.store.put
        assert (await lab.push()).status_code == 200
        assert lab.analyzer.disk.takes

    on(tmp_path, work)


# --- tasks ----------------------------------------------------------------------------------------


def test_a_task_is_declared_listed_and_withdrawn(tmp_path):
    async def work(lab):
        body = {"containers": ["a0", "a1"], "rnics_per_container": 2, "rails": [0, 1]}
        put = await lab.http.put("/v1/tasks/train-a", json=body)
        assert put.json()["endpoints_expected"] == 4
        await lab.register("h0", endpoint("h0", "a0", task=""))
        listed = (await lab.http.get("/v1/tasks")).json()["tasks"]
        assert [(t["id"], t["endpoints_registered"]) for t in listed] == [("train-a", 1)]
        crashed = endpoint("h0", "a0", task="", state=EndpointState.CRASHED)
        await lab.register("h0", crashed, endpoint("h0", "a1", task=""))
        (told,) = (await lab.http.get("/v1/tasks")).json()["tasks"]
        assert (told["endpoints_registered"], told["endpoints_up"]) == (2, 1)
        assert (await lab.http.get("/v1/tasks/train-a")).json()["declared"]
        taken = await lab.http.put("/v1/tasks/other", json={"containers": ["a1"]})
        assert "train-a" in problem(taken, 409)
        assert (await lab.http.delete("/v1/tasks/train-a")).json()["known"]
        assert not (await lab.http.delete("/v1/tasks/train-a")).json()["known"]
        problem(await lab.http.get("/v1/tasks/train-a"), 404)

    on(tmp_path, work)


def test_what_kubernetes_declares_is_shown_and_changed_there_alone(tmp_path):
    async def work(lab):
        theirs = Task("ml.bert", ("ml.b-0", "ml.b-1"), declared=True, source="kubernetes")
        await lab.analyzer.service.put_task(theirs, 1)
        assert (await lab.http.get("/v1/tasks/ml.bert")).json()["source"] == "kubernetes"
        for answer in (
            await lab.http.put("/v1/tasks/ml.bert", json={"containers": ["x"]}),
            await lab.http.put("/v1/tasks/mine", json={"containers": ["ml.b-1"]}),
            await lab.http.delete("/v1/tasks/ml.bert"),
        ):
            assert problem(answer, 409) == "task ml.bert is declared by kubernetes"
        assert lab.analyzer.registry.task("ml.bert") == theirs

    on(tmp_path, work, controllers=Controllers(kubernetes=Kubernetes(url="http://127.0.0.1:1")))


def test_what_a_restart_cannot_read_is_set_aside_counted_and_stops_nothing(tmp_path):
    async def before(lab):
        await lab.register("h0", endpoint("h0", "a0"))
        await lab.push()
        await lab.analyzer.store.put(("h0", 1, 0), time.time_ns(), b"no summary")

    async def after(lab):
        status = (await lab.http.get("/v1/status")).json()
        assert (status["agents"], status["tasks"], status["rows_set_aside"]) == (1, 1, 1)
        assert status["counters"]["replayed"] == status["counters"]["unreadable_summaries"] == 1
        metrics = (await lab.http.get("/metrics")).text.splitlines()
        assert "netagent_rows_set_aside 1.0" in metrics
        assert "netagent_unreadable_summaries_total 1.0" in metrics

    on(tmp_path, before)
    with duckdb.connect(tmp_path / "netagent.duckdb") as connection:
        connection.execute("INSERT INTO tasks VALUES ('t', '{')")
    on(tmp_path, after)


def test_a_wall_clock_that_is_set_is_told_and_followed_where_no_host_knows_better(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(server, "TIME_S", 0.001)

    async def work(lab):
        lab.analyzer.steady._ahead_ns -= 90 * SECOND
        status = (await lab.http.get("/v1/status")).json()
        assert status["wall_clock_off_ns"] == pytest.approx(90 * SECOND, rel=0.01)
        [warning] = (await lab.http.get("/v1/incidents")).json()["warnings"]
        assert warning.startswith("its wall clock is off by 90 s")
        lines = (await lab.http.get("/metrics")).text.splitlines()
        [off] = [each for each in lines if each.startswith("netagent_wall_clock_off_seconds ")]
        assert float(off.split()[1]) == pytest.approx(90, rel=0.01)
        before = lab.diagnosis.stood
        monkeypatch.setattr(clock, "ALONE_NS", 0)
        await until(lambda: lab.diagnosis.stood > before)
        assert lab.analyzer.steady.off_ns == 0
        assert (await lab.http.get("/v1/incidents")).json()["warnings"] == []

    on(tmp_path, work)


def test_a_declared_container_that_never_came_is_listed_with_its_task_also_after_a_restart(
    tmp_path,
):
    tasks = Tasks(missing_after_s=1)

    async def before(lab):
        await lab.http.put("/v1/tasks/job", json={"containers": ["a0", "a1"], "rails": [0]})
        at_once = (await lab.http.get("/v1/tasks/job")).json()
        await lab.register("h0", endpoint("h0", "a0", task=""))
        lab.analyzer.clock = lambda: time.time_ns() + 2 * SECOND
        return at_once["missing"], (await lab.http.get("/v1/tasks/job")).json()["missing"]

    async def after(lab):
        await lab.register("h0", generation=2)
        lab.analyzer.clock = lambda: time.time_ns() + 2 * SECOND
        listed = (await lab.http.get("/v1/tasks")).json()["tasks"]
        return listed[0]["missing"]

    at_once, ((missing),) = on(tmp_path, before, tasks=tasks)
    assert at_once == []
    assert missing["container"] == "a1"
    assert on(tmp_path, after, tasks=tasks) == [missing]  # a0 was there, and went in order


def test_a_declared_parallelism_must_fit_the_task_and_an_opt_out_is_kept(tmp_path):
    job = {"dp": 2, "pp": 1, "tp": 2, "ep": 1}
    body = {"containers": ["a0", "a1"], "rails": [0, 1], "skeleton": False}

    async def before(lab):
        odd = await lab.http.put("/v1/tasks/t", json=body | {"parallelism": job | {"pp": 2}})
        assert "takes 8 ranks, the task has 4" in problem(odd, 400)
        put = await lab.http.put("/v1/tasks/t", json=body | {"parallelism": job})
        return put.json()

    async def after(lab):
        return (await lab.http.get("/v1/tasks/t")).json()

    declared = on(tmp_path, before)
    assert (declared["skeleton"], declared["parallelism"]) == (False, job)
    assert on(tmp_path, after) == declared


def test_a_declaration_may_say_on_which_host_each_container_runs(tmp_path):
    body = {"containers": ["a0", "a1"], "rails": [0]}

    async def before(lab):
        odd = await lab.http.put("/v1/tasks/t", json=body | {"hosts": ["h0"]})
        assert "1 hosts for 2 containers" in problem(odd, 400)
        odd = await lab.http.put("/v1/tasks/t", json=body | {"hosts": ["h0", "../h1"]})
        assert "can name no host" in problem(odd, 400)
        return (await lab.http.put("/v1/tasks/t", json=body | {"hosts": ["h0", ""]})).json()

    async def after(lab):
        return (await lab.http.get("/v1/tasks/t")).json()

    assert on(tmp_path, before)["hosts"] == ["h0", ""]
    assert on(tmp_path, after)["hosts"] == ["h0", ""]


def test_what_is_probed_and_why_is_told_of_every_task(tmp_path):
    async def work(lab):
        problem(await lab.http.get("/v1/tasks/t/skeleton"), 404)
        await lab.http.put("/v1/tasks/t", json={"containers": ["a0"], "rails": [0]})
        lab.analyzer.skeletons.refresh(lab.analyzer.clock())
        told = (await lab.http.get("/v1/tasks/t/skeleton")).json()
        assert (told["list"], told["reason"]) == ("basic", "0 of 1 endpoints are up")
        assert (await lab.http.get("/v1/tasks/t")).json()["list"] == "basic"
        metrics = (await lab.http.get("/metrics")).text
        assert 'netagent_tasks{list="basic"} 1.0' in metrics

    on(tmp_path, work)


def test_what_a_task_sent_is_a_recording(tmp_path):
    async def work(lab):
        await lab.register("h0", endpoint("h0", "a0"))
        await lab.register("h1", endpoint("h1", "a1"))
        problem(await lab.http.get("/v1/tasks/train-a/traffic"), 404)
        lab.peer = "h0"
        problem(await lab.http.get("/v1/tasks/train-a/traffic"), 403)
        lab.peer = None
        start = lab.analyzer.clock() // SECOND // 5 * 5 - 30
        for number in (0, 1):
            await lab.push_traffic(f"h{number}", f"a{number}", start, [number + 1] * 10)
        await until(lambda: lab.analyzer.skeletons.plan("train-a"))
        answer = await lab.http.get("/v1/tasks/train-a/traffic", params={"tick_ms": 1000})
        series = recording.unpack(answer.content)
        assert series.names == ("a0/rail0", "a1/rail0")
        assert series.rate.tolist() == [[1] * 10, [2] * 10]
        problem(await lab.http.get("/v1/tasks/train-a/traffic", params={"tick_ms": 100}), 404)

    on(tmp_path, work)


def test_an_acknowledgement_tells_when_a_summary_came_and_was_answered(tmp_path):
    async def work(lab):
        before = lab.analyzer.clock()
        accepted = decode((await lab.push()).content, Accepted)
        after = lab.analyzer.clock()
        assert before <= accepted.received_ns <= accepted.replied_ns <= after

    on(tmp_path, work)


def test_endpoints_are_listed_by_task_and_host_with_those_that_vanished_on_request(tmp_path):
    async def work(lab):
        await lab.register("h0", endpoint("h0", "a0"), endpoint("h0", "b0", task="train-b"))
        await lab.register("h1", endpoint("h1", "a1"), endpoint("h1", "b0", task="train-b"))
        await lab.register("h1", endpoint("h1", "b0", task="train-b"), generation=2)

        async def listed(query):
            answer = (await lab.http.get(f"/v1/endpoints{query}")).json()
            return [(e["id"], e["host"], e["state"]) for e in answer["endpoints"]]

        assert await listed("?task=train-b") == [("b0/rail0", "h0", "up")]
        assert await listed("?host=h0") == [("a0/rail0", "h0", "up"), ("b0/rail0", "h0", "up")]
        assert ("a1/rail0", "h1", "gone") in await listed("?vanished=true")
        [conflict] = (await lab.http.get("/v1/endpoints")).json()["conflicts"]
        assert (conflict["endpoint"], conflict["winner"]) == ("b0/rail0", "h0")
        assert "netagent_claims_refused_total 1.0" in (await lab.http.get("/metrics")).text

    on(tmp_path, work)


def test_a_host_that_left_is_forgotten(tmp_path):
    async def work(lab):
        await lab.register("h0", endpoint("h0", "a0"))
        assert (await lab.http.delete("/v1/hosts/h0")).json() == {"host": "h0", "known": True}
        assert (await lab.http.get("/v1/agents")).json()["agents"] == []

    on(tmp_path, work)


# --- who may --------------------------------------------------------------------------------------


def test_an_agent_speaks_for_its_own_host_and_declares_nothing(tmp_path):
    async def work(lab):
        lab.peer = "h0"
        await lab.register("h0", endpoint("h0", "a0"))
        assert (await lab.push("h0")).status_code == 200
        assert "h0" in problem(await lab.push("h1"), 403)
        body = encode(registration("h1"))
        for path in ("h1", "h0"):
            answer = await lab.http.put(
                f"/v1/hosts/{path}/endpoints", content=body, headers=MSGPACK
            )
            problem(answer, 403 if path == "h1" else 400)
        problem(await lab.http.put("/v1/tasks/t", json={"containers": []}), 403)
        problem(await lab.http.delete("/v1/tasks/t"), 403)
        problem(await lab.http.delete("/v1/hosts/h0"), 403)
        problem(await lab.http.get("/v1/endpoints"), 403)
        assert lab.analyzer.registry.agent("h1") is None

    on(tmp_path, work)


@pytest.mark.parametrize("name", ["admin", "prometheus", "tenant-a", "sdn-1"])
def test_who_reads_or_says_what_should_be_is_no_host(tmp_path, name):
    """One authority signs for all: else a tenant would take a container, and hear of peers."""

    async def work(lab):
        lab.peer, host = name, f"/v1/hosts/{name}"
        body = encode(registration(name, endpoint(name, "a0")))
        asked = [
            await lab.http.put(f"{host}/endpoints", content=body, headers=MSGPACK),
            await lab.http.post(f"{host}/pinglist", content=encode(Follow()), headers=MSGPACK),
            await lab.push(name),
            await lab.http.post(f"{host}/certificate", json={"request": "x"}),
        ]
        for answer in asked:
            assert "is no host" in problem(answer, 403)
        assert lab.analyzer.registry.agent(name) is None

    controllers = Controllers(pushed={"sdn": Pushed(clients=("sdn-1",))})
    readers, tenants = ("prometheus",), {"tenant-a": ("a-*",)}
    on(tmp_path, work, readers=readers, tenants=tenants, controllers=controllers)


def test_a_host_asks_for_no_more_than_it_may_send(tmp_path):
    """What is refused, or makes no sense, or is made for it, costs as what it delivers."""

    async def work(lab):
        lab.analyzer.monotonic = lambda: 0
        await lab.register("h1", endpoint("h1", "a1"))
        await lab.register("h0", *(endpoint("h0", f"b{n}") for n in range(100)))
        for name in ("h0", "h1", "admin"):
            lab.analyzer.admission.take(name, BURST_BYTES - (110 << 10), 0)
        asked, headers = encode(Follow()), {"content-type": "application/json"}
        for peer, host, status in (("h1", "h1", 200), ("h0", "h0", 503), ("admin", "h0", 503)):
            lab.peer = peer
            path = f"/v1/hosts/{host}/pinglist"
            assert (await lab.http.get(path)).status_code == status
        lab.peer = "h0"
        lab.analyzer.admission.take("h0", 90 << 10, 0)
        post = [await lab.http.post(path, content=asked, headers=MSGPACK) for _ in range(2)]
        assert [each.status_code for each in post] == [200, 503]
        path = "/v1/hosts/h0/endpoints"
        odd = [await lab.http.put(path, content=b"[" * 4000, headers=headers) for _ in range(2)]
        assert [each.status_code for each in odd] == [400, 503]

    on(tmp_path, work)


def test_what_a_host_registers_counts_by_endpoint(tmp_path):
    async def work(lab):
        lab.analyzer.monotonic = lambda: 0
        lab.peer = "h0"
        lab.analyzer.admission.take("h0", BURST_BYTES - (150 << 10), 0)
        held = [endpoint("h0", f"b{n}") for n in range(100)]
        for generation, status in ((1, 200), (2, 503)):
            body = encode(registration("h0", *held, generation=generation))
            put = await lab.http.put("/v1/hosts/h0/endpoints", content=body, headers=MSGPACK)
            assert (len(body) < 30 << 10, put.status_code) == (True, status)
        assert lab.analyzer.registry.agent("h0").generation == 1

    on(tmp_path, work)


def test_admins_are_whom_the_configuration_names(tmp_path):
    async def work(lab):
        for lab.peer, status in (("admin", 403), ("scheduler", 200), ("", 403)):
            put = await lab.http.put("/v1/tasks/t", json={"containers": []})
            assert put.status_code == status
        lab.peer = "scheduler"
        problem(await lab.push("h0"), 403)

    on(tmp_path, work, admins=("scheduler",))


# --- incidents ------------------------------------------------------------------------------------


def test_incidents_are_announced_stored_and_kept_over_a_restart(tmp_path):
    async def before(lab):
        start = await lab.events()
        assert start["events"] == []
        poll = asyncio.create_task(lab.events(start["next"]))
        lab.diagnosis.change(incident())
        opened = await poll
        assert [e["event"] for e in opened["events"]] == ["opened"]
        assert opened["events"][0]["incident"]["component"] == "switch spine-0"
        lab.diagnosis.change(incident(state=IncidentState.CONFIRMED, updated_ns=7))
        confirmed = await lab.events(opened["next"])
        assert [e["event"] for e in confirmed["events"]] == ["confirmed"]
        both = await lab.events(start["next"])
        assert [e["event"] for e in both["events"]] == ["opened", "confirmed"]
        return confirmed["next"]

    async def after(lab):
        assert [i.id for i in lab.diagnosis.restored] == ["i1"]
        assert (await lab.events())["next"] > seq
        shown = (await lab.http.get("/v1/incidents/i1")).json()
        assert (shown["state"], shown["layer"]) == ("confirmed", "underlay")
        assert shown["failing"] == [
            {"source": "a0/rail0", "target": "a1/rail0", "sent": 10, "lost": 9}
        ]

    seq = on(tmp_path, before)
    on(tmp_path, after)


def test_incidents_are_listed_by_state_and_time(tmp_path):
    async def work(lab):
        seq = (await lab.events())["next"]
        lab.diagnosis.change(
            incident("i1", IncidentState.RECOVERED, detected_ns=1, updated_ns=5, recovered_ns=5),
            incident("i2", IncidentState.CONFIRMED, detected_ns=2, updated_ns=9),
            incident("i3", IncidentState.OPEN, detected_ns=3, updated_ns=3),
        )
        await lab.events(seq)

        async def listed(**query):
            answer = await lab.http.get("/v1/incidents", params=query)
            return [i["id"] for i in answer.json()["incidents"]]

        assert await listed() == ["i3", "i2", "i1"]
        assert await listed(state="active") == ["i3", "i2"]
        assert await listed(state="recovered") == ["i1"]
        assert await listed(since=5) == ["i2", "i1"]
        problem(await lab.http.get("/v1/incidents?state=bad"), 400)
        problem(await lab.http.get("/v1/incidents/none"), 404)

    on(tmp_path, work)


def test_diagnose_walks_between_known_endpoints_only(tmp_path):
    async def work(lab):
        await lab.register("h0", endpoint("h0", "a0"), endpoint("h0", "a0", 1))

        async def ask(source, target, **more):
            pair = {"source": source, "target": target}
            return await lab.http.post("/v1/diagnose", json=pair | more)

        assert (await ask("a0/rail0", "a0/rail1")).json()["outcome"] == "delivered"
        layers = await ask("a0/rail0", "a0/rail1", layers=True)
        assert layers.json()["outcome"] == "inconsistent"
        problem(await ask("a0/rail0", "a9/rail0"), 404)
        problem(await ask("a0/rail0", "a9"), 400)
        problem(await lab.http.post("/v1/diagnose", json={"source": "a0/rail0"}), 400)
        lab.diagnosis.fail = RemoteProtocolError("no endpoint a0/rail0 is registered")
        assert "a0/rail0" in problem(await ask("a0/rail0", "a0/rail1"), 400)
        lab.diagnosis.fail = ZeroDivisionError()
        assert problem(await ask("a0/rail0", "a0/rail1"), 500) == "internal error"

    on(tmp_path, work)


# --- the whole ------------------------------------------------------------------------------------


def test_a_step_that_crashes_is_logged_and_the_next_one_is_made(tmp_path):
    async def work(lab):
        diagnosis = lab.diagnosis
        diagnosis.fail = ZeroDivisionError()
        await until(lambda: diagnosis.steps >= 3)
        diagnosis.fail = None
        steps = diagnosis.steps
        await until(lambda: diagnosis.steps > steps)

    with structlog.testing.capture_logs() as logs:
        on(tmp_path, work)
    told = [str(line["exc_info"]) for line in logs if line["event"] == "step_failed"]
    assert len(told) >= 2
    assert "ZeroDivisionError" in told[0]


@pytest.mark.parametrize(
    ("path", "name", "ids"),
    [
        ("/v1/agents", "agents", lambda each: each["host"]),
        ("/v1/endpoints", "endpoints", lambda each: each["id"]),
        ("/v1/tasks", "tasks", lambda each: each["id"]),
    ],
)
def test_lists_come_in_pages(tmp_path, path, name, ids):
    async def work(lab):
        for n in range(3):
            await lab.register(f"h{n}", endpoint(f"h{n}", f"a{n}", task=f"t{n}"))
        whole = (await lab.http.get(path)).json()
        first = (await lab.http.get(path, params={"limit": 2})).json()
        second = (await lab.http.get(path, params={"limit": 2, "after": first["next"]})).json()
        assert (len(first[name]), second["next"], whole["next"]) == (2, None, None)
        assert list(map(ids, whole[name])) == list(map(ids, first[name] + second[name]))
        assert (await lab.http.get(path, params={"limit": 0})).status_code == 400

    on(tmp_path, work)


def test_a_page_after_nobody_known_is_refused(tmp_path):
    async def work(lab):
        for path, after in (("/v1/incidents", "i-1"), ("/v1/endpoints", "nonsense")):
            answer = await lab.http.get(path, params={"after": after})
            assert answer.status_code == 400
            assert answer.json()["remedy"]

    on(tmp_path, work)


def test_findings_of_one_instant_about_one_component_are_all_on_some_page(tmp_path):
    switch, kind = Component(Kind.VSWITCH, "h0"), FindingKind.UNKNOWN_INPUT
    known = [
        Finding(kind, switch, f"{port} {about}", 5, {"port": port, "about": about})
        for port in ("p", "q") for about in ("", "172.30.0.9")
    ]  # fmt: skip

    async def work(lab):
        lab.diagnosis.findings = lambda: known
        told, after = [], {}
        while after is not None:
            reply = (await lab.http.get("/v1/findings", params={"limit": 1, **after})).json()
            told += [each["text"] for each in reply["findings"]]
            after = {"after": reply["next"]} if reply["next"] else None
        assert sorted(told) == sorted(each.text for each in known)

    on(tmp_path, work)


def test_status_findings_topology_and_metrics_tell_how_things_are(tmp_path):
    async def work(lab):
        await lab.register("h0", endpoint("h0", "a0"))
        await lab.push()
        status = (await lab.http.get("/v1/status")).json()
        assert (status["agents"], status["endpoints"], status["summaries_kept"]) == (1, 1, 1)
        assert status["counters"]["summaries"] == 1
        [finding] = (await lab.http.get("/v1/findings")).json()["findings"]
        assert (finding["component"], finding["kind"]) == ("rnic h0/rnic0", "rnic-down")
        topology = (await lab.http.get("/v1/topology")).json()
        assert topology == {"links": [["leaf-0", "spine-0"]]}
        capacity = (await lab.http.get("/v1/capacity")).json()
        assert (capacity["takes"], capacity["by"]) == (None, None)
        assert capacity["missing"].startswith("measured for 0 s")
        metrics = (await lab.http.get("/metrics")).text.splitlines()
        assert "netagent_summaries_total 1.0" in metrics
        assert 'netagent_endpoints{state="up"} 1.0' in metrics
        assert 'netagent_agents{state="heard"} 1.0' in metrics
        assert 'netagent_findings{kind="rnic-down"} 1.0' in metrics

    on(tmp_path, work)


def test_what_hosts_report_of_themselves_is_added_up_since_the_start(tmp_path):
    """What was stored before is told to the judge again, and was counted before."""
    newest_ns = time.time_ns() // (5 * SECOND) * 5 * SECOND
    starts_ns = [newest_ns - 10 * SECOND, newest_ns - 5 * SECOND]

    async def work(lab):
        await lab.register("h0", endpoint("h0", "a0"))
        await lab.push(start_ns=starts_ns.pop(0), health=Health(capped=3))
        return (await lab.http.get("/metrics")).text

    while starts_ns:
        assert 'netagent_probes_impaired_total{reason="capped"} 3.0' in on(tmp_path, work)


def test_the_openapi_document_has_every_route_and_an_example_for_each_body(tmp_path):
    async def work(lab):
        return (await lab.http.get("/schema/openapi.json")).json()

    document = on(tmp_path, work)
    operations = {
        (method, path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert {
        ("put", "/v1/hosts/{host}/endpoints"),
        ("get", "/v1/hosts/{host}/pinglist"),
        ("post", "/v1/summaries"),
        ("put", "/v1/tasks/{task}"),
        ("get", "/v1/incidents/events"),
        ("post", "/v1/diagnose"),
    } <= operations.keys()
    assert all(operation["description"] for operation in operations.values())
    for operation in operations.values():
        for media in operation.get("requestBody", {"content": {}})["content"].values():
            assert media["examples"]
            assert media["schema"]["properties"]
            assert "$ref" not in str(media["schema"])


# --- bodies from anybody --------------------------------------------------------------------------

ROUTES = (
    ("PUT", "/v1/hosts/h0/endpoints"),
    ("POST", "/v1/summaries"),
    ("PUT", "/v1/tasks/t"),
    ("POST", "/v1/diagnose"),
)

KEYS = st.sampled_from(
    [
        "host",
        "instance",
        "start_ns",
        "width_ns",
        "generation",
        "rpc_url",
        "endpoints",
        "flows",
        "containers",
        "rails",
        "source",
        "target",
        "schema",
        "id",
        "rail",
        "container",
    ]
)

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | KEYS,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(KEYS, inside, max_size=6),
    max_leaves=12,
)

bodies = st.one_of(
    st.binary(max_size=200),
    plain.map(msgpack.packb),
    plain.map(lambda value: repr(value).replace("'", '"').encode()),
    st.just(b"[" * 20_000),
    st.just(b"\x91" * 20_000),
    st.just(b'{"host":"h0","instance":"i","generation":%d,"rpc_url":""}' % 2**64),
)


@pytest.fixture(scope="module")
def lab_and_runner(tmp_path_factory):
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        lab = runner.run(stack.enter_async_context(running(tmp_path_factory.mktemp("fuzz"))))
        yield lab, runner
        runner.run(stack.aclose())


@settings(max_examples=300)
@given(
    st.sampled_from(ROUTES),
    bodies,
    st.sampled_from(["application/json", "application/msgpack", "text/plain", ""]),
)
def test_no_body_whatever_makes_the_server_fail(lab_and_runner, route, body, form):
    lab, runner = lab_and_runner
    headers = {"content-type": form} if form else {}
    answer = runner.run(lab.http.request(*route, content=body, headers=headers))
    if answer.status_code != 200:
        assert answer.status_code in ({400, 404, 409} if "application" in form else {404, 415})
        assert set(answer.json()) == {"error", "remedy"}


@pytest.mark.parametrize("form", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_a_form_that_a_page_in_a_browser_can_send_is_refused(tmp_path, form):
    async def work(lab):
        body = encode(registration("h9", endpoint("h9", "a9")), ContentType.JSON)
        headers = {"content-type": form} if form else {}
        path = "/v1/hosts/h9/endpoints"
        assert form in problem(await lab.http.put(path, content=body, headers=headers), 415)
        assert (await lab.http.get("/v1/agents")).json()["agents"] == []

    on(tmp_path, work)


def test_a_body_larger_than_any_message_is_refused(tmp_path):
    async def work(lab):
        for method, path in ROUTES:
            answer = await lab.http.request(
                method,
                path,
                content=b"x" * (MAX_BODY_BYTES + 1),
                headers={"content-type": "application/json"},
            )
            problem(answer, 413)

    on(tmp_path, work)


def test_a_route_or_method_that_is_not_there_is_said_in_json(tmp_path):
    async def work(lab):
        problem(await lab.http.get("/nothing"), 404)
        problem(await lab.http.post("/v1/agents"), 405)

    on(tmp_path, work)


# --- recordings -----------------------------------------------------------------------------------


def test_what_a_real_diagnosis_is_given_is_recorded_and_replays(tmp_path):
    async def work():
        config = Config(database=str(tmp_path / "netagent.duckdb"))
        analyzer = await Analyzer.start(config, "analyzer.toml")
        lab = Lab(analyzer)
        try:
            await lab.register("h0", endpoint("h0", "a0"))
            start_ns = analyzer.clock() // (5 * SECOND) * 5 * SECOND
            await lab.push(start_ns=start_ns)
            answer = await lab.http.get("/v1/recording")
            assert answer.headers["content-type"] == "application/octet-stream"
            assert not list((tmp_path / "recording").glob("export-*"))
            return answer.content
        finally:
            await analyzer.stop()

    made = list(read(io.BytesIO(asyncio.run(work()))))
    kinds = [type(record).__name__ for record in made]
    assert kinds[:3] == ["Header", "Roster", "State"]
    assert {"Registered", "Began", "Stepped", "Ingested"} <= set(kinds)
    played = play(iter(made))
    assert (played.summaries, played.differences) == (1, [])


def test_recordings_are_for_administrators_and_may_be_switched_off(tmp_path):
    async def work(lab):
        lab.peer = "h0"
        problem(await lab.http.get("/v1/recording"), 403)
        lab.peer = "admin"
        refused = await lab.http.get("/v1/recording")
        assert "recording" in problem(refused, 503)
        assert "[recording]" in refused.json()["remedy"]
        assert not (tmp_path / "recording").exists()

    on(tmp_path, work, recording=Recording(enabled=False))
