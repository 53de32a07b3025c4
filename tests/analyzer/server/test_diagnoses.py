# SPDX-License-Identifier: Apache-2.0
"""Asking for diagnoses over HTTP: in other words, of many pairs, and who sees what of them."""

import asyncio
from dataclasses import replace

import pytest

from analyzer.intent.model import Intent, Port
from analyzer.localize.observations import Policy
from analyzer.server import diagnoses, diagnosing
from analyzer.server.diagnosing import MAX_OF_CALLER, MAX_PAIRS
from netagent.model.verdict import Incident, IncidentState, Pair, Symptom, Verdict
from netagent.wire.messages import Service
from tests.analyzer.cluster import endpoint
from tests.analyzer.server.test_routes import on, problem
from tests.waiting import until

TENANTS = {"tenants": {"tenant-a": ("train-a",)}, "readers": ("grafana",)}


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch):
    monkeypatch.setattr(diagnosing, "EVERY_S", 0.0)


class Walking:
    """A diagnosis that notes who is asked for, and whose every packet is dropped."""

    def __init__(self, diagnosis):
        self.asked, self.services = [], []
        diagnosis.diagnose = self.diagnose

    def diagnose(self, source, target, *, layers=False, service=None):
        yield from ()
        self.asked.append((source, target))
        self.services.append(service)
        flow = "flow h0/br-int/table=44"
        hops = [
            {"way": "there", "component": f"endpoint {source}", "action": "forwarded",
             "text": "sends", "host": "h0", "by": "", "incident": "", "cookie": ""},
            {"way": "there", "component": flow, "action": "dropped", "text": "drop of b0",
             "host": "h0", "by": "", "incident": "", "cookie": "0x2a"},
        ]  # fmt: skip
        return {
            "source": str(source), "target": str(target), "outcome": "dropped", "component": flow,
            "layer": "overlay", "text": "drop of b0", "tree": [{"text": "t", "children": []}],
            "observations": hops,
        }  # fmt: skip


async def filled(lab):
    """Register two containers of a task, two of another with the same addresses."""
    await lab.register("h0", endpoint("h0", "a0"), endpoint("h0", "a0", 1))
    await lab.register("h1", endpoint("h1", "a1"))
    for host, container, like in (("h2", "b0", "h0"), ("h3", "b1", "h1")):
        same = endpoint(like, container).address
        await lab.register(host, replace(endpoint(host, container, task="train-b"), address=same))
    ports = {
        "ns_a0_0": Port("ns_a0_0", pod="ns/a0", container="a0", macs=(endpoint("h0", "a0").mac,)),
        "ns_a1_0": Port("ns_a1_0", pod="ns/a1", container="a1"),
    }
    lab.analyzer.intended.intents = lambda: [Intent("ovn", 1, ports=ports)]
    return Walking(lab.diagnosis)


def ask(lab, **body):
    return lab.http.post("/v1/diagnose", json=body)


async def over(lab, diagnosis):
    """Return a diagnosis once it is over, with all of its results."""
    results, after = [], 0
    while True:
        query = {"after": after, "wait_s": 10}
        told = (await lab.http.get(f"/v1/diagnoses/{diagnosis}", params=query)).json()
        results += told["results"]
        after = told["next"]
        if told["phase"] != "running":
            return told | {"results": results}


# --- in other words -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("a0/rail0", "a1/rail0"),
        ({"endpoint": "a0/rail0"}, {"endpoint": "a1/rail0", "task": "train-a"}),
        ({"pod": "ns/a0"}, {"pod": "ns/a1", "rail": 0}),
        ({"port": "ns_a0_0"}, "a1/rail0"),
        (
            {"address": endpoint("h0", "a0").address, "task": "train-a"},
            {"address": endpoint("h1", "a1").address, "task": "train-a"},
        ),
    ],
)
def test_an_end_is_named_in_any_words(tmp_path, source, target):
    async def work(lab):
        walking = await filled(lab)
        answer = await ask(lab, source=source, target=target)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert (told["source"], told["target"]) == ("a0/rail0", "a1/rail0")
        assert told["tree"]
        assert told["observations"][1]["cookie"] == "0x2a"
        assert [tuple(map(str, pair)) for pair in walking.asked] == [("a0/rail0", "a1/rail0")]

    on(tmp_path, work)


