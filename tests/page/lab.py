# SPDX-License-Identifier: Apache-2.0
"""A lab, from outside: its commands, and its analyzer's API by an administrator's certificate."""

import json
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

COMMAND_S = 600
"""Seconds that one command may take. Chosen: `up` takes one minute where nothing else runs."""
ANSWER_S = 90
"""Seconds that an answer may take: long polls are held for a minute."""


class Lab:
    """A lab that is up."""

    def __init__(self, status: dict[str, Any]) -> None:
        self._url: str = status["analyzer"]
        environment = status["environment"]
        self._tls = ssl.create_default_context(cafile=environment["NETAGENT_CA"])
        self._tls.load_cert_chain(environment["NETAGENT_CERT"], environment["NETAGENT_KEY"])

    def ask(self, path: str, body: Any = None) -> Any:
        """Return what the API answers to GET, or to POST of a body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers)  # noqa: S310 - the lab's
        with urllib.request.urlopen(  # noqa: S310
            request, context=self._tls, timeout=ANSWER_S
        ) as answer:
            return json.load(answer)

    def link(self) -> str:
        """Return a link that opens the page once."""
        url: str = self.ask("/v1/sessions", {})["url"]
        return url

    def inject(self, *words: str) -> None:
        """Break something."""
        command("inject", *words)

    def named(self, after: int, within_s: float) -> dict[str, Any]:
        """Return the first event after number `after` that names a component at fault.

        Not a host that is late: on a machine with other work it gets too little CPU, truly.
        """

        def look(events: list[dict[str, Any]]) -> dict[str, Any] | None:
            blamed = (e for e in events if e["incident"]["symptom"] != "delay")
            named = (e for e in blamed if e["incident"]["component"])
            return next((e for e in named if e["incident"]["state"] != "recovered"), None)

        found: dict[str, Any] = self._until(look, after, within_s)
        return found

    def _until(self, look: Callable[[list[dict[str, Any]]], T], after: int, within_s: float) -> Any:
        """Return what `look` finds in events, as soon as it finds anything."""
        until_s = time.monotonic() + within_s
        events: list[dict[str, Any]] = []
        while not (found := look(events)):
            left_s = until_s - time.monotonic()
            assert left_s > 0, f"not within {within_s:g} s"
            query = f"after={after}&wait_s={min(left_s, 5):.3f}"
            told = self.ask(f"/v1/incidents/events?{query}")
            events, after = told["events"], told["next"]
        return found


@contextmanager
def lab() -> Iterator[Lab]:
    """Bring a lab up, and take it down."""
    try:
        yield Lab(command("up"))
    finally:
        command("down")


def command(*words: str) -> Any:
    """Return what a command of the lab says."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab", *words, "--json"],
        check=False, capture_output=True, text=True, timeout=COMMAND_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)
