# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from analyzer.config import Config
from analyzer.server.page.sessions import LINK_NS
from analyzer.server.page.streams import MAX_OF_NAME
from netagent.model.task import Task
from tests.analyzer.server.page.looking import OTHER, PORT, TENANT, THEIRS, incident, on
from tests.waiting import until

VIEWS = (
    "now", "fabric", "matrix", "matrix?by=host", "matrix?by=rail", "matrix?by=task", "tasks",
    "task/t0", "incident/i1", "incident/i3", "pair?source=c0/rail0&target=c1/rail0", "host/h0",
    "hosts", "endpoints", "endpoints?q=c",
)  # fmt: skip
OTHERS = (
    "task/t1", "task/none", "incident/i2", "incident/none", "host/h2", "host/none",
    "pair?source=c2/rail0&target=c3/rail0", "pair?source=c0/rail0&target=c2/rail0",
)  # fmt: skip

NAMING = (
    "fabric", "matrix?by=host", "matrix?by=task", "tasks", "hosts", "endpoints?q=c", "incident/i3",
    "now",
)  # fmt: skip


async def told(looked):
    """Let there be an incident of mine, one of others, and one of both."""
    others = incident("i2", "t1", summary="c2/rail0 loses")
    await looked.tell(incident("i1", "t0"), others, incident("i3", "t0", "t1"))
    await looked.analyzer.service.put_task(declared("t1", "c2", "c3", "c9"), 0)


def declared(name, *containers):
    return Task(name, containers, 2, (0, 1), declared=True)


@pytest.mark.parametrize("view", VIEWS)
def test_a_tenant_s_session_shows_that_tenant_alone(tmp_path, view):
    async def work(looked):
        await told(looked)
        whole = await (await looked.session("reader")).get(f"/v1/views/{view}")
        mine = await (await looked.session(TENANT)).get(f"/v1/views/{view}")
        assert (whole.status_code, mine.status_code) == (200, 200), (whole.text, mine.text)
        text = mine.text.replace('"', " ")
        named = [each for each in (*THEIRS, "c9", "i2") if f" {each}" in text]
        assert named == []

    on(tmp_path, work)


def test_each_view_would_name_others_to_who_may_see_them(tmp_path):
    """That the names looked for above are the ones that views have."""

    async def work(looked):
        await told(looked)
        reader = await looked.session("reader")
        for view in NAMING:
            text = (await reader.get(f"/v1/views/{view}")).text
            assert any(f'"{each}' in text for each in THEIRS), view

    on(tmp_path, work)


@pytest.mark.parametrize("view", OTHERS)
def test_what_a_tenant_may_not_see_is_as_if_it_were_not_there(tmp_path, view):
    async def work(looked):
        await told(looked)
        tenant = await looked.session(TENANT)
        answer = await tenant.get(f"/v1/views/{view}")
        assert answer.status_code == 404, answer.text
        other = view.replace("none", "nobody").replace("i2", "i9").replace("t1", "t9")
        nothing = await tenant.get(f"/v1/views/{other}")
        assert nothing.status_code == 404

    on(tmp_path, work)


