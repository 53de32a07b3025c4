# SPDX-License-Identifier: Apache-2.0
"""Wait for a condition, to a deadline: looked at often at first, then ever less often.

`rest` is what is done between two looks, for a given number of seconds at most. Where something
tells of changes, or has to be stepped, `rest` waits for that or steps it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

from netagent.concurrency import timeout

WITHIN_S = 30.0
"""Seconds that nobody measures: a machine that is busy with other things takes long for all."""
_FIRST_S, _LONGEST_S, _GROWTH = 0.002, 0.1, 1.5


class NotInTime(AssertionError):
    """What was waited for did not come."""

    def __init__(self, what: str, within_s: float) -> None:
        super().__init__(f"{what}: not within {within_s:g} s")


def wait_until(
    condition: Callable[[], object],
    what: str = "it",
    within_s: float = WITHIN_S,
    *,
    rest: Callable[[float], object] = time.sleep,
) -> float:
    """Return after how many seconds `condition` held; NotInTime if it did not."""
    began_s = time.monotonic()
    pauses = _pauses()
    while not condition():
        if time.monotonic() - began_s > within_s:
            raise NotInTime(what, within_s)
        rest(next(pauses))
    return time.monotonic() - began_s


async def until(
    condition: Callable[[], object],
    what: str = "it",
    within_s: float = WITHIN_S,
    *,
    rest: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Return once `condition` holds; NotInTime if it did not."""
    pauses = _pauses()
    try:
        async with timeout(within_s):
            while not condition():
                await rest(next(pauses))
    except TimeoutError as error:
        raise NotInTime(what, within_s) from error


def leaping(loop: asyncio.AbstractEventLoop) -> Callable[[float], None]:
    """Return what sets the clock of an event loop ahead by some seconds.

    What would have to be waited for is due at once, and never before.
    """
    real, ahead_s = loop.time, 0.0

    def leap(seconds: float) -> None:
        nonlocal ahead_s
        ahead_s += seconds

    loop.time = lambda: real() + ahead_s  # type: ignore[method-assign]
    return leap


def _pauses() -> Iterator[float]:
    pause_s = _FIRST_S
    while True:
        yield pause_s
        pause_s = min(pause_s * _GROWTH, _LONGEST_S)
