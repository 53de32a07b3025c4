# SPDX-License-Identifier: Apache-2.0
"""What people say of a verdict: who may, what is kept, and what is refused."""

import asyncio

import pytest

from analyzer.config import Runbooks
from netagent.model.verdict import IncidentState
from tests.analyzer.server.test_routes import incident, on, problem
from tests.waiting import until

PATH = "/v1/incidents/i1/feedback"
WRONG = {"right": False, "component": "link leaf-1 -- spine-2", "note": "the optic was dirty"}


async def tell(lab, made):
    lab.diagnosis.change(made)
    await until(lambda: lab.analyzer.journal.get(made.id) is not None)


def test_a_word_is_kept_beside_the_verdict_over_a_restart_and_counted(tmp_path):
    async def work(lab):
        await tell(lab, incident())
        lab.peer = "admin"
        first = (await lab.http.post(PATH, json={"right": True})).json()
        second = (await lab.http.post(PATH, json=WRONG)).json()
        return first, second

    async def again(lab):
        shown = (await lab.http.get("/v1/incidents/i1")).json()
        [listed] = (await lab.http.get("/v1/incidents")).json()["incidents"]
        return shown, listed, (await lab.http.get("/v1/status")).json()["accuracy"]

    first, second = on(tmp_path, work)
    assert [each["right"] for each in first["feedback"]] == [True]
    [word] = second["feedback"]
    assert word.pop("wall_ns") > 10**18
    assert word == {"by": "admin", **WRONG}
    shown, listed, accuracy = on(tmp_path, again)
    assert shown["feedback"] == listed["feedback"]
    assert shown["feedback"][0]["note"] == WRONG["note"]
    assert shown["component"] == "switch spine-0"  # it changes no verdict
    tally = {"right": 0, "wrong": 1, "unjudged": 0, "share": 0.0}
    assert accuracy == tally | {"by_layer": {"underlay": tally}}


def test_words_of_several_at_once_are_all_kept(tmp_path):
    async def say(lab, name):
        lab.peer = name
        request = lab.http.post(PATH, json={"right": True})
        return await request

    async def work(lab):
        await tell(lab, incident())
        await asyncio.gather(*(say(lab, "admin") for _ in range(2)))
        await say(lab, "root")
        return {word.by for word in lab.analyzer.words.of("i1").words}

    assert on(tmp_path, work, admins=("admin", "root")) == {"admin", "root"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "right"),
        ({"right": "yes"}, "right"),
        ({"right": True, "odd": 1}, "odd"),
        ({"right": False, "component": "cable x"}, "component"),
        ({"right": False, "component": "link"}, "KIND NAME"),
        ({"right": False, "component": "link " + "x" * 300}, "component"),
        ({"right": False, "note": "x" * 1001}, "note"),
        ({"right": False, "note": "x" * 20_000}, "16384"),
    ],
)
def test_what_is_no_word_is_refused(tmp_path, body, words):
    async def work(lab):
        await tell(lab, incident())
        answer = await lab.http.post(PATH, json=body)
        assert answer.status_code in {400, 413}, answer.text
        assert lab.analyzer.words.of("i1").words == ()
        return answer.text

    assert words in on(tmp_path, work)


def test_only_administrators_speak_and_of_what_there_is(tmp_path):
    async def work(lab):
        await tell(lab, incident(tasks=("train-a",)))
        lab.peer = "reader"
        problem(await lab.http.post(PATH, json=WRONG), 403)
        lab.peer = "admin"
        problem(await lab.http.post("/v1/incidents/i9/feedback", json=WRONG), 404)
        await lab.http.post(PATH, json=WRONG)
        lab.peer = "reader"
        seen = (await lab.http.get("/v1/incidents/i1")).json()["feedback"]
        lab.peer = "tenant"
        shown = (await lab.http.get("/v1/incidents/i1")).json()
        [listed] = (await lab.http.get("/v1/incidents")).json()["incidents"]
        return seen, shown["feedback"], listed.get("feedback")

    seen, shown, listed = on(tmp_path, work, readers=("reader",), tenants={"tenant": ("train-a",)})
    assert len(seen) == 1
    assert (shown, listed) == ([], None)  # a note may name anybody


def test_what_the_database_refuses_is_not_kept_in_memory_either(tmp_path):
    async def work(lab):
        await tell(lab, incident())
        await lab.analyzer.store._run(lambda c: c.execute("DROP TABLE words"))
        problem(await lab.http.post(PATH, json=WRONG), 503)
        return lab.analyzer.words.of("i1").words

    assert on(tmp_path, work) == ()


def test_incidents_events_and_findings_name_their_page(tmp_path):
    async def work(lab):
        seq = (await lab.events())["next"]
        await tell(lab, incident(state=IncidentState.CONFIRMED))
        [event] = (await lab.events(seq))["events"]
        shown = (await lab.http.get("/v1/incidents/i1")).json()
        [listed] = (await lab.http.get("/v1/incidents")).json()["incidents"]
        [finding] = (await lab.http.get("/v1/findings")).json()["findings"]
        return [each["runbook"] for each in (event["incident"], shown, listed, finding)]

    page = "https://wiki.example/n/{}.md".format
    named = on(tmp_path, work, runbooks=Runbooks(url="https://wiki.example/n/"))
    assert named == [page("switch-loses")] * 3 + [page("rnic-loses")]