@pytest.mark.parametrize(
    "view",
    ["matrix?by=spine", "hosts?limit=0", "hosts?limit=1000", f"hosts?q={'x' * 2000}",
     "pair?source=a&target=b", "pair"],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_a_remedy(tmp_path, view):
    async def work(looked):
        answer = await (await looked.session("reader")).get(f"/v1/views/{view}")
        assert answer.status_code == 400
        assert answer.json()["remedy"]

    on(tmp_path, work)


def test_a_link_is_for_who_asks_or_for_a_tenant_where_an_administrator_asks(tmp_path):
    async def work(looked):
        async with looked.browser("admin", app="api") as admin:
            answer = (await admin.post("/v1/sessions", json={})).json()
            assert answer["url"].startswith(f"http://127.0.0.1:{PORT}/session/")
            assert 0 < answer["expires_ns"] - looked.analyzer.clock() <= LINK_NS
            wrong = await admin.post("/v1/sessions", json={"for": "nobody"})
            assert wrong.status_code == 400
        for peer in ("reader", TENANT):
            async with looked.browser(peer, app="api") as asking:
                refused = await asking.post("/v1/sessions", json={"for": OTHER})
                assert refused.status_code == 403
        async with looked.browser("h0", app="api") as agent:
            assert (await agent.post("/v1/sessions", json={})).status_code == 403

    on(tmp_path, work)


def test_on_all_addresses_the_link_is_to_that_by_which_one_came(tmp_path):
    async def work(looked):
        looked.analyzer.page_at = "::", PORT
        async with looked.browser("admin", app="api") as admin:
            asked = await admin.post("/v1/sessions", json={}, headers={"host": "[fd00::1]:8420"})
        assert asked.json()["url"].startswith(f"http://[fd00::1]:{PORT}/session/")

    on(tmp_path, work)


def test_where_there_is_no_page_there_is_no_link(tmp_path):
    async def work(looked):
        looked.analyzer.page_at = None
        async with looked.browser("admin", app="api") as admin:
            answer = await admin.post("/v1/sessions", json={})
        assert (answer.status_code, "[page]" in answer.json()["remedy"]) == (404, True)

    on(tmp_path, work)


def test_by_default_there_is_no_page():
    assert Config().page is None


async def heard(looked, peer, **headers):
    """Return the kinds and numbers of what a stream says until the server stops."""
    browser = looked.browser(peer)
    asking = asyncio.create_task(browser.get("/v1/views/events", headers=headers))
    await until(lambda: looked.page.streams._of[peer])
    looked.analyzer.waiters.stop()
    answer = await asking
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [line for line in answer.text.splitlines() if line.startswith("id: ")]


@pytest.mark.parametrize("last", [True, False])
def test_who_comes_again_goes_on_behind_what_it_heard(tmp_path, last):
    async def work(looked):
        await looked.tell(incident("i1", "t0"), incident("i2", "t0"))
        first, second = looked.analyzer.journal.events(0)
        given = {"last-event-id": str(first.seq)} if last else {"last-event-id": "none"}
        assert await heard(looked, "reader", **given) == ([f"id: {second.seq}"] if last else [])
        assert not looked.page.streams._of

    on(tmp_path, work)


def test_of_a_name_there_are_so_many_streams(tmp_path):
    async def work(looked):
        for _ in range(MAX_OF_NAME):
            looked.page.streams.begin("reader")
        refused = await looked.browser("reader").get("/v1/views/events")
        assert (refused.status_code, "remedy" in refused.json()) == (503, True)

    on(tmp_path, work)


@pytest.mark.parametrize("last", ["9" * 5000, "-1", "\u0665", "nan"])
def test_a_number_that_is_none_of_ours_begins_a_stream_from_now_on(tmp_path, last):
    """Each would be an exception in the log, which others pay for."""

    async def work(looked):
        await told(looked)
        looked.analyzer.waiters.stop()  # so that the stream ends
        browser = await looked.session(TENANT)
        answer = await browser.get(
            "/v1/views/events", headers={b"last-event-id": last.encode("utf-8")}
        )
        assert (answer.status_code, answer.text) == (200, "retry: 2000\n\n")

    on(tmp_path, work)


@pytest.mark.parametrize(
    ("view", "theirs", "nobodys"),
    [
        ("matrix?by=host&row={}", "h2", "h7"), ("matrix?by=host&row=h0&col={}", "h3", "h7"),
        ("matrix?by=task&row={}", "t1", "t7"),
        ("matrix?by=host&row={}", "leaf-s1-r0", "leaf-s7-r0"),
        ("task/{}", "t1", "t7"), ("incident/{}", "i2", "i7"), ("host/{}", "h2", "h7"),
        ("hosts?q={}", "h2", "h7"), ("endpoints?q={}", "c2/", "c7/"),
        ("pair?source={}/rail0&target=c0/rail0", "c2", "c7"),
        ("pair?source=c0/rail0&target={}/rail0", "c2", "c7"),
    ],
)  # fmt: skip
def test_nothing_tells_what_is_another_s_from_what_is_not_there(tmp_path, view, theirs, nobodys):
    async def work(looked):
        await told(looked)
        browser, said = await looked.session(TENANT), []
        for name in (theirs, nobodys):
            answer = await browser.get(f"/v1/views/{view.format(name)}")
            headers = {k: v for k, v in answer.headers.items() if k != "content-length"}
            said.append((answer.status_code, answer.text.replace(name, "NAME"), headers))
        assert said[0] == said[1]

    on(tmp_path, work)
