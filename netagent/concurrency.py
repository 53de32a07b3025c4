# SPDX-License-Identifier: Apache-2.0
"""`asyncio.TaskGroup` and `asyncio.timeout` of Python 3.11, also for 3.10."""

import asyncio
import sys

if sys.version_info >= (3, 11):
    from asyncio import TaskGroup, timeout
else:
    from collections.abc import AsyncIterator
    from contextlib import asynccontextmanager

    from taskgroup import TaskGroup

    @asynccontextmanager
    async def timeout(delay_s: float | None) -> AsyncIterator[None]:
        """Cancel what is done within after so many seconds, and raise TimeoutError.

        The backport of `asyncio.timeout` loses it where others catch and raise the cancellation. A
        task of 3.10 does not count who cancels it: who does so at that moment is not heard.
        """
        task, is_over = asyncio.current_task(), False

        def end() -> None:
            nonlocal is_over
            is_over = True
            if task is not None:
                task.cancel()

        loop = asyncio.get_running_loop()
        timer = None if delay_s is None else loop.call_later(max(0.0, delay_s), end)
        try:
            yield
            if is_over:  # just now: the cancellation is still to come
                await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            if is_over:
                raise TimeoutError from error
            raise
        finally:
            if timer is not None:
                timer.cancel()


__all__ = ["TaskGroup", "timeout"]
