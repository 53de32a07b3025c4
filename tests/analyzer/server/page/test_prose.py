# SPDX-License-Identifier: Apache-2.0
from analyzer.server.page.prose import refusal, runbook
from tests.analyzer.server.page.looking import on


def test_a_runbook_leads_to_others_and_to_nothing_that_is_not_served():
    links = "[a](link-slow.md), [b](https://x/y.md), [c](../operating.md#z), [d](javascript:x)"
    text = f"# A <b>\n\n{links}"
    page = runbook(text, "link-loses").decode()
    assert "<title>A &lt;b&gt; &ndash; netagent</title>" in page
    assert '<a href="link-slow.md">a</a>, <a href="https://x/y.md">b</a>, c, d' in page
    assert "<script" not in page
    assert "style=" not in page
    assert "<title>A link loses packets" in runbook("no heading", "link-loses").decode()


def test_a_refusal_is_said_to_people_as_a_page_and_to_programs_as_json(tmp_path):
    async def work(looked):
        async with looked.browser() as browser:
            url = await looked.link("admin")
            assert (await browser.get(url)).status_code == 303
            async with looked.browser() as second:
                people = {"accept": "text/html,application/xhtml+xml"}
                answer = await second.get(url, headers=people)
                plain = await second.get(url)
                nowhere = await second.get("/no<b>", headers=people)
                data = await second.get("/v1/views/now", headers=people)
        return answer, plain, nowhere, data

    answer, plain, nowhere, data = on(tmp_path, work)
    assert (answer.status_code, answer.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert "This link was opened before, or is too old</h1>" in answer.text
    assert "netagent-analyzer open" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert plain.json()["error"] == "this link was opened before, or is too old"
    assert (nowhere.status_code, "<h1>Nothing is here" in nowhere.text) == (404, True)
    assert data.json()["error"].startswith("this needs a session")


def test_what_is_refused_is_text():
    assert "<h1>&lt;b&gt;</h1>" in refusal("<b>", "").decode()
