# SPDX-License-Identifier: Apache-2.0
import time
from types import SimpleNamespace

import pytest
import structlog

from analyzer.server.page.guard import POLICY
from analyzer.server.page.sessions import LINK_NS, SESSION_NS
from tests.analyzer.server.page.looking import OTHER, PORT, TENANT, on

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
