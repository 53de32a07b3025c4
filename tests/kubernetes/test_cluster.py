# SPDX-License-Identifier: Apache-2.0
"""Against a real API server: what is read of it, what it is told, and with which rights."""

import asyncio
import contextlib
import json
import re
import time

import pytest
from structlog.testing import capture_logs

from analyzer import cli
from analyzer.config import Config, Controllers, Kubernetes
from analyzer.controllers import kubernetes as door
from analyzer.intent import kubernetes as pods_of
from analyzer.intent import told
from analyzer.intent.kubernetes import CONDITION
from analyzer.server.analyzer import Analyzer
from netagent.model.path import Component, Kind, Layer
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict
from tests.analyzer.cluster import endpoint, registration
from tests.analyzer.server.direct import Direct
from tests.analyzer.server.process import Process
from tests.kubernetes.conftest import OURS, manifests
from tests.waiting import until, wait_until

pytestmark = pytest.mark.kubernetes

WITHIN_S = 90.0
JOB = "training.kubeflow.org/job-name"
PODS = "/api/v1/namespaces/{}/pods"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(pods_of, "QUIET_NS", 10**9)
    monkeypatch.setattr(pods_of, "AGAIN_NS", 10**9)
    monkeypatch.setattr(told, "NODE_NS", 10**9)
    monkeypatch.setattr(door, "RETRY_MAX_S", 2.0)
    monkeypatch.setattr(door, "HOLDS_S", 0.5)
    monkeypatch.setattr(door, "LIST_S", 1.0)
    monkeypatch.setattr(door, "PAGE", 2)  # all that is listed has several pages


@pytest.fixture
def namespace(cluster, request):
    name = request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-")
    meta = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    cluster.ask("POST", "/api/v1/namespaces", meta)
    return name


def pod(name, node, job="bert", rails=()):
    networks = [{"name": "cni", "default": True}, *({"name": f"ml/rail{r}"} for r in rails)]
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {JOB: job},
            "annotations": {"k8s.v1.cni.cncf.io/network-status": json.dumps(networks)},
        },
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
    }


def delete(cluster, namespace, name):
    cluster.ask("DELETE", f"{PODS.format(namespace)}/{name}?gracePeriodSeconds=0")


def make_node(cluster, name):
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    return cluster.ask("POST", "/api/v1/nodes", body)


def condition(cluster, node):
    found = cluster.ask("GET", f"/api/v1/nodes/{node}")["status"].get("conditions", [])
    return next((each for each in found if each["type"] == CONDITION), None)


def incident(node, state, name="i1", kind=Kind.RNIC):
    component = Component(kind, f"{node}/mlx5_0" if kind is Kind.RNIC else node)
    verdict = Verdict(component, Layer.RNIC, Symptom.LOSS, 0.9, f"{component} loses packets")
    return Incident(name, state, verdict, 1, 2, time.time_ns())


@contextlib.asynccontextmanager
async def running(cluster, folder, namespace, **fields):
    """Run an analyzer that reads `namespace`."""
    fields = {"token_file": str(cluster.token)} | fields
    of = Kubernetes(url=cluster.url, ca=str(cluster.ca), namespaces=(namespace,), **fields)
    config = Config(database=str(folder / "x.duckdb"), controllers=Controllers(kubernetes=of))
    judge = Direct(time.time_ns)
    analyzer = await Analyzer.start(config, "analyzer.toml", open_link=judge.open)
    try:
        yield analyzer
    finally:
        await analyzer.stop()


def on(cluster, folder, namespace, work, **fields):
    async def inside():
        async with running(cluster, folder, namespace, **fields) as analyzer:
            return await work(analyzer)

    return asyncio.run(inside())


def declared(analyzer):
    return {t.id.partition(".")[2]: t.containers for t in analyzer.registry.tasks() if t.source}


async def comes(analyzer, **tasks):
    await until(lambda: declared(analyzer) == tasks, str(tasks), WITHIN_S)


