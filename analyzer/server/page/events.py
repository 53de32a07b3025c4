# SPDX-License-Identifier: Apache-2.0
"""What happens, as server-sent events: each change of an incident once and in order, and ticks.

The id of an event is its number in the journal, so that who comes again goes on behind it. What is
too old for that is lost, also over a restart: who comes again looks at all of it anew.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from analyzer.server.analyzer import INCIDENTS
from analyzer.server.page.now import tick
from analyzer.server.page.page import Page
from analyzer.server.page.shown import seen, short
from analyzer.server.sight import Sight

QUIET_S = 15.0
"""Seconds after which a line without a meaning shows that the connection lives."""
RETRY_MS = 2_000
"""Milliseconds until a browser comes again. Chosen: an analyzer's restart takes some seconds."""


async def stream(
    page: Page, sees: Sight, after: int | None, holds: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield what happens after number `after`, or from now on, while the caller may see it."""
    analyzer = page.analyzer
    seq = analyzer.journal.seq if after is None else after
    loop = asyncio.get_running_loop()
    said_s = loop.time()
    ticked_s = float("-inf")
    yield f"retry: {RETRY_MS}\n\n".encode()
    while holds() and not analyzer.waiters.stopping:
        ticket = analyzer.waiters.ticket(INCIDENTS)
        try:
            for event in analyzer.journal.events(seq):
                seq = event.seq
                mine = seen(analyzer, sees, event.incident)
                if mine is not None:
                    told = {"event": event.event, "seq": seq, "incident": short(analyzer, mine)}
                    yield _event("incident", told, seq)
                    said_s = loop.time()
            if loop.time() >= ticked_s + analyzer.config.window_s:
                ticked_s = said_s = loop.time()
                yield _event("tick", await tick(page, sees))
            if loop.time() >= said_s + QUIET_S:
                said_s = loop.time()
                yield b":\n\n"
            until_s = min(ticked_s + analyzer.config.window_s, said_s + QUIET_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await ticket
        finally:
            analyzer.waiters.discard(INCIDENTS, ticket)


def _event(name: str, told: Any, seq: int | None = None) -> bytes:
    number = f"id: {seq}\n" if seq is not None else ""
    return f"{number}event: {name}\ndata: {msgspec.json.encode(told).decode()}\n\n".encode()
