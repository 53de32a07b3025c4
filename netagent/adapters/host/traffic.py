# SPDX-License-Identifier: Apache-2.0
"""Reads what endpoints sent, at each tick of the wall clock.

In a thread: a driver may ask its firmware for a counter, and the tick does not wait for a busy
agent.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.host.setns import call_in_namespace
from netagent.adapters.host.sysfs import SYSFS, sysfs_here
from netagent.collect.traffic import Reading, Source
from netagent.host.facts import Namespace
from netagent.model.errors import CapabilityMissing, RemoteProtocolError
from netagent.model.ids import EndpointId

log = structlog.get_logger()

FINEST_MS = 100
"""Milliseconds of the finest tick that may be asked for. Chosen: reading all endpoints fits into a
part of it."""
LONGEST_S = 600.0
"""Seconds for which one request gets finer ticks; whoever wants more asks again. Chosen: an
analyzer that died stops costing anything after ten minutes."""
MAX_SHARE = 0.2
"""Share of a finer tick that reading may take, on average over some `SMOOTH` readings; beyond it
the finer ticks end. Chosen: the rest of the tick is for drivers that are slow at times."""
SMOOTH = 32
"""Readings over which the mean reading time is smoothed exponentially. Chosen: one slow reading
does not end finer ticks."""

Readings = dict[EndpointId, Reading]


class TrafficSampler:
    """Calls back with a reading of each endpoint, at the edges of ticks."""

    def __init__(self, tick_ns: int) -> None:
        self._coarse_ns = tick_ns
        self._fine_ns = tick_ns
        self._fine_until_ns = 0
        self._sources: Mapping[EndpointId, Source] = {}
        self._poked = threading.Event()

    @property
    def tick_ns(self) -> int:
        """The tick in use."""
        return self._fine_ns if now_ns() < self._fine_until_ns else self._coarse_ns

    def set_sources(self, sources: Mapping[EndpointId, Source]) -> None:
        """Read these from now on."""
        self._sources = sources

    def zoom(self, tick_ms: int, seconds: float) -> tuple[int, float]:
        """Read at finer ticks for a while; return what was granted, in the same units.

        Raises RemoteProtocolError for ticks that are not to be had.
        """
        coarse_ms = self._coarse_ns // 1_000_000
        if not FINEST_MS <= tick_ms <= coarse_ms or 1000 % tick_ms or not seconds > 0:
            raise RemoteProtocolError(
                f"no ticks of {tick_ms} ms for {seconds:g} s; {FINEST_MS} to {coarse_ms} ms are"
                " to be had, of which a second has a whole number"
            )
        granted_s = min(seconds, LONGEST_S)
        self._fine_ns = tick_ms * 1_000_000
        self._fine_until_ns = now_ns() + round(granted_s * 1e9)
        self._poked.set()
        return tick_ms, granted_s

    async def run(self, callback: Callable[[int, Readings], None]) -> None:
        """Read until cancelled, and call back from the loop with the tick and the readings."""
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[None] = loop.create_future()

        def tell(tick_ns: int, readings: Readings) -> None:
            if failed.done():
                return
            try:
                callback(tick_ns, readings)
            except Exception as error:  # noqa: BLE001 - carried over to `run`, which is supervised
                fail(error)

        def call(function: Callable[..., None], *arguments: object) -> None:
            with suppress(RuntimeError):  # the loop is closed: the agent has ended
                loop.call_soon_threadsafe(function, *arguments)

        def fail(error: Exception) -> None:
            if not failed.done():
                failed.set_exception(error)

        def work() -> None:
            try:
                self._work(stopping, lambda *told: call(tell, *told))
            except Exception as error:  # noqa: BLE001 - carried over to `run`
                call(fail, error)

        stopping = threading.Event()
        threading.Thread(target=work, name="traffic", daemon=True).start()
        try:
            await failed
        finally:
            stopping.set()
            self._poked.set()

    def _work(self, stopping: threading.Event, tell: Callable[[int, Readings], object]) -> None:
        mean_ns = 0.0
        while not stopping.is_set():
            tick_ns = self.tick_ns
            left_ns = tick_ns - wall_ns() % tick_ns
            if self._poked.wait(left_ns / 1e9):
                self._poked.clear()
                continue
            began_ns = now_ns()
            tell(tick_ns, read(self._sources))
            mean_ns += (now_ns() - began_ns - mean_ns) / SMOOTH
            if tick_ns != self._coarse_ns and mean_ns > MAX_SHARE * tick_ns:
                log.warning("traffic_reading_slow", took_ms=mean_ns / 1e6, tick_ms=tick_ns / 1e6)
                self._fine_until_ns, mean_ns = 0, 0.0


def read(sources: Mapping[EndpointId, Source]) -> Readings:
    """Return what can be read now; what cannot is left out."""
    found: Readings = {}
    inside: dict[Namespace, dict[EndpointId, Source]] = {}
    for endpoint, source in sources.items():
        if source.namespace is not None:
            inside.setdefault(source.namespace, {})[endpoint] = source
        elif (reading := _read(SYSFS, source)) is not None:
            found[endpoint] = reading
    for namespace, those in inside.items():
        with suppress(OSError, CapabilityMissing):  # died meanwhile, or may not be entered
            there = partial(_read_here, those)
            found |= call_in_namespace(namespace.path, there, inode=namespace.inode)
    return found


def _read_here(sources: Mapping[EndpointId, Source]) -> Readings:
    with sysfs_here() as sysfs:
        read = {endpoint: _read(sysfs, source) for endpoint, source in sources.items()}
    return {endpoint: reading for endpoint, reading in read.items() if reading is not None}


def _read(sysfs: Path, source: Source) -> Reading | None:
    try:
        fd = os.open(f"{sysfs}/{source.path}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(fd, 64)
        finally:
            os.close(fd)
        return Reading(source, int(text), wall_ns(), now_ns())
    except (OSError, ValueError):
        return None