def test_jobs_are_declared_as_they_come_change_and_go(cluster, namespace, tmp_path):
    path = PODS.format(namespace)
    for i in range(5):
        cluster.ask("POST", path, pod(f"bert-{i}", f"n{i}", rails=(0, 1)))
    cluster.ask("POST", path, pod("waits-0", "", job="waits"))
    cluster.ask("POST", path, pod("waits-1", "", job="waits"))

    def names(*numbers):
        return tuple(f"{namespace}.bert-{i}" for i in numbers)

    async def work(analyzer):
        await comes(analyzer, bert=names(0, 1, 2, 3, 4))
        task = analyzer.registry.task(f"{namespace}.bert")
        assert (task.rails, task.rnics_per_container, task.hosts) == ((0, 1), 2, ())
        await analyzer.service.register(
            registration("n1", endpoint("n1", f"{namespace}.bert-1", task="")), 1
        )
        of = analyzer.registry
        await until(lambda: of.task(task.id).hosts == ("", "n1", "", "", ""), "a host", WITHIN_S)
        assert [r.endpoint.task for r in of.endpoints()] == [task.id]
        await asyncio.to_thread(delete, cluster, namespace, "bert-4")
        await comes(analyzer, bert=names(0, 1, 2, 3))
        for i in range(2):
            await asyncio.to_thread(cluster.ask, "POST", path, pod(f"gpt-{i}", "n7", job="gpt"))
        gpt = (f"{namespace}.gpt-0", f"{namespace}.gpt-1")
        await comes(analyzer, bert=names(0, 1, 2, 3), gpt=gpt)
        body = {"status": {"phase": "Succeeded"}}
        await asyncio.to_thread(cluster.ask, "PATCH", f"{path}/gpt-1/status", body)
        await comes(analyzer, bert=names(0, 1, 2, 3))
        bound = {"target": {"kind": "Node", "name": "n9"}, "metadata": {}}
        for i in range(2):
            bound["metadata"]["name"] = f"waits-{i}"
            await asyncio.to_thread(cluster.ask, "POST", f"{path}/waits-{i}/binding", bound)
        waits = (f"{namespace}.waits-0", f"{namespace}.waits-1")
        await comes(analyzer, bert=names(0, 1, 2, 3), waits=waits)

    on(cluster, tmp_path, namespace, work)


def test_the_command_shows_where_a_task_came_from(cluster, namespace, tmp_path, capsys):
    for i in range(2):
        cluster.ask("POST", PODS.format(namespace), pod(f"bert-{i}", f"n{i}"))
    more = f"""[controllers.kubernetes]
        url = "{cluster.url}"
        ca = "{cluster.ca}"
        token_file = "{cluster.token}"
        namespaces = ["{namespace}"]
    """
    with Process(tmp_path, more=more) as served, served.client() as client:
        wait_until(lambda: client.get("/v1/tasks").json()["tasks"], "a task", WITHIN_S)
        assert cli.main(["tasks", "--url", served.url]) == 0
        assert served.stop()[0] == 0
    assert f"{namespace}.bert  kubernetes  2 " in capsys.readouterr().out


def test_a_certificate_will_do_in_place_of_a_token(cluster, namespace, tmp_path):
    for i in range(2):
        cluster.ask("POST", PODS.format(namespace), pod(f"bert-{i}", f"n{i}"))
    user = "{kind: User, name: analyzer, apiGroup: rbac.authorization.k8s.io}"
    binding = (
        manifests()[0]
        .split("\n---\n")[3]
        .replace("name: netagent-analyzer}\nrole", "name: x}\nrole")
    )
    cluster.apply(re.sub(r"^- \{kind: ServiceAccount.*$", f"- {user}", binding, flags=re.MULTILINE))
    cert, key = map(str, cluster.authority.sign("analyzer"))

    async def work(analyzer):
        await comes(analyzer, bert=(f"{namespace}.bert-0", f"{namespace}.bert-1"))

    on(cluster, tmp_path, namespace, work, token_file="", cert=cert, key=key)


def test_what_was_declared_outlives_the_api_server(cluster, namespace, tmp_path):
    path = PODS.format(namespace)
    for i in range(2):
        cluster.ask("POST", path, pod(f"bert-{i}", f"n{i}"))
    names = (f"{namespace}.bert-0", f"{namespace}.bert-1")

    async def work(analyzer):
        await comes(analyzer, bert=names)
        cluster.stop()
        try:
            await until(lambda: analyzer.kubernetes.is_away, "away", WITHIN_S)
            assert declared(analyzer) == {"bert": names}
            assert "cannot be read for 0 min" in " ".join(analyzer.warnings())
        finally:
            await asyncio.to_thread(cluster.start)
        # What the analyzer saw last is older than what the API server remembers now.
        await asyncio.to_thread(cluster.ask, "POST", path, pod("bert-2", "n2"))
        await comes(analyzer, bert=(*names, f"{namespace}.bert-2"))
        await until(lambda: not analyzer.kubernetes.is_away, "back", WITHIN_S)
        assert analyzer.warnings() == []

    with capture_logs() as logs:
        on(cluster, tmp_path, namespace, work)
    told = [line["event"] for line in logs if line["event"].startswith("kubernetes")]
    assert [told.count(each) for each in ("kubernetes_away", "kubernetes_back")] == [1, 1]
    assert all(line["log_level"] != "error" for line in logs)

    async def later(analyzer):
        assert declared(analyzer) == {"bert": (*names, f"{namespace}.bert-2")}
        await comes(analyzer, bert=names)

    delete(cluster, namespace, "bert-2")  # while no analyzer runs
    on(cluster, tmp_path, namespace, later)


