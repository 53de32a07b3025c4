# SPDX-License-Identifier: Apache-2.0
"""Background work that is started again when it crashes."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

RETRY_MIN_S, RETRY_MAX_S = 0.1, 10.0
"""Shortest and longest pause, in seconds, before a crashed worker starts again; it doubles. Chosen:
a stray error costs nothing, and a lasting one does not fill the log."""

log = structlog.get_logger()


class Workers:
    """Workers of one process; each runs until `stop`."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self.crashes = 0

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run `run`, and again whenever it ends."""
        self._tasks.append(asyncio.create_task(self._restart(name, run), name=name))

    async def stop(self) -> None:
        """Cancel all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _restart(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        pause_s = RETRY_MIN_S
        while True:
            began = time.monotonic()
            try:
                await run()
            except Exception:
                self.crashes += 1
                log.exception("worker_crashed", worker=name, retry_s=pause_s)
            else:
                log.warning("worker_ended", worker=name, retry_s=pause_s)
            if time.monotonic() - began > RETRY_MAX_S:
                pause_s = RETRY_MIN_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)