@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        ({"address": endpoint("h0", "a0").address}, 400, "2 endpoints: a0/rail0 (task train-a"),
        ({"pod": "ns/a9"}, 404, "known are ns/a0"),
        ({"address": "10.0.0.10", "rail": 7}, 404, "no address 10.0.0.10 on rail 7"),
        ({"pod": "ns/a0", "port": "ns_a0_0"}, 400, "not by pod and port"),
        ({}, 400, "not by nothing"),
        ({"container": "a0"}, 400, "container"),
        ("a0", 400, "name a pod, port or address"),
        ("a" * 600, 400, "512"),
        ({"pod": "a" * 600}, 400, "512"),
        ("a9/rail0", 404, "no endpoint a9/rail0: known are"),
        ("", 400, "source and target"),
    ],
)
def test_who_is_not_one_endpoint_is_told_why(tmp_path, source, status, words):
    async def work(lab):
        walking = await filled(lab)
        answer = await ask(lab, source=source, target="a1/rail0")
        said = problem(answer, status)
        assert words in said + answer.json()["remedy"]
        assert walking.asked == []

    on(tmp_path, work)


def test_a_policy_that_a_controller_names_is_told(tmp_path):
    async def work(lab):
        await filled(lab)

        async def policies(cookies):
            asked = ((host, cookie) for host, of in cookies.items() for cookie in of)
            return dict.fromkeys(asked, Policy("quarantine"))

        lab.analyzer.intended.policies = policies
        told = (await ask(lab, source="a0/rail0", target="a1/rail0")).json()
        assert (told["outcome"], told["text"]) == ("refused", "refused by quarantine: drop of b0")
        begun = (await ask(lab, pairs=[{"source": "a0/rail0", "target": "a1/rail0"}])).json()
        [result] = (await over(lab, begun["id"]))["results"]
        assert result["observations"][1]["by"] == "quarantine"

    on(tmp_path, work)


def test_a_service_is_asked_about_of_one_pair_and_of_each_of_many(tmp_path):
    async def work(lab):
        walking = await filled(lab)
        pair = {"source": "a0/rail0", "target": "a1/rail0"}
        web = {"protocol": "tcp", "port": 443, "source_port": 50000, "address": "10.96.0.1"}
        await ask(lab, **pair, service=web)
        begun = (await ask(lab, pairs=[pair, pair | {"service": web}])).json()
        await over(lab, begun["id"])
        assert walking.services == [Service(**web), None, Service(**web)]
        for odd in ({"address": "web"}, {"protocol": "sctp"}, {"port": 1 << 16}):
            assert (await ask(lab, **pair, service=web | odd)).status_code == 400
        assert (await ask(lab, task="train-a", service=web)).status_code == 400

    on(tmp_path, work)


# --- many pairs -----------------------------------------------------------------------------------


def test_many_pairs_are_answered_in_a_while(tmp_path):
    async def work(lab):
        walking = await filled(lab)
        both = [
            {"source": {"pod": "ns/a0"}, "target": "a1/rail0"},
            {"source": "b1/rail0", "target": "b0/rail0"},
        ]
        answer = await ask(lab, pairs=both)
        assert answer.status_code == 202
        begun = answer.json()
        assert (begun["phase"], begun["done"], begun["all"]) == ("running", 0, 2)
        assert answer.headers["location"] == f"/v1/diagnoses/{begun['id']}"
        told = await over(lab, begun["id"])
        assert (told["phase"], told["done"], told["next"], told["left_out"]) == (
            "succeeded", 2, 2, 0,
        )  # fmt: skip
        assert [each["source"] for each in told["results"]] == ["a0/rail0", "b1/rail0"]
        assert all("tree" not in each for each in told["results"])
        assert len(walking.asked) == 2
        again = await lab.http.get(f"/v1/diagnoses/{begun['id']}", params={"after": 2})
        assert again.json()["results"] == []
        problem(await lab.http.get("/v1/diagnoses/nothing"), 404)

    on(tmp_path, work)