def test_a_confirmed_incident_is_an_event_and_a_condition_until_it_recovers(
    cluster, namespace, tmp_path
):
    for i in range(2):
        make_node(cluster, f"told-{i}")
        cluster.ask("POST", PODS.format(namespace), pod(f"bert-{i}", f"told-{i}"))

    def reasons(of):
        selector = f"involvedObject.name={of},source=netagent"
        events = cluster.ask("GET", f"/api/v1/events?fieldSelector={selector}")["items"]
        return sorted(e["reason"] for e in events)

    def both(of, word, count):
        return word in reasons(of) and len(reasons(of)) == count

    async def seen(what, *arguments):
        async with asyncio.timeout(WITHIN_S):
            while not await asyncio.to_thread(what, *arguments):  # noqa: ASYNC110
                await asyncio.sleep(0.2)

    async def work(analyzer):
        await until(lambda: analyzer.kubernetes.book.pods == 2, "pods", WITHIN_S)
        await until(lambda: len(analyzer.kubernetes.book.nodes) >= 2, "nodes", WITHIN_S)
        analyzer.journal.note(incident("told-0", IncidentState.OPEN))
        analyzer.journal.note(incident("told-0", IncidentState.CONFIRMED))
        end = f"{namespace}.bert-1"
        analyzer.journal.note(incident(end, IncidentState.CONFIRMED, "i2", Kind.CONTAINER))
        await seen(both, "told-0", "NetworkFault", 1)
        await seen(both, "told-1", "NetworkFault", 1)
        await seen(both, "bert-1", "NetworkFault", 1)
        await seen(lambda: (condition(cluster, "told-0") or {}).get("status") == "True")
        found = condition(cluster, "told-0")
        assert (found["reason"], found["message"]) == (
            "NetworkLoss", "rnic told-0/mlx5_0: loss (i1)",
        )  # fmt: skip
        assert condition(cluster, "told-1") is None
        analyzer.journal.note(incident("told-0", IncidentState.RECOVERED))
        await seen(both, "told-0", "NetworkRecovered", 2)
        await seen(lambda: condition(cluster, "told-0")["status"] == "False")
        analyzer.journal.note(incident("told-0", IncidentState.CONFIRMED, "i3"))
        await seen(lambda: condition(cluster, "told-0")["status"] == "True")
        taints = cluster.ask("GET", "/api/v1/nodes/told-0")["spec"].get("taints", [])
        assert all("netagent" not in each["key"] for each in taints)
        assert analyzer.kubernetes.refused == 0

    on(cluster, tmp_path, namespace, work, tell=True)
    since = condition(cluster, "told-0")["lastTransitionTime"]

    async def afterwards(analyzer):
        # It knows of no incident, as after its database was lost.
        await seen(lambda: condition(cluster, "told-0")["status"] == "False")
        assert condition(cluster, "told-0")["lastTransitionTime"] >= since

    (tmp_path / "new").mkdir()
    on(cluster, tmp_path / "new", namespace, afterwards, tell=True)
    gone = {"status": {"conditions": [{"$patch": "delete", "type": CONDITION}]}}
    cluster.ask("PATCH", "/api/v1/nodes/told-0/status", gone)  # as the documentation says
    assert condition(cluster, "told-0") is None


def test_an_analyzer_that_may_not_write_says_so_once_and_reads_on(cluster, namespace, tmp_path):
    make_node(cluster, "deaf-0")
    cluster.ask(
        "DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/netagent-analyzer-tell"
    )
    try:

        async def work(analyzer):
            await until(lambda: "deaf-0" in analyzer.kubernetes.book.nodes, "a node", WITHIN_S)
            analyzer.journal.note(incident("deaf-0", IncidentState.CONFIRMED))
            await until(lambda: "403" in " ".join(analyzer.warnings()), "a warning", WITHIN_S)
            path = PODS.format(namespace)
            for i in range(2):
                await asyncio.to_thread(cluster.ask, "POST", path, pod(f"bert-{i}", "deaf-0"))
            await comes(analyzer, bert=(f"{namespace}.bert-0", f"{namespace}.bert-1"))
            assert condition(cluster, "deaf-0") is None

        on(cluster, tmp_path, namespace, work, tell=True)
    finally:
        cluster.apply(manifests()[1].split("\n---\n")[1])


@pytest.mark.parametrize(
    ("verb", "resource", "sub", "allowed"),
    [
        ("list", "pods", "", True),
        ("watch", "pods", "", True),
        ("list", "nodes", "", True),
        ("watch", "nodes", "", True),
        ("patch", "nodes", "status", True),
        ("create", "events", "", True),
        ("get", "pods", "", False),
        ("get", "nodes", "", False),
        ("patch", "nodes", "", False),
        ("update", "nodes", "status", False),
        ("delete", "pods", "", False),
        ("create", "pods", "exec", False),
        ("list", "events", "", False),
        ("list", "secrets", "", False),
        ("get", "configmaps", "", False),
    ],
)
def test_the_documented_rights_are_these_and_no_others(cluster, verb, resource, sub, allowed):
    attributes = {"verb": verb, "resource": resource, "subresource": sub, "namespace": "default"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = cluster.ask("POST", path, review, who=OURS)
    assert answer["status"]["allowed"] == allowed
