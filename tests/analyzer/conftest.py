# SPDX-License-Identifier: Apache-2.0
"""The routes of an application, made once for all tests; and a disk that may take its time.

Litestar reads the signature of every handler: two thirds of what an analyzer in a test takes to
start. An application that was made for another event loop, which is closed, is used again: all that
is an analyzer's own is in its state.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

MODULES = ("analyzer.server.routes", "analyzer.server.page.routes")
WRITERS = ("analyzer.server.journal", "analyzer.server.mail")


class _Applications:
    """Makes applications, and hands those out again that nobody uses."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._made: dict[tuple[int, ...], list[tuple[asyncio.AbstractEventLoop, Any]]] = {}

    def __call__(self, **fields: Any) -> Any:
        """Return an application as Litestar would."""
        loop = asyncio.get_running_loop()
        made = self._made.setdefault(tuple(map(id, fields["route_handlers"])), [])
        for number, (last, application) in enumerate(made):
            if last.is_closed():
                application.state = fields["state"]
                made[number] = loop, application
                return application
        made.append((loop, self._make(**fields)))
        return made[-1][1]


@pytest.fixture(scope="session", autouse=True)
def _disk_of_a_busy_machine() -> Iterator[None]:
    """Give writes to disk a minute: a test in which one must be given up says so itself."""
    with pytest.MonkeyPatch.context() as patching:
        for name in WRITERS:
            if (module := sys.modules.get(name)) is not None:
                patching.setattr(module, "STORE_S", 60.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _routes_made_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patching:
        for name in MODULES:
            if (module := sys.modules.get(name)) is not None:  # else no test here serves
                patching.setattr(module, "Litestar", _Applications(module.Litestar))
        yield