def test_a_task_stands_for_the_pairs_that_are_probed_each_once(tmp_path, monkeypatch):
    async def work(lab):
        await filled(lab)
        await lab.register("h4", endpoint("h4", "a4"))
        begun = (await ask(lab, task="train-a")).json()
        told = await over(lab, begun["id"])
        found = [(each["source"], each["target"]) for each in told["results"]]
        assert found == [
            ("a0/rail0", "a1/rail0"), ("a0/rail0", "a4/rail0"), ("a1/rail0", "a4/rail0"),
        ]  # fmt: skip
        monkeypatch.setattr(diagnoses, "MAX_PAIRS", 2)
        some = (await ask(lab, task="train-a")).json()
        assert (some["all"], some["left_out"]) == (2, 1)
        problem(await ask(lab, task="nobody"), 404)

    on(tmp_path, work)


def test_the_skeleton_of_a_task_is_what_it_uses(tmp_path):
    async def work(lab):
        await filled(lab)
        await lab.register("h4", endpoint("h4", "a4"))
        ends = [endpoint(host, name).id for host, name in (("h1", "a1"), ("h4", "a4"))]
        gone = endpoint("h9", "a9").id

        class Used:
            pairs = frozenset({(ends[0], ends[1]), (ends[1], ends[0]), (gone, ends[0])})

        class Plan:
            used = Used

        lab.analyzer.skeletons.plan = lambda task: Plan if task == "train-a" else None
        told = await over(lab, (await ask(lab, task="train-a")).json()["id"])
        found = [(each["source"], each["target"]) for each in told["results"]]
        assert found == [("a1/rail0", "a4/rail0")]

        # The pair that an incident is about is one that the skeleton lacks.
        failing = [Pair(endpoint("h0", "a0").id, ends[1], 9, 9), Pair(gone, ends[0], 9, 9)]
        verdict = Verdict(None, None, Symptom.LOSS, 0.9, "why", failing=tuple(failing))
        lost = Incident("i1", IncidentState.OPEN, verdict, 1, 1, 1)
        lab.analyzer.journal.active = lambda: [lost]
        told = await over(lab, (await ask(lab, task="train-a")).json()["id"])
        found = [(each["source"], each["target"]) for each in told["results"]]
        assert found == [("a0/rail0", "a4/rail0"), ("a1/rail0", "a4/rail0")]

    on(tmp_path, work)


