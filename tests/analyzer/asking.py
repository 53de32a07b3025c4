# SPDX-License-Identifier: Apache-2.0
"""Plays the agents for whoever asks."""

from collections.abc import Callable
from typing import TypeVar

from analyzer.questions import Ask, Asking, Reply

T = TypeVar("T")


def drive(asking: Asking[T], reply: Callable[[Ask], Reply]) -> T:
    """Return what `asking` comes to; `reply(ask)` answers each of its questions."""
    try:
        asks = next(asking)
        while True:
            asks = asking.send([reply(ask) for ask in asks])
    except StopIteration as done:
        result: T = done.value
        return result
