# SPDX-License-Identifier: Apache-2.0
import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest

from netagent.adapters.host import rnics
from netagent.adapters.host.rnics import RnicMonitor, RnicReader
from netagent.concurrency import timeout
from netagent.host.facts import Namespace
from netagent.host.rdma_facts import RdmaView

FOREVER_S = 3600.0
DEADLINE_S = 10.0


class Reader:
    """Stands in for the one that reads; knows how it was asked."""

    def __init__(self, took_ns: int = 0) -> None:
        self.asked: list[tuple[tuple[Namespace, ...], bool]] = []
        self.took_ns = took_ns

    def read(self, namespaces: tuple[Namespace, ...], *, whole: bool) -> RdmaView:
        self.asked.append((namespaces, whole))
        return RdmaView(wall_ns=len(self.asked), took_ns=self.took_ns)


class Quiet:
    """No news from the kernel."""

    def filenos(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        pass


@pytest.fixture
def monitor(monkeypatch):
    monkeypatch.setattr(rnics, "RdmaChanges", Quiet)

    def made(reader: Reader, look_s: float = FOREVER_S) -> RnicMonitor:
        monitor = RnicMonitor(look_s=look_s)
        monitor._reader = reader
        return monitor

    return made


async def watch(monitor: RnicMonitor, views: int, then: Callable[[int], None]) -> None:
    """Run until `views` looks were told of, calling `then` with the number of each."""
    seen = 0
    enough = asyncio.Event()

    def callback(view: RdmaView) -> None:
        nonlocal seen
        seen += 1
        then(seen)
        if seen == views:
            enough.set()

    running = asyncio.create_task(monitor.run(callback))
    try:
        async with timeout(DEADLINE_S):
            await enough.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_a_poke_is_a_look_at_everything_and_at_once(monitor):
    reader = Reader()
    watching = monitor(reader)
    asyncio.run(watch(watching, 2, lambda number: number == 1 and watching.poke()))
    assert reader.asked == [((), True), ((), True)]


def test_what_follows_a_change_is_seen_by_a_second_look(monitor):
    reader = Reader()
    watching = monitor(reader)
    asyncio.run(watch(watching, 3, lambda number: number == 1 and watching.poke()))
    assert reader.asked == [((), True)] * 3


def test_looks_that_come_by_themselves_read_less(monitor):
    reader = Reader()
    asyncio.run(watch(monitor(reader, look_s=0.001), 3, lambda _: None))
    assert [whole for _, whole in reader.asked[:3]] == [True, False, False]


def test_new_namespaces_are_read_at_once_and_known_ones_change_nothing(monitor):
    reader = Reader()
    watching = monitor(reader)
    inside = Namespace("/run/netns/c", 7)

    def then(number: int) -> None:
        if number == 1:
            watching.set_namespaces([inside, inside])
        elif number == 2:
            watching.set_namespaces([inside])
            assert not watching._poked.is_set()

    asyncio.run(watch(watching, 2, then))
    assert reader.asked == [((), True), ((inside,), True)]


def test_a_slow_device_is_read_less_often(monitor):
    """One second of reading calls for twenty of rest."""
    assert rnics.pause_s(1.0, took_ns=1_000_000_000) == pytest.approx(20)
    assert rnics.pause_s(1.0, took_ns=1_000_000) == pytest.approx(1)


def test_what_the_callback_raises_ends_the_watch(monitor):
    def refuse(_: RdmaView) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(monitor(Reader()).run(refuse))


def test_a_host_without_rdma_has_an_empty_view(monkeypatch, tmp_path):
    monkeypatch.setattr(rnics, "SYSFS", tmp_path)
    monkeypatch.setattr(rnics, "_mode", lambda: "")
    view = RnicReader().read([], whole=True)
    assert (view.devices, view.mode) == ((), "")
    assert view.wall_ns > 0


HANGING = """
import asyncio, threading
from netagent.adapters.host.rnics import RnicMonitor

async def main():
    monitor, reading = RnicMonitor(), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Reader:
        def read(self, namespaces, *, whole):
            loop.call_soon_threadsafe(reading.set)
            threading.Event().wait()

    monitor._reader = Reader()
    running = asyncio.create_task(monitor.run(print))
    await reading.wait()
    running.cancel()

asyncio.run(main())
"""


def test_a_driver_that_hangs_does_not_keep_the_agent_from_exiting():
    subprocess.run([sys.executable, "-c", HANGING], check=True, timeout=60)


def test_what_a_reading_raises_ends_the_watch(monitor):
    class Broken(Reader):
        def read(self, namespaces, *, whole):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(monitor(Broken()).run(lambda _: None))
