# SPDX-License-Identifier: Apache-2.0
"""Inquiries, from what simulated agents send and the analyzer has stored."""

import asyncio
from dataclasses import asdict

import pytest

from analyzer.server import inquiries
from analyzer.server.intended import Intended
from analyzer.simulate.agents import WIDTH_NS, Agents
from analyzer.simulate.clos import Clos, Shape
from netagent.wire.codec import encode
from tests.analyzer.server.test_intended import DROP, policies
from tests.analyzer.server.test_routes import MSGPACK, on, problem

CLOS = Clos(Shape(hosts=4, hosts_per_segment=2, spines=2, replicas=4, stages=1), seed=1)
TASK = CLOS.endpoints[0].task


async def filled(lab, windows=4):
    """Register a fabric's agents and push windows up to now; return when they begin and end."""
    agents = Agents(CLOS, seed=1)
    agents.start_ns = lab.analyzer.clock() // WIDTH_NS * WIDTH_NS - windows * WIDTH_NS
    for message in agents.registrations():
        path = f"/v1/hosts/{message.host}/endpoints"
        await lab.http.put(path, content=encode(message), headers=MSGPACK)
    for _ in range(windows):
        for each in agents.window():
            answer = await lab.http.post("/v1/summaries", content=encode(each), headers=MSGPACK)
            assert answer.status_code == 200
    return agents.start_ns, agents.start_ns + windows * WIDTH_NS


def ask(lab, task=TASK, **query):
    return lab.http.get(f"/v1/tasks/{task}/inquiry", params=query)


def test_a_task_that_was_well_is_innocent_and_what_was_looked_at_is_told(tmp_path):
    async def work(lab):
        since, until = await filled(lab)
        found = (await ask(lab, since=since, until=until)).json()
        assert found["answer"] == "innocent", found
        assert found["windows"] == 4
        assert found["sent"] == 4 * 100 * len(CLOS.endpoints)
        assert found["walks"] == {"delivered": min(inquiries.MAX_WALKS, CLOS.flows // 4 // 2)}
        at_ns, kept = lab.analyzer.inquired[TASK]
        assert (kept["answer"], at_ns <= lab.analyzer.clock()) == ("innocent", True)
        then = since - inquiries.RECENT_NS
        earlier = (await ask(lab, since=then - 10**12, until=then)).json()
        assert (earlier["answer"], earlier["walks"]) == ("cannot tell", {})

    on(tmp_path, work)


def test_that_a_policy_refuses_packets_is_told_as_by_a_diagnosis(tmp_path, monkeypatch):
    seen = asdict(DROP)

    async def dropped(pairs, _put, **_):
        return [
            {"source": str(a), "target": str(b), "outcome": "cannot_tell", "component": None,
             "text": "sent to the controller", "observations": [seen], "tree": []}
            for a, b in pairs
        ]  # fmt: skip

    async def work(lab):
        since, until = await filled(lab, 1)
        monkeypatch.setattr(lab.analyzer.judge, "walks", dropped)
        lab.analyzer.intended = Intended(policies=policies)
        found = (await ask(lab, since=since, until=until)).json()
        [count] = found["walks"].values()
        assert found["walks"] == {"refused": count}
        [against] = found["against"]
        assert against.startswith(f"walks through the flow tables: {count} refused; ")
        assert "`netagent-analyzer diagnose`" in against


def test_answers_are_kept_for_the_page_of_a_few_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(inquiries, "MAX_KEPT", 1)

    async def work(lab):
        await filled(lab, 1)
        lab.analyzer.inquired["another"] = 0, {}
        await ask(lab)
        assert list(lab.analyzer.inquired) == [TASK]

    on(tmp_path, work)


@pytest.mark.parametrize(("query", "status"), [
    ({"since": 5, "until": 5}, 400), ({"since": "x"}, 400),
])  # fmt: skip
def test_what_is_no_time_is_refused(tmp_path, query, status):
    async def work(lab):
        await filled(lab, 1)
        problem(await ask(lab, **query), status)
        problem(await ask(lab, task="nobody"), 404)

    on(tmp_path, work)


def test_only_admins_ask_and_one_at_a_time(tmp_path, monkeypatch):
    async def work(lab):
        await filled(lab, 1)
        lab.peer = "h0"
        problem(await ask(lab), 403)
        lab.peer = "admin"
        async with lab.analyzer.inquiring:
            assert "another inquiry" in problem(await ask(lab), 503)
        monkeypatch.setattr(inquiries, "MAX_SUMMARIES", 3)
        assert "more than 3" in problem(await ask(lab), 400)
        monkeypatch.undo()
        answers = await asyncio.gather(*(ask(lab) for _ in range(3)))
        assert {each.status_code for each in answers} <= {200, 503}

    on(tmp_path, work)
