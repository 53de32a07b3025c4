# SPDX-License-Identifier: Apache-2.0
"""The analyzer's side of Kubernetes, with an API server that the test plays."""

import asyncio
import contextlib
import time
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from analyzer.config import Config, Controllers
from analyzer.config import Kubernetes as Of
from analyzer.controllers import kubernetes as door
from analyzer.controllers.kubernetes import ApiError
from analyzer.intent import kubernetes as pods_of
from analyzer.intent import told
from analyzer.server import kubernetes
from analyzer.server.analyzer import Analyzer
from analyzer.server.metrics import scrape
from netagent.model.path import Component, Kind, Layer
from netagent.model.task import Task
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict
from tests.analyzer.cluster import endpoint, registration
from tests.analyzer.server.direct import Direct
from tests.waiting import until

WITHIN_S = 30.0
JOB = "training.kubeflow.org/job-name"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name in ("LOOK_S", "HEARD_S", "WRITE_S", "RETRY_MIN_S"):
        monkeypatch.setattr(kubernetes, name, 0.01)
    monkeypatch.setattr(kubernetes, "RETRY_MAX_S", 0.05)
    monkeypatch.setattr(door, "RETRY_MIN_S", 0.01)
    monkeypatch.setattr(door, "RETRY_MAX_S", 0.05)
    monkeypatch.setattr(door, "HOLDS_S", 0.02)
    monkeypatch.setattr(door, "LIST_S", 0.0)
    for name in ("QUIET_NS", "AGAIN_NS"):
        monkeypatch.setattr(pods_of, name, 10**7)
    monkeypatch.setattr(told, "NODE_NS", 0)


def pod(name, job, namespace="ml"):
    container = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    meta = {"name": name, "namespace": namespace, "uid": name, "labels": {JOB: job}}
    return {"kind": "Pod", "metadata": meta,
            "spec": {"nodeName": "n0", "containers": [container]}}  # fmt: skip


def node(name):
    return {"kind": "Node", "metadata": {"name": name}}


class Server:
    """Stands in for the API server: what there is, and what it was told."""

    def __init__(self, *pods, nodes=("n0",)):
        self.pods, self.nodes = list(pods), [node(name) for name in nodes]
        self.news, self.down, self.refuses = {}, None, {}
        self.events, self.patches, self.asked, self.paths = [], [], 0, set()

    def __call__(self, *_):
        return self

    async def pages(self, path, params):
        self._serve(path)
        things = self.nodes if path.endswith("nodes") else self.pods
        at = path.split("/")[-2]
        yield [t for t in things if at in {"v1", t["metadata"].get("namespace")}], "1"

    async def watch(self, path, params, version, opened):
        self._serve(path)
        opened()
        queue = self.news.setdefault(path, asyncio.Queue())
        while (event := await queue.get()) is not None:
            yield event
        self._serve(path)

    async def post_event(self, namespace, body):
        self._told("event")
        self.events.append((namespace, body["involvedObject"]["name"], body["reason"]))

    async def patch_node(self, name, body):
        self._told("patch")
        self.patches.append((name, body["status"]["conditions"][0]["status"]))

    async def close(self):
        pass

    def _serve(self, path):
        self.paths.add(path)
        if self.down:
            raise self.down

    def _told(self, what):
        self.asked += 1
        if what in self.refuses:
            raise self.refuses[what]

    def happens(self, kind, thing, path="/api/v1/pods"):
        self.news[path].put_nowait({"type": kind, "object": thing})

    def breaks(self, error):
        self.down = error
        for queue in self.news.values():
            queue.put_nowait(None)


def incident(name="i1", state=IncidentState.CONFIRMED, host="n0"):
    component = Component(Kind.RNIC, f"{host}/mlx5_0")
    verdict = Verdict(component, Layer.RNIC, Symptom.LOSS, 0.9, "it loses")
    return Incident(name, state, verdict, 1, 2, 3)


@contextlib.asynccontextmanager
async def running(folder, *, reads=True, **fields):
    of = Of(url="http://127.0.0.1:1", **fields) if reads else None
    config = Config(database=str(folder / "x.duckdb"), controllers=Controllers(kubernetes=of))
    analyzer = await Analyzer.start(config, "x.toml", open_link=Direct(time.time_ns).open)
    try:
        yield analyzer
    finally:
        await analyzer.stop()


def on(server, monkeypatch, folder, work, **fields):
    """Run `work(analyzer)` against an analyzer that reads `server`."""
    monkeypatch.setattr(kubernetes, "Api", server)

    async def inside():
        async with asyncio.timeout(120), running(folder, **fields) as analyzer:
            return await work(analyzer)

    return asyncio.run(inside())


