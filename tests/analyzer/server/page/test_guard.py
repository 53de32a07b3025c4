# SPDX-License-Identifier: Apache-2.0
import asyncio
import time
from types import SimpleNamespace

import pytest
import structlog

from analyzer.server.page.guard import MAX_UNDER_WAY, POLICY
from analyzer.server.page.sessions import LINK_NS, SESSION_NS
from netagent.model.errors import CapabilityMissing
from tests.analyzer.server.page.looking import OTHER, PORT, TENANT, on
from tests.waiting import until

NOW = "/v1/views/now"
ORIGIN = f"http://127.0.0.1:{PORT}"
"""Of a page without TLS, as these tests have it."""


def refused(answer, status):
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error", "remedy"}
    return answer.json()["error"]


def test_who_shows_no_certificate_and_has_no_session_sees_the_page_and_no_data(tmp_path):
    async def work(looked):
        browser = looked.browser()
        assert "session" in refused(await browser.get(NOW), 401)
        browser.cookies.set(f"__Host-netagent-{PORT}", "guessed")
        refused(await browser.get(NOW), 401)
        refused(await browser.get("/v1/diagnoses/x"), 401)
        page = await browser.get("/")
        assert (page.status_code, page.text) == (200, "<p>the page")

    on(tmp_path, work)


def test_certificates_are_worth_what_they_are_worth_elsewhere(tmp_path):
    async def work(looked):
        for peer, tasks in (("admin", 3), ("reader", 3), (TENANT, 1)):
            answer = await looked.browser(peer).get(NOW)
            assert answer.json()["counts"]["tasks"] == tasks
        refused(await looked.browser("h0").get(NOW), 403)

    on(tmp_path, work)


def test_a_session_sees_what_who_asked_for_it_may_see(tmp_path):
    async def work(looked):
        for peer, body, tasks in (
            ("reader", {}, 3), (TENANT, {}, 1), ("admin", {"for": TENANT}, 1), ("admin", {}, 3),
        ):  # fmt: skip
            browser = await looked.session(peer, **body)
            assert (await browser.get(NOW)).json()["counts"]["tasks"] == tasks

    on(tmp_path, work)


def test_a_session_goes_before_a_certificate(tmp_path):
    async def work(looked):
        admin = looked.browser("admin")
        await admin.get(await looked.link("admin", **{"for": TENANT}))
        assert (await admin.get(NOW)).json()["counts"]["tasks"] == 1

    on(tmp_path, work)


def test_a_link_is_opened_once_by_whoever_has_it(tmp_path):
    async def work(looked):
        url = await looked.link("reader")
        first, second = looked.browser(), looked.browser()
        with structlog.testing.capture_logs() as logs:
            entered = await first.get(url)
        assert [(e["event"], e["asked"]) for e in logs] == [("page_session_begun", "reader")]
        assert url.rpartition("/")[2] not in str(logs)
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        said = entered.headers["set-cookie"]
        for each in ("Path=/", "Secure", "HttpOnly", "SameSite=Strict", "Max-Age=43200"):
            assert each in said.split("; ")
        assert "domain" not in said.lower()
        assert "another one" in (await second.get(url)).json()["remedy"]
        refused(await second.get(NOW), 401)

    on(tmp_path, work)


def test_links_and_sessions_end_by_themselves(tmp_path):
    async def work(looked):
        begun_ns = time.monotonic_ns()
        url, browser = await looked.link("reader"), await looked.session("reader")
        looked.analyzer.monotonic = lambda: begun_ns + LINK_NS + 10**9
        refused(await looked.browser().get(url), 403)
        old = url.replace("http:", "https:")  # the cookie is sent nowhere else
        again = await browser.get(old)
        assert (again.status_code, again.headers.get("location")) == (303, "/")
        assert (await browser.get(NOW)).status_code == 200
        looked.analyzer.monotonic = lambda: begun_ns + SESSION_NS + 60 * 10**9
        refused(await browser.get(NOW), 401)
        refused(await browser.get(old), 403)

    on(tmp_path, work)


def test_where_a_certificate_is_revoked_its_sessions_end(tmp_path):
    async def work(looked):
        mine, others = await looked.session("reader"), await looked.session(TENANT)
        looked.analyzer.trust = SimpleNamespace(revoked=frozenset({"reader"}))
        try:
            refused(await mine.get(NOW), 401)
            assert (await others.get(NOW)).status_code == 200
        finally:
            looked.analyzer.trust = None

    on(tmp_path, work)


def test_who_is_named_by_the_configuration_no_more_sees_nothing(tmp_path):
    async def work(looked):
        browser = await looked.session(OTHER)
        looked.analyzer.config = looked.analyzer.config.__class__(
            database=looked.analyzer.config.database, page=looked.analyzer.config.page,
            insecure=True,
        )  # fmt: skip
        refused(await browser.get(NOW), 403)

    on(tmp_path, work)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST", "OPTIONS", "HEAD"])
