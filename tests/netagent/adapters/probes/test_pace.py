# SPDX-License-Identifier: Apache-2.0
import asyncio
import os
import time
from contextlib import suppress

import pytest

from netagent.adapters.clock import now_ns
from netagent.adapters.probes import pace as module
from netagent.adapters.probes.bell import GATHER_NS
from netagent.adapters.probes.pace import QUIET_NS, STALL_NS, Pace
from netagent.concurrency import timeout

FAR_NS = 600_000_000_000


class Steps:
    """A prober that is woken by a pipe; `script` has what each step does."""

    gather_ns = GATHER_NS

    def __init__(self, *script):
        self.reader, self.writer = os.pipe()
        self.script = list(script)
        self.stepped_ns = []
        self.arrived_ns = 0
        self.hushed = 0
        self.done = asyncio.Event()

    def fileno(self):
        return self.reader

    def hush(self):
        os.read(self.reader, 64)
        self.hushed += 1

    def arrive(self):
        self.arrived_ns = now_ns()
        os.write(self.writer, b".")

    def step(self):
        self.stepped_ns.append(now_ns())
        what = self.script.pop(0)
        if not self.script:
            self.done.set()
        return what()


def after(wait_ns):
    return lambda: now_ns() + wait_ns


async def run(steps):
    pace = Pace(steps)
    task = asyncio.create_task(pace.run())
    try:
        async with timeout(60):
            await steps.done.wait()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert not asyncio.get_running_loop().remove_reader(steps.reader)
        os.close(steps.reader)
        os.close(steps.writer)
    return pace


def test_it_comes_again_when_asked_and_never_earlier():
    async def scenario():
        steps = Steps(*[after(3_000_000)] * 4, after(FAR_NS))
        await run(steps)
        gaps = [b - a for a, b in zip(steps.stepped_ns, steps.stepped_ns[1:], strict=False)]
        assert min(gaps) >= 2_900_000

    asyncio.run(scenario())


def test_a_stall_counts_on_both_sides_of_the_moment_that_it_lasted_beyond():
    async def scenario():
        def stand_still():
            time.sleep(2 * STALL_NS / 1e9)
            return now_ns()

        began_ns = now_ns()
        return began_ns, await run(Steps(stand_still, after(FAR_NS)))

    began_ns, pace = asyncio.run(scenario())
    stalled_ns = pace.take_stalled_ns(until_ns=began_ns)
    assert stalled_ns > STALL_NS
    assert pace.take_stalled_ns(until_ns=now_ns()) == stalled_ns
    assert pace.take_stalled_ns(until_ns=now_ns()) == 0


def test_what_arrives_on_a_busy_host_gathers_first(monkeypatch):
    monkeypatch.setattr(module, "QUIET_NS", FAR_NS)

    async def scenario():
        steps = Steps(after(FAR_NS), after(FAR_NS))
        asyncio.get_running_loop().call_soon(steps.arrive)
        await run(steps)
        assert steps.stepped_ns[1] - steps.arrived_ns >= 0.9 * GATHER_NS
        assert steps.hushed == 1

    asyncio.run(scenario())


def test_what_arrives_on_a_quiet_host_is_served_at_once():
    async def scenario():
        steps = Steps(after(FAR_NS), after(FAR_NS))
        pace = Pace(steps)
        pace._stepped_ns = now_ns() - QUIET_NS - 1
        pace._due_ns = now_ns() + FAR_NS
        steps.arrive()
        pace._arrived()
        assert len(steps.stepped_ns) == 1
        pace._timer.cancel()
        os.close(steps.reader)
        os.close(steps.writer)

    asyncio.run(scenario())


def test_a_step_that_is_due_sooner_than_the_gathering_ends_is_not_put_off(monkeypatch):
    monkeypatch.setattr(module, "QUIET_NS", FAR_NS)

    async def scenario():
        steps = Steps(after(GATHER_NS // 4), after(FAR_NS))
        steps.gather_ns = FAR_NS  # it would be put off for longer than this waits
        asyncio.get_running_loop().call_soon(steps.arrive)
        await run(steps)
        assert len(steps.stepped_ns) == 2

    asyncio.run(scenario())


def test_a_step_that_fails_ends_the_run():
    async def scenario():
        def fail():
            raise OSError("no more sockets")

        steps = Steps(after(0), fail, after(FAR_NS))
        with pytest.raises(OSError, match="no more sockets"):
            await Pace(steps).run()
        os.close(steps.reader)
        os.close(steps.writer)

    asyncio.run(scenario())