def declared(analyzer):
    return {t.id: t.containers for t in analyzer.registry.tasks() if t.source}


def stored(logs):
    """Return how many containers the last task has that is on disk, too: that is logged then."""
    sizes = [line["containers"] for line in logs if line["event"] == "kubernetes_task"]
    return sizes[-1] if sizes else 0


BERT = {"ml.bert": ("ml.b-0", "ml.b-1")}


def test_a_job_is_declared_and_withdrawn_with_its_pods(tmp_path, monkeypatch):
    server = Server(pod("b-0", "bert"))

    async def work(analyzer):
        await until(lambda: analyzer.kubernetes.book.pods == 1, within_s=WITHIN_S)
        assert declared(analyzer) == {}
        server.happens("ADDED", pod("b-1", "bert"))
        await until(lambda: declared(analyzer) == BERT, within_s=WITHIN_S)
        await analyzer.service.register(registration("n0", endpoint("n0", "ml.b-0", task="")), 1)
        at = ("n0", "n0")
        await until(lambda: analyzer.registry.task("ml.bert").hosts == at, within_s=WITHIN_S)
        assert [t.id for t in await analyzer.store.tasks()] == ["ml.bert"]
        assert "netagent_kubernetes_tasks 1.0\n" in scrape.render(analyzer)
        server.happens("DELETED", pod("b-1", "bert"))
        await until(lambda: declared(analyzer) == {}, within_s=WITHIN_S)

    on(server, monkeypatch, tmp_path, work)


def test_what_was_declared_by_hand_stays_and_the_clash_is_told_until_it_is_over(
    tmp_path, monkeypatch
):
    server = Server(pod("b-0", "bert"), pod("b-1", "bert"), pod("g-0", "gpt"), pod("g-1", "gpt"))
    by_hand = Task("ml.bert", ("mine",), declared=True)
    taken = Task("other", ("ml.g-1",), declared=True)

    async def before(analyzer):
        await analyzer.service.put_task(by_hand, 1)
        await analyzer.service.put_task(taken, 1)

    async def work(analyzer):
        await until(lambda: len(analyzer.kubernetes.clashes) == 2, within_s=WITHIN_S)
        assert analyzer.warnings() == [
            "Kubernetes' task ml.bert is not taken: task ml.bert was declared by a call of the API",
            "Kubernetes' task ml.gpt is not taken: task other declares some containers of ml.gpt",
        ]
        assert analyzer.registry.task("ml.bert") == by_hand
        assert "netagent_kubernetes_tasks_refused 2.0\n" in scrape.render(analyzer)
        await analyzer.service.delete_task("other", 2)
        await until(lambda: "ml.gpt" in declared(analyzer), within_s=WITHIN_S)
        server.happens("DELETED", pod("b-1", "bert"))
        await until(lambda: not analyzer.kubernetes.clashes, within_s=WITHIN_S)
        assert analyzer.registry.task("ml.bert") == by_hand

    on(server, monkeypatch, tmp_path, before, reads=False)
    with capture_logs() as logs:
        on(server, monkeypatch, tmp_path, work)
    refused = [line["task"] for line in logs if line["event"] == "kubernetes_task_refused"]
    assert refused == ["ml.bert", "ml.gpt"]


def test_while_it_is_away_what_was_declared_stays_also_over_a_restart(tmp_path, monkeypatch):
    server = Server(pod("b-0", "bert"), pod("b-1", "bert"))

    async def work(analyzer):
        await until(lambda: declared(analyzer) == BERT, within_s=WITHIN_S)
        server.breaks(ApiError("410: gone", 410))
        await until(lambda: analyzer.kubernetes.is_away, within_s=WITHIN_S)
        await until(lambda: analyzer.kubernetes._nodes._failures > 5, within_s=WITHIN_S)
        assert declared(analyzer) == BERT
        (warning,) = analyzer.warnings()
        assert warning == "Kubernetes cannot be read for 0 min, its tasks are old: 410: gone"
        assert "netagent_kubernetes_away 1.0\n" in scrape.render(analyzer)
        server.pods, server.down = [*server.pods, pod("b-2", "bert")], None
        await until(lambda: stored(logs) == 3, within_s=WITHIN_S)
        await until(lambda: not analyzer.warnings(), within_s=WITHIN_S)

    with capture_logs() as logs:
        on(server, monkeypatch, tmp_path, work)
    events = [line["event"] for line in logs]
    assert [events.count(f"kubernetes_{what}") for what in ("away", "back")] == [1, 1]

    async def restarted(analyzer):
        await until(lambda: analyzer.kubernetes.is_away, within_s=WITHIN_S)
        assert len(declared(analyzer)["ml.bert"]) == 3
        server.pods, server.down = [], None
        await until(lambda: declared(analyzer) == {}, within_s=WITHIN_S)

    server.news.clear()
    server.down = ApiError("refused")
    on(server, monkeypatch, tmp_path, restarted)


