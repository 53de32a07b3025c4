# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium, in a network of its own, and what a page in it must not do."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from netagent.adapters.host.setns import call_in_namespace
from tests.page import sample
from tests.waiting import wait_until

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
SIZES = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 390, "height": 844}}
ARGUMENTS = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]

PAIR = "source=train-a-0%2Frail0&target=train-a-2%2Frail0"
VIEWS = {
    "now": "#/now",
    "fabric": "#/fabric",
    "matrix": "#/matrix",
    "matrix-of-pairs": "#/matrix?by=host&row=h0&col=h2",
    "tasks": "#/tasks",
    "task": "#/task/train-a",
    "incident": "#/incident/5e1f20aa41c2",
    "incidents": "#/incidents?state=active",
    "pair": f"#/pair?{PAIR}",
    "hosts": "#/hosts",
    "host": "#/host/h3",
    "diagnose": f"#/diagnose?{PAIR}",
}
"""Name -> link of each view, as `sample` answers it."""


def answer(what: str, query: dict[str, Any]) -> Any:
    """Return what `sample` has for a path below /v1; KeyError where that is nothing."""
    if what == "diagnose":
        return sample.UNDER_WAY if "task" in query else sample.diagnosis()
    if what.endswith("/inquiry"):
        return sample.task()["inquiry"] | {"verdict": "innocent", "against": []}
    head, _, tail = what.removeprefix("views/").partition("/")
    made: dict[str, Callable[[], Any]] = {
        "now": sample.now,
        "fabric": sample.fabric,
        "matrix": lambda: sample.matrix(
            query.get("by", "leaf"), query.get("row"), query.get("col")
        ),
        "tasks": sample.tasks,
        "task": lambda: sample.task(tail),
        "incident": lambda: sample.incident(tail),
        "incidents": lambda: sample.incidents(query.get("after", "")),
        "pair": sample.pair,
        "hosts": sample.hosts,
        "host": lambda: sample.host(tail),
        "endpoints": sample.endpoints,
        "diagnoses": lambda: sample.WALKED,
    }
    return made[head]()


class Network:
    """Where browser and server are.

    Chromium drops all requests when an interface of its network comes or goes, as those of labs do.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path

    def inside(self, make: Callable[[], Any]) -> Any:
        """Return what `make` returns, as called in there."""
        return make() if self._path is None else call_in_namespace(self._path, make)

    def command(self, folder: Path) -> Path:
        """Return the command that starts Chromium in there, made in `folder`."""
        chromium = shutil.which("chromium")
        assert chromium is not None
        if self._path is None:
            return Path(chromium)
        script = folder / "chromium"
        script.write_text(f'#!/bin/sh\nexec nsenter --net={self._path} {chromium} "$@"\n')
        script.chmod(0o755)
        return script


@contextmanager
def network() -> Iterator[Network]:
    """Make a network with a loopback alone, where that is allowed."""
    if os.geteuid() != 0:
        yield Network(None)
        return
    script = "ip link set lo up && echo up && read -r end"
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", script],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "up\n"
        yield Network(f"/proc/{holder.pid}/ns/net")
    finally:
        with contextlib.suppress(OSError):
            holder.stdin.close()
        holder.wait()
        holder.stdout.close()


class Watched:
    """A page, and what it said and asked that it should not have."""

    def __init__(self, page: Any, origin: str) -> None:
        self.page, self.wrong = page, list[str]()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self._asked(request.url, origin))

    def open(self, url: str) -> None:
        """Open a view, and wait until it is drawn."""
        self.page.goto("about:blank")
        self.page.goto(url)
        self.page.wait_for_selector("main h1")
        self.page.wait_for_selector("main:not([aria-busy])")

    def until(self, expression: str, arg: Any = None, within_s: float = 30.0) -> None:
        """Wait until JavaScript holds. The page's policy forbids Playwright's own way, eval."""
        wait_until(
            lambda: self.page.evaluate(expression, arg),
            expression,
            within_s,
            rest=lambda s: self.page.wait_for_timeout(1000 * s),
        )

    def screenshot(self, name: str) -> None:
        """Keep what it looks like."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    def _said(self, said: Any) -> None:
        if said.type in {"error", "warning"}:
            self.wrong.append(f"{said.type}: {said.text}")

    def _dialog(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, url: str, origin: str) -> None:
        if not url.startswith((origin, "about:", "data:")):
            self.wrong.append(f"asked {url}")
