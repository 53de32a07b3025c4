# SPDX-License-Identifier: Apache-2.0
import asyncio
import os
import socket

import pytest

from netagent.adapters.host import traffic
from netagent.adapters.host.traffic import Readings, TrafficSampler, read
from netagent.collect.traffic import Source
from netagent.concurrency import TaskGroup, timeout
from netagent.host.facts import Namespace
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from tests.waiting import wait_until

S = 1_000_000_000
A, B = EndpointId("a", 0), EndpointId("b", 0)
LOOPBACK = Source("class/net/lo/statistics/rx_bytes")


def sampled(sampler: TrafficSampler, count: int) -> list[tuple[int, Readings]]:
    async def main() -> list[tuple[int, Readings]]:
        told: list[tuple[int, Readings]] = []
        enough = asyncio.Event()

        def callback(tick_ns: int, readings: Readings) -> None:
            told.append((tick_ns, readings))
            if len(told) >= count:
                enough.set()

        async with timeout(30), TaskGroup() as group:
            running = group.create_task(sampler.run(callback))
            await enough.wait()
            running.cancel()
        return told

    return asyncio.run(main())


def test_what_cannot_be_read_is_left_out():
    gone = Source("class/net/no-such-device/statistics/rx_bytes")
    found = read({A: LOOPBACK, B: gone})
    assert found.keys() == {A}
    assert found[A].source == LOOPBACK


def test_bytes_that_were_sent_are_counted():
    before = read({A: LOOPBACK})[A].sent_bytes
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", 0))
        sender.sendto(bytes(1000), sender.getsockname())
        sender.recv(2000)
    assert read({A: LOOPBACK})[A].sent_bytes >= before + 1000


def test_readings_come_at_the_edges_of_finer_ticks_while_they_are_granted():
    sampler = TrafficSampler(S)
    sampler.set_sources({A: LOOPBACK})
    assert sampler.zoom(100, 10**6) == (100, 600)
    told = sampled(sampler, 5)
    assert {tick_ns for tick_ns, _ in told} == {S // 10}
    ticks = [readings[A].wall_ns // (S // 10) for _, readings in told]
    assert len(set(ticks)) == len(ticks)
    # Right after an edge, mostly: a busy machine may be late once, not always.
    assert min(readings[A].wall_ns % (S // 10) for _, readings in told) < S // 20


def test_finer_ticks_end():
    sampler = TrafficSampler(S)
    sampler.zoom(100, 0.001)
    wait_until(lambda: sampler.tick_ns == S)


@pytest.mark.parametrize("asked", [(50, 10), (2000, 10), (300, 10), (0, 10), (100, 0)])
def test_ticks_that_are_not_to_be_had_are_refused(asked):
    with pytest.raises(RemoteProtocolError, match="100 to 1000 ms"):
        TrafficSampler(S).zoom(*asked)


def test_what_the_callback_raises_ends_the_run():
    sampler = TrafficSampler(S // 10)
    sampler.set_sources({A: LOOPBACK})

    def callback(tick_ns: int, readings: Readings) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(asyncio.wait_for(sampler.run(callback), 30))


def test_a_thread_that_fails_ends_the_run_instead_of_the_series(monkeypatch):
    def fails(_: object) -> Readings:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(traffic, "read", fails)
    with pytest.raises(RuntimeError, match="new thread"):
        asyncio.run(asyncio.wait_for(TrafficSampler(S // 10).run(lambda *_: None), 30))


@pytest.mark.netns
def test_another_namespace_is_read_by_its_own_sysfs():
    here = Namespace("/proc/self/ns/net", os.stat("/proc/self/ns/net").st_ino)  # noqa: PTH116
    inside = Source(LOOPBACK.path, namespace=here)
    gone = Source(LOOPBACK.path, namespace=Namespace("/run/netns/no-such", 1))
    assert read({A: inside, B: gone}).keys() == {A}
