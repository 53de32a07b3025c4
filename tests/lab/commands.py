# SPDX-License-Identifier: Apache-2.0
"""Run a command; wait for a condition. Both bounded, both fail with what was seen."""

import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tests.lab.errors import LabError
from tests.waiting import NotInTime, wait_until

T = TypeVar("T")


def run(*argv: str, stdin: str | None = None, timeout_s: float = 30) -> str:
    """Return a command's standard output; raise `LabError` if it fails or hangs."""
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as error:
        raise LabError(f"{argv[0]} is not installed", "run make setup") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{' '.join(argv)}: no answer in {timeout_s:g} s") from error
    if done.returncode:
        raise LabError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def wait_for(what: str, condition: Callable[[], bool], *, timeout_s: float) -> None:
    """Return once `condition()` holds; raise `LabError` after `timeout_s`."""
    try:
        wait_until(condition, what, timeout_s)
    except NotInTime as error:
        raise LabError(f"waited {timeout_s:g} s in vain for {what}") from error


def in_parallel(work: Callable[[T], Any], items: Iterable[T]) -> None:
    """Call ``work(item)`` for all items, a few at a time; raise the first error."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        for result in [pool.submit(work, item) for item in items]:
            result.result()