def test_nothing_is_written_here(tmp_path, method):
    async def work(looked):
        browser = looked.browser("admin")
        for path in ("/v1/tasks/t0", "/v1/views/now", "/v1/sessions", "/"):
            answer = await browser.request(method, path, headers={"origin": ORIGIN})
            assert answer.status_code == 405

    on(tmp_path, work)


def test_the_rest_of_the_api_is_not_here(tmp_path):
    async def work(looked):
        browser = looked.browser("admin")
        for path in ("/v1/agents", "/v1/recording", "/metrics", "/schema/openapi.json", "/x",
                     "/static/../config.py", "/static/none.js", "/static/"):  # fmt: skip
            refused(await browser.get(path), 404)

    on(tmp_path, work)


def test_only_the_page_itself_may_ask_for_a_diagnosis(tmp_path):
    async def work(looked):
        browser = await looked.session("admin")
        body = {"source": "c0/rail0", "target": "nobody/rail0"}
        for origin in (None, "https://evil.example", "null", f"https://127.0.0.1:{PORT}"):
            headers = {"origin": origin} if origin else {}
            refused(await browser.post("/v1/diagnose", json=body, headers=headers), 403)
        mine = ORIGIN
        asked = await browser.post("/v1/diagnose", json=body, headers={"origin": mine})
        assert "nobody" in refused(asked, 404)
        form = {"origin": mine, "content-type": "text/plain"}
        refused(await browser.post("/v1/diagnose", content=b"{}", headers=form), 415)
        tenant = await looked.session(TENANT)
        refused(await tenant.post("/v1/diagnose", json=body, headers={"origin": mine}), 403)

    on(tmp_path, work)


def test_only_the_page_of_an_administrator_may_ask_whether_a_task_was_well(tmp_path):
    async def work(looked):
        browser, path = await looked.session("admin"), "/v1/tasks/t0/inquiry"
        body, mine = {"minutes": 30}, {"origin": ORIGIN}
        for origin in (None, "https://evil.example", "null"):
            headers = {"origin": origin} if origin else {}
            refused(await browser.post(path, json=body, headers=headers), 403)
        assert looked.analyzer.inquired == {}
        cross = mine | {"sec-fetch-site": "cross-site"}
        refused(await browser.post(path, json=body, headers=cross), 403)
        for peer in ("reader", TENANT):
            other = await looked.session(peer)
            assert not (await other.get("/v1/views/task/t0")).json()["may_inquire"]
            refused(await other.post(path, json=body, headers=mine), 403)
        refused(await browser.get(path), 405)
        form = mine | {"content-type": "text/plain"}
        refused(await browser.post(path, content=b"{}", headers=form), 415)
        for wrong in ({}, {"minutes": 0}, {"minutes": 10**6}, {"minutes": 1, "since": 2}):
            refused(await browser.post(path, json=wrong, headers=mine), 400)
        refused(await browser.post("/v1/tasks/none/inquiry", json=body, headers=mine), 404)
        refused(await browser.post("/v1/tasks/t0/inquiry/x", json=body, headers=mine), 405)
        answer = await browser.post(path, json=body, headers=mine)
        told = answer.json()
        assert (told["until_ns"] - told["since_ns"], told["verdict"]) == (
            30 * 60 * 10**9, "cannot tell",
        )  # fmt: skip
        shown = (await browser.get("/v1/views/task/t0")).json()
        assert (shown["inquiry"], shown["may_inquire"]) == (told, True)

    on(tmp_path, work)


def test_what_other_sites_have_a_browser_send_is_refused(tmp_path):
    async def work(looked):
        browser = looked.browser("admin")
        for site, status in (("cross-site", 403), ("same-site", 403), ("none", 200)):
            answer = await browser.get(NOW, headers={"sec-fetch-site": site})
            assert answer.status_code == status
        assert (await browser.get("/", headers={"sec-fetch-site": "cross-site"})).status_code == 200

    on(tmp_path, work)


def test_every_answer_says_what_may_become_of_it(tmp_path):
    async def work(looked):
        browser = await looked.session("reader")
        for path, caching in (
            ("/", "no-cache"), ("/static/now.js", "no-cache"), (NOW, "no-store"),
            ("/nothing", "no-store"), ("/v1/views/task/x", "no-store"), ("/session/x", "no-store"),
        ):  # fmt: skip
            headers = (await browser.get(path)).headers
            assert headers["content-security-policy"] == POLICY
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert headers.get_list("cache-control") == [caching]

    on(tmp_path, work)


