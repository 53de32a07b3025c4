# SPDX-License-Identifier: Apache-2.0
"""Python 3.10's own way, too, wherever this runs."""

import asyncio
import sys
from pathlib import Path
from types import ModuleType

import pytest

from netagent import concurrency


@pytest.fixture(params=["this Python", "3.10"])
def timeout(request, monkeypatch):
    if request.param == "this Python":
        return concurrency.timeout
    backport = ModuleType("taskgroup")
    backport.TaskGroup = object()
    monkeypatch.setitem(sys.modules, "taskgroup", backport)
    monkeypatch.setattr(sys, "version_info", (3, 10, 12))
    made, source = {}, Path(concurrency.__file__)
    exec(compile(source.read_text(), str(source), "exec"), made)  # noqa: S102
    assert made["TaskGroup"] is backport.TaskGroup
    assert made["timeout"] is not getattr(asyncio, "timeout", None)
    return made["timeout"]


def test_what_takes_too_long_is_cancelled_and_told(timeout):
    async def main():
        ended = []
        try:
            async with timeout(0.01):
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append("cleaned up")
        except TimeoutError:
            return ended
        raise AssertionError("it waited for ever, and that was over")

    assert asyncio.run(main()) == ["cleaned up"]


def test_one_that_raises_the_cancellation_anew_is_told_as_well(timeout):
    async def main():
        async with timeout(0.01):
            try:
                await asyncio.Event().wait()
            except BaseException as error:  # as anyio does
                raise asyncio.CancelledError from error

    with pytest.raises(TimeoutError):
        asyncio.run(main())


@pytest.mark.parametrize("delay_s", [None, 60])
def test_what_is_done_in_time_is_left_alone(timeout, delay_s):
    async def main():
        async with timeout(delay_s):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "done"

    assert asyncio.run(main()) == "done"


def test_somebody_else_s_cancellation_is_none_of_its_own(timeout):
    async def work():
        async with timeout(60):
            await asyncio.Event().wait()

    async def main():
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(main())


def test_an_error_passes(timeout):
    async def main():
        async with timeout(60):
            raise KeyError("x")

    with pytest.raises(KeyError):
        asyncio.run(main())
