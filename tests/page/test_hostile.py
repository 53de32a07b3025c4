# SPDX-License-Identifier: Apache-2.0
"""Names that somebody made to be more than names stay text, in every field of every view."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.page.browser import VIEWS, Watched, answer
from tests.page.standin import StandIn

pytestmark = pytest.mark.browser

Opener = Callable[..., Watched]
HOSTILE = {
    "image": "<img src=x onerror=window.owned=1>",
    "script": '"><script>window.owned=1</script>',
    "link": "javascript:window.owned=1//' onclick='window.owned=1",
    "backwards": "\u202eevil\u2066 \u200f\u061c name",
    "long": "n" * 200,
    "markup": "</td></table><h1>all is well</h1>{{7*7}}${owned}",
}
ODD = """() => [...document.querySelectorAll('body *')].flatMap(each => [...each.attributes]
  .filter(a => a.name.startsWith('on') || a.name === 'style' || /^\\s*javascript:/i.test(a.value) &&
    ['href', 'src', 'action', 'formaction'].includes(a.name))
  .map(a => each.tagName + ' ' + a.name))"""
STRANGE = "document.querySelectorAll('main img, main script, main iframe, main object').length"


def hostile(value: Any, text: str, number: list[int]) -> Any:
    """Return the value with all its strings replaced, each by one of its own."""
    match value:
        case str():
            number[0] += 1
            return f"{text}{number[0]}"
        case dict():
            return {key: hostile(each, text, number) for key, each in value.items()}
        case list() | tuple():
            return [hostile(each, text, number) for each in value]
        case _:
            return value


@pytest.mark.parametrize("kind", HOSTILE)
def test_strings_stay_text(kind: str, opened: Opener, standin: StandIn) -> None:
    text = HOSTILE[kind]
    standin.answer = lambda what, query: hostile(answer(what, query), text, [0])
    it = opened()
    for view, link in VIEWS.items():
        it.open(standin.url + link)
        if view == "diagnose":
            it.page.wait_for_selector("#outcome")
        shown = it.page.evaluate("document.querySelector('main').textContent")
        assert text in shown, view
        assert it.page.evaluate("window.owned") is None, view
        assert it.page.evaluate(ODD) == [], view
        assert it.page.evaluate(STRANGE) == 0, view
        assert it.page.locator("main h1").count() == 1, view
        if kind == "long":
            it.screenshot(f"{view}-long-names")
            assert it.page.evaluate("document.documentElement.scrollWidth") <= 1280, view


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_comes_live_and_by_the_address_stays_text(
    kind: str, opened: Opener, standin: StandIn
) -> None:
    it = opened()
    it.open(standin.url + "#/now")
    it.until("document.querySelector('#news').textContent === 'Live'")
    [known, *_] = hostile(answer("views/now", {})["incidents"], HOSTILE[kind], [100])
    standin.tell("incident", {"event": "opened", "seq": 1, "incident": known}, 1)
    standin.tell("tick", hostile({"at_ns": 1, "state": "", "line": ""}, HOSTILE[kind], [0]))
    it.until(
        "text => document.querySelector('#state').textContent.includes(text) && "
        "document.querySelector('#alarm').textContent.includes(text)",
        arg=HOSTILE[kind],
    )
    script = "text => { location.hash = '#/task/' + encodeURIComponent(text); }"
    it.page.evaluate(script, HOSTILE[kind])
    it.until("document.title.startsWith('(') && document.title.includes('Task')")
    assert it.page.evaluate("window.owned") is None
    assert it.page.evaluate(ODD) == []