def test_without_its_configuration_the_next_start_withdraws_what_came_from_there(
    tmp_path, monkeypatch
):
    server = Server(pod("b-0", "bert"), pod("b-1", "bert"))

    async def work(analyzer):
        await analyzer.service.put_task(Task("mine", ("x",), declared=True), 1)
        await until(lambda: stored(logs) == 2, within_s=WITHIN_S)

    async def without(analyzer):
        assert [task.id for task in analyzer.registry.tasks()] == ["mine"]
        assert [task.id for task in await analyzer.store.tasks()] == ["mine"]
        assert "kubernetes" not in scrape.render(analyzer)

    with capture_logs() as logs:
        on(server, monkeypatch, tmp_path, work)
    on(server, monkeypatch, tmp_path, without, reads=False)


def test_each_namespace_is_read_by_itself(tmp_path, monkeypatch):
    things = [pod(f"b-{i}", "bert", namespace) for namespace in ("ml", "web", "no") for i in (0, 1)]
    server = Server(*things)

    async def work(analyzer):
        await until(lambda: set(declared(analyzer)) == {"ml.bert", "web.bert"}, within_s=WITHIN_S)
        assert server.paths == {
            "/api/v1/nodes", "/api/v1/namespaces/ml/pods", "/api/v1/namespaces/web/pods",
        }  # fmt: skip

    on(server, monkeypatch, tmp_path, work, namespaces=("ml", "web"))


def test_nothing_is_told_unless_that_is_wanted(tmp_path, monkeypatch):
    server = Server(pod("b-0", "bert"), pod("b-1", "bert"))

    async def work(analyzer):
        await until(lambda: declared(analyzer) == BERT, within_s=WITHIN_S)
        analyzer.journal.note(incident())
        await until(lambda: analyzer.journal.get("i1"), within_s=WITHIN_S)
        working = {task.get_name() for task in asyncio.all_tasks()}
        assert "kubernetes tasks" in working
        assert "kubernetes telling" not in working
        assert server.asked == 0

    on(server, monkeypatch, tmp_path, work)


def test_nodes_are_told_and_what_fails_is_told_later(tmp_path, monkeypatch):
    server = Server()

    async def work(analyzer):
        of = analyzer.kubernetes
        await until(lambda: of.book.nodes, within_s=WITHIN_S)
        down = ApiError("503: no etcd", 503)
        server.refuses = {"event": down, "patch": down}
        analyzer.journal.note(incident())
        await until(lambda: server.asked > 3, within_s=WITHIN_S)
        assert analyzer.warnings() == ["Kubernetes takes no Events or conditions: 503: no etcd"]
        server.refuses = {}
        await until(lambda: of.written == 2, within_s=WITHIN_S)
        assert (server.events, server.patches) == (
            [("default", "n0", "NetworkFault")],
            [("n0", "True")],
        )
        analyzer.journal.note(replace(incident(), state=IncidentState.RECOVERED, recovered_ns=4))
        await until(lambda: of.written == 4, within_s=WITHIN_S)
        assert server.events[1:] == [("default", "n0", "NetworkRecovered")]
        assert server.patches[1:] == [("n0", "False")]
        assert analyzer.warnings() == []
        assert of.refused == 0

    with capture_logs() as logs:
        on(server, monkeypatch, tmp_path, work, tell=True)
    events = [line["event"] for line in logs]
    assert [events.count(f"kubernetes_{what}") for what in ("not_told", "told_again")] == [1, 1]


def test_what_is_never_taken_holds_nothing_up(tmp_path, monkeypatch):
    server = Server(nodes=("n0", "n1"))

    async def work(analyzer):
        of = analyzer.kubernetes
        await until(lambda: len(of.book.nodes) == 2, within_s=WITHIN_S)
        server.refuses = {"event": ApiError("404: no namespace", 404)}
        analyzer.journal.note(incident())
        analyzer.journal.note(incident("i2", host="n1"))
        await until(lambda: (of.written, of.refused) == (2, 2), within_s=WITHIN_S)
        assert (len(server.patches), server.events) == (2, [])
        assert "netagent_kubernetes_writes_refused_total 2.0\n" in scrape.render(analyzer)

    on(server, monkeypatch, tmp_path, work, tell=True)
