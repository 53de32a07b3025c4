# SPDX-License-Identifier: Apache-2.0
"""The judge as a process."""

import asyncio
import contextlib
import os
import signal

import pytest
from structlog.testing import capture_logs

from analyzer.config import Recording
from analyzer.judge import messages
from analyzer.judge.messages import framed
from analyzer.replay import records
from analyzer.server.link import LinkClosed, ProcessLink
from tests.waiting import until

HEADER = records.Header(netagent="test", window_s=5, probe_port=18515)


def on(folder, work):
    async def inside():
        async with asyncio.timeout(90):
            link = await ProcessLink.open()
            try:
                ready = await link.receive()
                opening = messages.Open(
                    header=HEADER, recording=Recording(), database=str(folder / "db")
                )
                link.send(framed(opening))
                link.send(framed(records.Roster(hosts=(), tasks=())))
                assert await link.receive() == messages.Holds(since_ns=0)
                link.send(framed(records.Began(now_ns=1)))
                return ready.pid, await work(link, ready.pid)
            finally:
                await link.close()

    return asyncio.run(inside())


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_steps_answers_and_ends_with_what_it_recorded_on_disk(tmp_path):
    async def work(link, _):
        link.send(framed(records.Stepped(now_ns=5 * 10**9)))
        done = await link.receive()
        assert isinstance(done, messages.Done)
        link.send(framed(messages.Look(query=3, what="findings")))
        assert (await link.receive()).query == 3
        link.send(framed(records.Ingested(payload=b"odd", now_ns=6 * 10**9)))
        refused = await link.receive()
        assert (refused.host, refused.bug) == ("", False)

    pid, _ = on(tmp_path, work)
    assert not is_alive(pid)
    assert list((tmp_path / "recording").glob("*.part"))


def test_one_that_is_killed_is_told_so(tmp_path):
    async def work(link, pid):
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(LinkClosed):
            await link.receive()

    with capture_logs() as logs:
        pid, _ = on(tmp_path, work)
    assert [(each["event"], each["pid"], each["code"]) for each in logs] == [
        ("judge_died", pid, -signal.SIGKILL)
    ]


def test_what_a_terminal_says_to_all_does_not_end_it(tmp_path):
    async def work(link, pid):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
        link.send(framed(records.Stepped(now_ns=5 * 10**9)))
        assert isinstance(await link.receive(), messages.Done)

    on(tmp_path, work)


def test_what_waits_for_it_is_counted_and_comes_in_order(tmp_path):
    async def work(link, pid):
        os.kill(pid, signal.SIGSTOP)
        sent = len(framed(records.Began(now_ns=1)))  # it may wait, too
        for query in range(200):
            odd = framed(records.Ingested(payload=bytes(200_000), now_ns=query))
            look = framed(messages.Look(query=query, what="findings"))
            link.send(odd)
            link.send(look)
            sent += len(odd) + len(look)
            await asyncio.sleep(0)
        assert sent - (8 << 20) < link.backlog_bytes <= sent
        os.kill(pid, signal.SIGCONT)
        answers = [await link.receive() for _ in range(400)]
        assert [each.query for each in answers if hasattr(each, "query")] == list(range(200))
        await link.drain()
        await until(lambda: link.backlog_bytes == 0)

    on(tmp_path, work)


def test_one_that_dies_takes_what_waited_for_it(tmp_path):
    async def work(link, pid):
        os.kill(pid, signal.SIGSTOP)
        for _ in range(100):
            link.send(framed(records.Ingested(payload=bytes(200_000), now_ns=1)))
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(LinkClosed):
            await link.receive()
        with contextlib.suppress(LinkClosed):
            await link.drain()
        await until(lambda: link.backlog_bytes == 0)

    on(tmp_path, work)
