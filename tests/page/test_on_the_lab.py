# SPDX-License-Identifier: Apache-2.0
"""The page as people use it: opened by a link of one use, while something breaks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BROWSER, OVS, require
from tests.page import sample
from tests.page.browser import ARGUMENTS, SIZES, VIEWS, Network, Watched
from tests.page.lab import Lab, lab

pytestmark = [pytest.mark.browser, pytest.mark.lab]

FOUND_S = 120
"""Seconds until a link that loses is told. Chosen: some windows, on a machine that is busy."""
PUSHED_MS = 3_000
"""Milliseconds from an event to the page. Chosen: less than a window, on a machine that is busy."""
WATCH = """component => {
  window.seen = null;
  const look = () => {
    for (const each of document.querySelectorAll('#incidents ~ * table a[href^="#/incident/"]')) {
      if (window.seen === null && each.textContent === component) window.seen = Date.now();
    }
  };
  const all = {subtree: true, childList: true};
  new MutationObserver(look).observe(document.querySelector('main'), all);
}"""
LINK = "link leaf-s0-r0 -- spine-0"
NAMED = {"counters", "groups", "health"}
"""Keys whose own keys are names, or not the page's to know."""


def shape(value: Any, path: str = "") -> set[str]:
    """Return the paths of all keys."""
    match value:
        case dict():
            inner = {} if path.rpartition(".")[2] in NAMED else value
            found = {f"{path}.{key}" for key in inner}
            return found.union(*(shape(each, f"{path}.{key}") for key, each in inner.items()))
        case list():
            return set[str]().union(*(shape(each, path) for each in value))
        case _:
            return set()


@pytest.fixture(scope="module")
def broken() -> Iterator[Lab]:
    require(OVS)
    require(BROWSER)
    with lab() as made:
        yield made


@pytest.fixture(scope="module")
def page(
    playwright: Any, broken: Lab, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    command = Network(None).command(Path(tmp_path_factory.mktemp("browser")))
    browser = playwright.chromium.launch(executable_path=command, args=ARGUMENTS)
    # The lab signs its own certificates.
    context = browser.new_context(ignore_https_errors=True, viewport=SIZES["wide"])
    link = broken.link()
    it = Watched(context.new_page(), link.partition("/session/")[0])
    it.page.goto(link)
    it.page.wait_for_selector("main h1")
    yield it
    browser.close()


def test_the_page_follows_a_lab_that_breaks(broken: Lab, page: Watched) -> None:
    origin = page.page.url
    page.until("document.querySelector('#news').textContent === 'Live'")
    page.until("document.querySelector('#state').textContent.length > 0")
    page.screenshot("lab-well")

    after = broken.ask("/v1/incidents/events")["next"]
    page.page.evaluate(WATCH, LINK)
    broken.inject("link-loss", "--percent", "20")
    event = broken.named(after, FOUND_S)
    assert event["incident"]["component"] == LINK
    page.until("window.seen !== null")
    # An event's number is when it was told, in nanoseconds of the same clock.
    late_ms = page.page.evaluate("window.seen") - event["seq"] / 1e6
    print(f"the incident was on the page {late_ms:.0f} ms after its event")
    assert late_ms < PUSHED_MS
    page.screenshot("lab-now")

    views = VIEWS | {"incident": f"#/incident/{event['incident']['id']}", "host": "#/host/h0"}
    odd = {}
    for name, where in views.items():
        page.open(origin + where)
        if name == "diagnose":
            page.page.wait_for_selector("#outcome", timeout=60_000)
        page.screenshot(f"lab-{name}")
        given = page.page.get_attribute("#json", "href")
        if name == "diagnose" or given is None:
            continue
        real = page.page.evaluate("async url => await (await fetch(url)).json()", given)
        odd[name] = unlike(name, real)
    assert {name: keys for name, keys in odd.items() if keys} == {}
    assert "spine-0" in page.page.inner_text("main")
    assert page.wrong == []


def test_a_link_opens_once(broken: Lab, page: Watched) -> None:
    link = broken.link()
    assert page.page.request.get(link, max_redirects=0).status == 303
    browser = page.page.context.browser
    assert browser is not None
    another = browser.new_context(ignore_https_errors=True)
    assert another.request.get(link, max_redirects=0).status == 403


def unlike(name: str, real: Any) -> set[str]:
    """Return in which keys an answer is not as `sample`, which the other tests show."""
    made = {
        "now": sample.now, "fabric": sample.fabric, "matrix": sample.matrix,
        "matrix-of-pairs": sample.matrix, "tasks": sample.tasks, "task": sample.task,
        "incident": sample.incident, "incidents": sample.incidents, "pair": sample.pair,
        "hosts": sample.hosts, "host": sample.host,
    }[name]()  # fmt: skip
    return (shape(real) - shape(made)) | {f"no {key}" for key in made.keys() - real.keys()}
