# SPDX-License-Identifier: Apache-2.0
"""What comes by itself, and that it is said when nothing does any more."""

from collections.abc import Callable

import pytest

from tests.page import sample
from tests.page.browser import Watched
from tests.page.standin import StandIn

pytestmark = pytest.mark.browser

Opener = Callable[..., Watched]
NEW = sample.short(id="00ff00ff00ff", component="switch spine-0", summary="spine-0 drops")


def live(it: Watched, standin: StandIn) -> None:
    it.open(standin.url + "#/now")
    it.until("document.querySelector('#news').textContent === 'Live'")


def test_an_incident_appears_and_is_spoken(opened: Opener, standin: StandIn) -> None:
    it = opened()
    live(it, standin)
    standin.tell("incident", {"event": "opened", "seq": 7, "incident": NEW}, 7)
    it.page.wait_for_selector("#incidents ~ * a:has-text('switch spine-0')")
    alarm = it.page.inner_text("#alarm")
    assert alarm == "New incident: switch spine-0. spine-0 drops"
    assert it.page.get_attribute("#alarm", "aria-live") == "assertive"


def test_one_that_is_certain_at_once_is_new_and_later_news_of_it_are_not(
    opened: Opener, standin: StandIn
) -> None:
    it = opened()
    live(it, standin)
    standin.tell("incident", {"event": "confirmed", "seq": 7, "incident": NEW}, 7)
    it.until("document.querySelector('#alarm').textContent.startsWith('New incident: switch')")
    standin.tell("incident", {"event": "revised", "seq": 8, "incident": NEW}, 8)
    it.until("document.querySelector('#said').textContent.startsWith('Revised: switch spine-0')")


def test_the_state_is_in_the_title(opened: Opener, standin: StandIn) -> None:
    it = opened()
    live(it, standin)
    standin.tell("tick", {"at_ns": sample.NOW_NS, "state": "blind", "line": "nothing is probed"})
    it.until("document.title === '(blind) Now \u2013 netagent'")
    assert "nothing is probed" in it.page.inner_text("#state")


def test_a_page_that_is_paused_stands_still(opened: Opener, standin: StandIn) -> None:
    it = opened()
    live(it, standin)
    it.page.click("#pause")
    it.until("document.querySelector('#news').textContent.startsWith('Paused')")
    asked = standin.asked.count("/v1/views/now")
    standin.tell("incident", {"event": "opened", "seq": 7, "incident": NEW}, 7)
    it.until("document.querySelector('#alarm').textContent.length > 0")
    assert "switch spine-0" not in it.page.inner_text("main")
    assert standin.asked.count("/v1/views/now") == asked
    it.page.click("#pause")
    it.until("document.querySelector('#news').textContent === 'Live'")


def test_a_lost_connection_is_said_and_comes_back(opened: Opener, standin: StandIn) -> None:
    it = opened()
    live(it, standin)
    standin.refuse = 503
    it.until("document.querySelector('#news').textContent.includes('No news since')")
    assert "lost" in (it.page.get_attribute("#news", "class") or "")
    it.screenshot("connection-lost")
    assert "link leaf-s0-r0 -- spine-1" in it.page.inner_text("main")
    standin.refuse = 0
    it.until("document.querySelector('#news').textContent === 'Live'")
    it.wrong = [each for each in it.wrong if "503" not in each]


def test_a_session_that_is_over_is_said(opened: Opener, standin: StandIn) -> None:
    it = opened()
    live(it, standin)
    standin.refuse = 401
    it.page.wait_for_selector("main h1:text-is('No session')")
    assert "netagent-analyzer open" in it.page.inner_text("main") or "ask" in it.page.inner_text(
        "main"
    )
    it.wrong = [each for each in it.wrong if "401" not in each]