def test_a_file_that_a_browser_has_is_not_sent_again(tmp_path):
    async def work(looked):
        browser = looked.browser()
        whole = await browser.get("/static/now.js")
        assert whole.headers["content-type"].startswith("text/javascript")
        again = await browser.get(
            "/static/now.js", headers={"if-none-match": whole.headers["etag"]}
        )
        assert (again.status_code, again.content) == (304, b"")

    on(tmp_path, work)


def test_without_tls_a_name_that_leads_here_is_no_way_in(tmp_path):
    """A site whose name is made to resolve to this machine (DNS rebinding)."""

    async def work(looked):
        config = looked.analyzer.config
        looked.analyzer.config = type(config)(database=config.database, page=config.page)
        browser = looked.browser(None)
        for host, status in (
            ("evil.example", 403), ("evil.example:8443", 403), ("", 403), ("127.0.0.1:8443", 200),
            ("localhost:8443", 200), ("[::1]:8443", 200), ("localhost", 200), ("[::1]", 200),
        ):  # fmt: skip
            answer = await browser.get(NOW, headers={"host": host})
            assert answer.status_code == status, host

    on(tmp_path, work)


def test_a_cookie_that_makes_no_sense_is_none(tmp_path):
    async def work(looked):
        answer = await looked.browser().get(NOW, headers={"cookie": "a=b; \x01=\x02; []=1"})
        refused(answer, 401)

    on(tmp_path, work)


CROSS = ("cross-site", "same-site")


@pytest.mark.parametrize("site", CROSS)
def test_no_site_leads_anybody_into_a_session_of_somebody_else(tmp_path, site):
    """An operator who sees as a tenant does, and does not know it, sees that all is well."""

    async def work(looked):
        url, admin = await looked.link(TENANT), looked.browser("admin")
        answer = await admin.get(url, headers={"sec-fetch-site": site})
        assert "another site" in refused(answer, 403)
        assert "set-cookie" not in answer.headers
        assert (await admin.get(NOW)).json()["counts"]["tasks"] == 3
        assert (await admin.get(url, headers={"sec-fetch-site": "none"})).status_code == 303

    on(tmp_path, work)


def test_who_hangs_up_is_counted_until_the_work_is_done(tmp_path):
    """Connections bound nothing: a request goes on after its connection has ended."""

    async def work(looked):
        release = asyncio.Event()
        looked.page.looks.at = _held(release)
        first = looked.browser(TENANT)
        asked = [asyncio.create_task(first.get(NOW)) for _ in range(MAX_UNDER_WAY)]
        await until(lambda: looked.guard._under_way[TENANT] == MAX_UNDER_WAY)
        refused(await first.get(NOW), 429)
        refused(await (await looked.session(TENANT)).get("/v1/views/tasks"), 429)
        assert (await looked.browser("reader").get("/v1/views/tasks")).status_code == 200
        release.set()
        assert {each.status_code for each in await asyncio.gather(*asked)} == {200}
        assert (await first.get("/v1/views/tasks")).status_code == 200
        assert looked.analyzer.sessions.refused["requests"] == 2

    on(tmp_path, work)


def _held(release):
    async def at(_):
        await release.wait()
        raise CapabilityMissing("the judge", "wait")

    return at


def test_refusals_are_counted_by_why(tmp_path):
    async def work(looked):
        stranger = looked.browser()
        await stranger.get(NOW)
        await stranger.get("/session/guessed")
        await stranger.get(NOW, headers={"sec-fetch-site": "cross-site"})
        await looked.browser("admin").post("/v1/diagnose", headers={"origin": "null"}, json={})
        assert looked.analyzer.sessions.refused == {
            "session": 1, "link": 1, "site": 2, "requests": 0, "connection": 0,
        }  # fmt: skip

    on(tmp_path, work)


def test_a_session_is_found_among_others_cookies_and_only_by_its_whole_name(tmp_path):
    async def work(looked):
        session = await looked.session("reader")
        [token] = session.cookies.values()
        mine, stranger = f"__Host-netagent-{PORT}={token}", looked.browser()
        for cookie, status in (
            (mine, 200), (f"a=b; {mine}", 200), (f"{mine}; c=d", 200), (f"a=b; {mine}; c=d", 200),
            (f"x{mine}", 401), (f"a=b; x{mine}", 401), (f"{mine}x", 401), ("", 401), ("; =;", 401),
            (f"__Host-netagent-{PORT + 1}={token}", 401), ("a=b; " * 60_000 + mine, 200),
        ):  # fmt: skip
            answer = await stranger.get(NOW, headers={"cookie": cookie})
            assert (cookie[-90:], answer.status_code) == (cookie[-90:], status)

    on(tmp_path, work)
