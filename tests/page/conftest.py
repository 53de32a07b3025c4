# SPDX-License-Identifier: Apache-2.0
"""A browser for all tests of the page, and a server of its own for each."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conftest import BROWSER, require
from tests.page.browser import ARGUMENTS, SIZES, Network, Watched, answer, network
from tests.page.standin import StandIn, serving

Opener = Callable[..., Watched]


@pytest.fixture(scope="session")
def quiet() -> Iterator[Network]:
    with network() as made:
        yield made


@pytest.fixture(scope="module")
def playwright() -> Iterator[Any]:
    """Return what drives browsers: a process can have one.

    Meanwhile a loop of asyncio runs, by which no test that runs one could begin: so no longer than
    for a file.
    """
    require(BROWSER)
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - an extra

    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="module")
def chromium(
    playwright: Any, quiet: Network, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    command = quiet.command(tmp_path_factory.mktemp("browser"))
    browser = playwright.chromium.launch(executable_path=command, args=ARGUMENTS)
    yield browser
    browser.close()


@pytest.fixture
def standin(quiet: Network) -> Iterator[StandIn]:
    with serving(answer, quiet.inside) as made:
        yield made


@pytest.fixture
def opened(chromium: Any, standin: StandIn) -> Iterator[Opener]:
    """Return what opens a page; what went wrong in it fails the test."""
    pages: list[Watched] = []
    with ExitStack() as stack:

        def page(size: str = "wide", colours: str = "light", **more: Any) -> Watched:
            context = chromium.new_context(
                viewport=SIZES[size], color_scheme=colours, timezone_id="Europe/Berlin", **more
            )
            stack.callback(context.close)
            pages.append(Watched(context.new_page(), standin.url))
            return pages[-1]

        yield page
    assert [wrong for each in pages for wrong in each.wrong] == []
