# SPDX-License-Identifier: Apache-2.0
"""Every view in a real browser: it says what it was given, to all eyes, in all sizes."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.page import sample
from tests.page.browser import VIEWS, Watched, answer
from tests.page.standin import StandIn

pytestmark = pytest.mark.browser

Opener = Callable[..., Watched]
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SAID = {
    "now": ["link leaf-s0-r0 -- spine-1", "hosts silent", "1 of 4", "12 of 96", "told late"],
    "fabric": ["19 %", "171 of 880", "h3", "not probed", "suspect, silent"],
    "matrix": ["leaf-s0-r0", "46 of 240", "19%"],
    "matrix-of-pairs": ["train-a-0/rail0", "h0 to h2"],
    "tasks": ["train-a", "innocent", sample.SILENT["component"]],
    "task": [
        "The network was not innocent",
        "3 of 4 hosts sent all 360 windows",
        "train-a-4",
        "data parallel",
        "2026-11-27 10:40:00 CET",
    ],
    "incident": [sample.FLOW, "8 of 40", "netagent-analyzer diagnose", "A link loses", "12 more"],
    "incidents": ["not known: insufficient evidence", "Older", "not over", "agent h3"],
    "pair": ["49153", "not traced", "spine-1", "network, there and back"],
    "hosts": ["h0", "heard", "42 s ago"],
    "host": ["Nothing was heard", "1 incident is active", "MTU of 1500", "out_of_sequence"],
    "diagnose": ["The way there", "The way back", "8 of 40 probes lost", sample.FLOW],
}


def axe() -> str:
    found = importlib.util.find_spec("axe_playwright_python")
    assert found is not None
    assert found.origin is not None
    return (Path(found.origin).parent / "axe.min.js").read_text()


def broken(page: Any) -> list[str]:
    """Return which rules of axe a page breaks, and where."""
    page.evaluate(axe())
    found = page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_says_what_it_was_given(view: str, opened: Opener, standin: StandIn) -> None:
    it = opened()
    it.open(standin.url + VIEWS[view])
    for details in it.page.query_selector_all("main details"):
        details.evaluate("each => { each.open = true; }")
    it.until(
        "texts => texts.every(text => document.querySelector('main').innerText.includes(text))",
        SAID[view],
    )


@pytest.mark.parametrize(("size", "colours"), [("wide", "light"), ("narrow", "dark")])
def test_all_can_read_it_in_any_size_and_colours(
    size: str, colours: str, opened: Opener, standin: StandIn
) -> None:
    """Contrast is the colours', room the size's: each of both once."""
    it = opened(size, colours)
    found = {}
    for view, link in VIEWS.items():
        it.open(standin.url + link)
        if view == "diagnose":
            it.page.wait_for_selector("#outcome")
        it.screenshot(f"{view}-{size}-{colours}")
        sideways = it.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        found[view] = [*broken(it.page), *([f"{sideways} px too wide"] if sideways > 0 else [])]
    assert {view: wrong for view, wrong in found.items() if wrong} == {}


def test_the_largest_answers_are_drawn(opened: Opener, standin: StandIn) -> None:
    large = {"views/fabric": sample.large_fabric(), "views/matrix": sample.large_matrix()}
    standin.answer = lambda what, query: large.get(what) or answer(what, query)
    it = opened()
    it.open(standin.url + "#/fabric")
    marks = it.page.evaluate("document.querySelectorAll('svg.fabric *').length")
    assert marks < 12 * (len(large["views/fabric"]["nodes"]) + len(large["views/fabric"]["links"]))
    assert it.page.locator("svg.fabric .node").count() == len(large["views/fabric"]["nodes"])
    it.screenshot("fabric-large")
    it.open(standin.url + "#/matrix")
    assert it.page.locator("table.heat td a").count() == 64 * 63
    assert it.page.locator("table.heat td a[tabindex='0']").count() == 1
    it.screenshot("matrix-large")


def test_a_matrix_opens_down_to_pairs(opened: Opener, standin: StandIn) -> None:
    it = opened()
    it.open(standin.url + "#/matrix")
    for where in ("by=host&row=leaf", "by=host&row=h", "#/pair?source=train-a"):
        it.page.locator("table.heat td a").first.click()
        it.until("part => location.hash.includes(part)", where)
        it.page.wait_for_selector("main h1")
        it.page.wait_for_selector("main:not([aria-busy])")
        it.until("!document.querySelector('main .quiet')?.textContent.startsWith('Loading')")


def test_each_view_links_to_its_json(opened: Opener, standin: StandIn) -> None:
    it = opened()
    for view in ("now", "task", "pair", "matrix-of-pairs"):
        it.open(standin.url + VIEWS[view])
        assert it.page.get_attribute("#json", "href") in standin.asked


def test_times_are_the_viewers_and_utc(opened: Opener, standin: StandIn) -> None:
    it = opened()
    it.open(standin.url + VIEWS["incident"])
    at = it.page.locator("main time").first
    assert at.inner_text() == "2026-11-27 12:36:50 CET (2026-11-27 11:36:50 UTC)"
    assert at.get_attribute("datetime") == "2026-11-27T11:36:50.000Z"


def test_what_is_not_known_is_said(opened: Opener, standin: StandIn) -> None:
    it = opened()

    def refused(what: str, query: dict[str, Any]) -> Any:
        raise KeyError(what)

    standin.answer = refused
    it.page.goto(standin.url + "#/incident/none")
    it.page.wait_for_selector("main .note")
    assert "nothing at views/incident/none" in it.page.inner_text("main")
    assert all("404" in each for each in it.wrong)
    it.wrong.clear()


def test_an_address_that_names_no_view_is_told_so(opened: Opener, standin: StandIn) -> None:
    it = opened()
    for view in ("nosuch", "missing", "toString", "%3Cb%3E"):
        it.open(standin.url + f"#/{view}")
        assert it.page.inner_text("main h1") == "There is no such view"
        assert view in it.page.inner_text("main p.lead")
        assert "No such view" in it.page.title()
    it.open(standin.url + "#/")
    assert it.page.inner_text("main h1") == "Now"


def test_colours_can_be_switched_and_are_kept(opened: Opener, standin: StandIn) -> None:
    it = opened("wide", "light")
    it.open(standin.url + "#/now")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = it.page.evaluate(ground)
    it.page.select_option("#theme", "dark")
    dark = it.page.evaluate(ground)
    assert dark != light
    it.open(standin.url + "#/now")
    assert it.page.evaluate(ground) == dark


def test_a_command_is_copied(opened: Opener, standin: StandIn) -> None:
    it = opened(permissions=["clipboard-read", "clipboard-write"])
    it.open(standin.url + VIEWS["incident"])
    it.page.locator(".commands button").first.click()
    it.until("document.querySelector('#said').textContent === 'Copied.'")
    copied = it.page.evaluate("navigator.clipboard.readText()")
    assert copied == sample.incident()["commands"][0]["command"]


def test_a_task_is_walked_pair_by_pair(opened: Opener, standin: StandIn) -> None:
    it = opened()
    it.open(standin.url + "#/diagnose")
    it.page.fill("#task", "train-a")
    it.page.press("#task", "Enter")
    it.page.wait_for_selector("text=2 of 2 pairs walked; 1 not delivered.")
    assert standin.posted == [{"task": "train-a"}]
    assert it.page.url.endswith("#/diagnose?task=train-a")


def test_ends_are_completed_and_diagnosed(opened: Opener, standin: StandIn) -> None:
    it = opened()
    it.open(standin.url + "#/diagnose")
    it.page.fill("#source", "train-a-0/rail0")
    it.page.wait_for_selector("#source-list option", state="attached")
    it.page.fill("#target", "train-a-2/rail0")
    it.page.press("#target", "Enter")
    it.page.wait_for_selector("#outcome")
    assert standin.posted == [{"source": "train-a-0/rail0", "target": "train-a-2/rail0"}]
    assert any(each.startswith("/v1/views/endpoints?q=train-a-0") for each in standin.asked)


def test_who_may_asks_whether_the_network_was_innocent(opened: Opener, standin: StandIn) -> None:
    it = opened()
    it.open(standin.url + VIEWS["task"])
    it.page.select_option("#minutes", "10")
    it.page.click("#inquire")
    it.page.wait_for_selector("text=The network was innocent")
    assert standin.posted == [{"minutes": 10}]
    assert "/v1/tasks/train-a/inquiry" in standin.asked
    assert it.page.locator("#innocence >> text=3 of 4 hosts sent all 360 windows").count() == 1
    standin.answer = lambda what, query: sample.task() | {"may_inquire": False}
    it.page.press("body", "r")
    it.until("!document.getElementById('inquire')")


def test_an_older_answer_stands_behind_what_happened_since(
    opened: Opener, standin: StandIn
) -> None:
    told = sample.task()
    told["inquiry"] |= {
        "verdict": "innocent",
        "against": [],
        "at_ns": sample.NOW_NS - 600 * sample.S,
    }
    standin.answer = lambda what, query: (
        told if what == "views/task/train-a" else answer(what, query)
    )
    it = opened()
    it.open(standin.url + VIEWS["task"])
    lead = it.page.inner_text("#innocence .lead")
    assert "2 incidents are active" in lead
    assert sample.SILENT["component"] in lead
    assert "well" not in (it.page.get_attribute("#innocence p:not(.lead) .badge", "class") or "")
    assert "The network was innocent" in it.page.inner_text("#innocence")


def test_that_an_inquiry_was_refused_is_said(opened: Opener, standin: StandIn) -> None:
    it = opened()
    it.open(standin.url + VIEWS["task"])

    def refused(what: str, query: dict[str, Any]) -> Any:
        if what.endswith("/inquiry"):
            raise KeyError(what)
        return answer(what, query)

    standin.answer = refused
    it.page.click("#inquire")
    it.page.wait_for_selector("#innocence [role=alert]")
    assert "nothing at tasks/train-a/inquiry" in it.page.inner_text("#innocence")
    assert it.page.is_enabled("#inquire")
    it.wrong.clear()


def test_incidents_are_turned_over_and_chosen(opened: Opener, standin: StandIn) -> None:
    it = opened()
    it.open(standin.url + VIEWS["incidents"])
    it.page.click(".pages a >> text=Older")
    it.until("document.querySelector('main').innerText.includes('flow h1/br-int/table=8')")
    assert "state=active" in it.page.url
    it.page.click(".pages a >> text=Newest")
    it.page.wait_for_selector("text=agent h3")
    it.page.select_option("#layer", "overlay")
    it.page.fill("#component", "br-int")
    it.page.press("#component", "Enter")
    expected = "/v1/views/incidents?state=active&layer=overlay&component=br-int"
    it.until("href => document.getElementById('json').getAttribute('href') === href", expected)
    it.page.wait_for_selector("main:not([aria-busy])")
    assert expected in standin.asked
