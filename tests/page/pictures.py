# SPDX-License-Identifier: Apache-2.0
"""The pictures of docs/page.md, of a lab in which a link loses, and of one in which a flow drops.

`python -m tests.page.pictures` as root, or `make screenshots`. WebP, since that is a third of PNG.
"""

import base64
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.page.browser import ARGUMENTS, Network, Watched
from tests.page.lab import Lab, lab

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
WIDE = {"width": 1280, "height": 860}
NARROW = {"width": 390, "height": 780}
QUALITY = 80
MOST_BYTES = 150_000
FOUND_S = 180
PAIR = "source=train-a-0%2Frail0&target=train-a-2%2Frail0"


def main() -> None:
    """Take them all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with _browser() as browser:
        with lab() as broken:
            link = _broken(broken, "link-loss", "--percent", "20")
            views = {"now": "#/now", "fabric": "#/fabric", "task": "#/task/train-a"}
            _take(browser, broken, "light", WIDE, views)
            _take(browser, broken, "dark", WIDE, {"matrix": "#/matrix?by=host"})
            _take(browser, broken, "light", NARROW, {"narrow": f"#/incident/{link}"})
        with lab() as broken:
            flow = _broken(broken, "flow-drop")
            views = {"incident": f"#/incident/{flow}", "diagnose": f"#/diagnose?{PAIR}"}
            _take(browser, broken, "light", WIDE, views)


@contextmanager
def _browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - an extra

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        chromium = Network(None).command(Path(folder))
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()


def _broken(broken: Lab, *fault: str) -> str:
    """Break something; return the incident that is told of it."""
    after = broken.ask("/v1/incidents/events")["next"]
    broken.inject(*fault)
    told = broken.named(after, FOUND_S)["incident"]
    print(f"{fault[0]}: {told['summary']}")
    return str(told["id"])


def _take(
    browser: Any, broken: Lab, colours: str, size: dict[str, int], views: dict[str, str]
) -> None:
    context = browser.new_context(ignore_https_errors=True, viewport=size, color_scheme=colours)
    page, link = context.new_page(), broken.link()
    origin = link.partition("/session/")[0]
    it = Watched(page, origin)
    page.goto(link)
    for name, where in views.items():
        it.open(f"{origin}/{where}")
        it.until("document.querySelector('#news').textContent === 'Live'")
        if name == "diagnose":
            page.wait_for_selector("#outcome", timeout=60_000)
        asked = {"format": "webp", "quality": QUALITY}
        taken = context.new_cdp_session(page).send("Page.captureScreenshot", asked)
        body = base64.b64decode(taken["data"])
        assert len(body) <= MOST_BYTES, f"{name}: {len(body)} bytes"
        (FOLDER / f"{name}.webp").write_bytes(body)
        print(f"{name}.webp: {len(body)} bytes")
    context.close()


if __name__ == "__main__":
    main()
