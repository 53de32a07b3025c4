# SPDX-License-Identifier: Apache-2.0
"""The page without a mouse."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.page.browser import VIEWS, Watched
from tests.page.standin import StandIn

pytestmark = pytest.mark.browser

Opener = Callable[..., Watched]
FOCUSED = """() => {
  const at = document.activeElement;
  const drawn = getComputedStyle(at);
  return [at.tagName, at.id || at.textContent.trim().slice(0, 40),
    at === document.body || drawn.outlineStyle !== 'none' && parseFloat(drawn.outlineWidth) >= 2];
}"""
MOST = 400


def walk(page: Any) -> list[list[Any]]:
    """Return what the Tab key stops at, to the end of the page."""
    stops: list[list[Any]] = []
    page.evaluate("document.activeElement.blur()")
    for _ in range(MOST):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUSED)
        if stop[0] == "BODY":
            break
        stops.append(stop)
    return stops


@pytest.mark.parametrize("view", VIEWS)
def test_the_tab_key_stops_everywhere_visibly_and_comes_out_again(
    view: str, opened: Opener, standin: StandIn
) -> None:
    it = opened()
    it.open(standin.url + VIEWS[view])
    if view == "diagnose":
        it.page.wait_for_selector("#outcome")
    stops = walk(it.page)
    assert 10 < len(stops) < MOST
    assert stops[0][1] == "skip"
    assert [stop for stop in stops if not stop[2]] == []
    last = "help" if view == "diagnose" else "json"
    assert last in [stop[1] for stop in stops]


def test_the_skip_link_leads_to_the_view(opened: Opener, standin: StandIn) -> None:
    it = opened()
    it.open(standin.url + "#/now")
    it.page.keyboard.press("Tab")
    it.page.keyboard.press("Enter")
    assert it.page.evaluate("document.activeElement.id") == "view"
    assert it.page.url.endswith("#/now")


def test_shortcuts_lead_to_views_and_help_says_which(opened: Opener, standin: StandIn) -> None:
    it = opened()
    it.open(standin.url + "#/now")
    for key, heading in {
        "f": "Fabric",
        "m": "Matrix",
        "t": "Tasks",
        "h": "Hosts",
        "n": "Now",
    }.items():
        it.page.keyboard.press("g")
        it.page.keyboard.press(key)
        it.page.wait_for_selector(f"main h1:text-is('{heading}')")
        assert it.page.evaluate("document.activeElement.id") == "view"
    it.page.keyboard.press("?")
    it.page.wait_for_selector("dialog[open]")
    assert "go to Fabric" in it.page.inner_text("dialog")
    it.page.keyboard.press("Escape")
    it.page.wait_for_selector("dialog:not([open])", state="attached")
    it.page.keyboard.press("/")
    it.until("document.activeElement.id === 'source'")
    it.page.keyboard.type("g?p")
    assert it.page.input_value("#source") == "g?p"


def test_arrows_move_between_cells(opened: Opener, standin: StandIn) -> None:
    it = opened()
    it.open(standin.url + "#/matrix")
    it.page.locator("table.heat a[tabindex='0']").focus()
    label = "document.activeElement.getAttribute('aria-label')"
    assert it.page.evaluate(label).startswith("leaf-s0-r0 to leaf-s0-r1:")
    it.page.keyboard.press("ArrowRight")
    assert it.page.evaluate(label).startswith("leaf-s0-r0 to leaf-s1-r0: 46 of 240 lost (19 %)")
    it.page.keyboard.press("ArrowDown")
    assert it.page.evaluate(label).startswith("leaf-s0-r1 to leaf-s1-r0:")
    it.page.keyboard.press("Enter")
    it.until("location.hash.includes('by=host')")


def test_focus_stays_where_it_is_as_numbers_change(opened: Opener, standin: StandIn) -> None:
    it = opened()
    it.open(standin.url + "#/now")
    it.until("document.querySelector('#news').textContent === 'Live'")
    it.page.locator("main table a").nth(2).focus()
    before = it.page.evaluate("document.activeElement.getAttribute('href')")
    asked = standin.asked.count("/v1/views/now")
    with it.page.expect_response("**/v1/views/now"):
        standin.tell("tick", {"at_ns": 1, "state": "well", "line": "fine"})
    it.page.wait_for_selector("main:not([aria-busy])")
    assert standin.asked.count("/v1/views/now") == asked + 1
    assert it.page.evaluate("document.activeElement.getAttribute('href')") == before