PAIR = {"source": "a0/rail0", "target": "a1/rail0"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "source and target, or pairs, or a task"),
        ({"pairs": []}, "source and target, or pairs, or a task"),
        (PAIR | {"task": "train-a"}, "source and target, or pairs, or a task"),
        ({"pairs": [PAIR], "task": "train-a"}, "source and target, or pairs, or a task"),
        ({"source": "a0/rail0", "target": {"pod": "ns/a0", "rail": 0}}, "both ends are a0/rail0"),
        ({"task": "train-a", "layers": True}, "one pair only"),
        ({"task": "train-a", "budget_s": 0}, "budget_s"),
        ({"task": "train-a", "budget_s": 1e9}, "budget_s"),
        ({"pairs": [PAIR] * (MAX_PAIRS + 1)}, f"{MAX_PAIRS + 1} pairs"),
        ({"pairs": [PAIR, {"source": "a0/rail0"}]}, "target"),
        ({"pairs": [PAIR, {"source": "a0/rail0", "target": ""}]}, "not by nothing"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(tmp_path, body, words):
    async def work(lab):
        walking = await filled(lab)
        assert words in problem(await ask(lab, **body), 400)
        assert walking.asked == []

    on(tmp_path, work)


class Stuck:
    """Walks that do not end before `may_go` is set."""

    def __init__(self, lab):
        self.may_go = asyncio.Event()
        self._walks = lab.analyzer.judge.walks
        lab.analyzer.judge.walks = self.walks

    async def walks(self, *args, **more):
        await self.may_go.wait()
        return await self._walks(*args, **more)


def test_a_question_about_progress_is_held_until_there_is_some(tmp_path):
    async def work(lab):
        await filled(lab)
        stuck = Stuck(lab)
        begun = (await ask(lab, pairs=[PAIR])).json()
        path = f"/v1/diagnoses/{begun['id']}"
        assert (await lab.http.get(path)).json()["phase"] == "running"
        poll = asyncio.create_task(lab.http.get(path, params={"wait_s": 15}))
        await until(lambda: len(lab.analyzer.waiters))
        stuck.may_go.set()
        told = (await poll).json()
        assert told["done"] == 1

    on(tmp_path, work)


def test_a_caller_that_asks_for_too_much_is_told_to_wait(tmp_path):
    async def work(lab):
        await filled(lab)
        lab.peer = "admin"
        stuck = Stuck(lab)
        for _ in range(MAX_OF_CALLER):
            assert (await ask(lab, pairs=[PAIR])).status_code == 202
        assert "of yours" in problem(await ask(lab, pairs=[PAIR]), 429)
        lab.peer = "ops"
        late = (await ask(lab, pairs=[PAIR], budget_s=0.1)).json()
        told = await over(lab, late["id"])
        assert (told["phase"], told["error"]) == ("failed", "its 0.1 s are over")
        stuck.may_go.set()

    on(tmp_path, work, admins=("admin", "ops"))


# --- who sees what --------------------------------------------------------------------------------


def test_only_administrators_have_agents_asked(tmp_path):
    async def work(lab):
        walking = await filled(lab)
        for peer in ("tenant-a", "grafana", "h0", "stranger"):
            lab.peer = peer
            for body in (PAIR, {"pairs": [PAIR]}, {"task": "train-a"}):
                problem(await ask(lab, **body), 403)
        assert walking.asked == []

    on(tmp_path, work, **TENANTS)


def test_a_tenant_sees_the_pairs_of_its_own_tasks_and_nothing_that_names_others(tmp_path):
    async def work(lab):
        await filled(lab)
        lab.peer = "admin"
        foreign = {"source": "b0/rail0", "target": "b1/rail0"}
        mixed = {"source": "a0/rail0", "target": "b1/rail0"}
        begun = (await ask(lab, pairs=[foreign, mixed, PAIR])).json()
        others = (await ask(lab, pairs=[foreign, mixed])).json()
        for each in (begun, others):
            await over(lab, each["id"])

        async def seen(peer, diagnosis, **query):
            lab.peer = peer
            return await lab.http.get(f"/v1/diagnoses/{diagnosis['id']}", params=query)

        whole = (await seen("grafana", begun)).json()
        assert [each["source"] for each in whole["results"]] == ["b0/rail0", "a0/rail0", "a0/rail0"]
        mine = await seen("tenant-a", begun)
        told = mine.json()
        assert (told["done"], told["all"], told["next"]) == (1, 1, 1)
        [result] = told["results"]
        assert (result["source"], result["target"], result["outcome"]) == (
            *PAIR.values(),
            "dropped",
        )
        assert [hop["action"] for hop in result["observations"]] == ["forwarded", "dropped"]
        said = mine.text.replace(begun["id"], "")  # an identity may hold any letters
        for word in ("b0", "b1", "0x2a"):
            assert word not in said
        assert (await seen("tenant-a", begun, after=1)).json()["results"] == []
        kept = lab.analyzer.diagnoses.get(begun["id"])
        kept.error, kept.left_out = "agent of b0's host: refused", 7
        ends = [(await seen(peer, begun)).json() for peer in ("tenant-a", "grafana")]
        assert [(each["error"], each["left_out"]) for each in ends] == [
            ("it ended early", 0), (kept.error, 7),
        ]  # fmt: skip
        problem(await seen("tenant-a", others), 404)
        moved = [
            replace(endpoint(host, name), port="p") for host, name in (("h2", "b0"), ("h3", "b1"))
        ]
        lab.peer = None
        for each in moved:  # what was theirs then is not shown to whom it is given
            await lab.register(each.host, each, generation=2)
        problem(await seen("tenant-a", others), 404)
        for peer in ("h0", "stranger"):
            problem(await seen(peer, begun), 403)

    on(tmp_path, work, **TENANTS)
