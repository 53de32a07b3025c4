# SPDX-License-Identifier: Apache-2.0
"""Reads the host's RDMA devices once a second, and at once when something about them changed.

Reading happens in a thread: a driver may ask its firmware for counters, which takes milliseconds.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import structlog

from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.host.rdmalink import RdmaChanges, RdmaQuery
from netagent.adapters.host.setns import call_in_namespace
from netagent.adapters.host.sysfs import NETDEV_ERRORS, SYSFS, SysfsReader, sysfs_here
from netagent.concurrency import timeout
from netagent.host.facts import Namespace
from netagent.host.rdma_facts import RdmaDevice, RdmaPort, RdmaView
from netagent.model.errors import CapabilityMissing, RemoteProtocolError

log = structlog.get_logger()

LOOK_S = 1.0
"""Seconds between two looks at all devices. Chosen: a fault of an RNIC is seen within a second."""
WHOLE_S = 30.0
"""Seconds between two readings of whole GID tables; each reported change has one, too. Chosen: a
table has up to 1024 files, and a change that nobody reports is rare."""
SETTLE_S = 0.02
"""Seconds from a report of a change to the look. Chosen: changes come in bursts, and one look
serves a burst."""
AGAIN_S = 0.25
"""Seconds from the first look after a change to a second one. Chosen: the kernel reports a change
before its workers have updated the GIDs."""
MAX_SHARE = 0.05
"""Largest share of the time that reading may take; slower devices are read less often. Chosen: one
twentieth of a core, in a thread."""
STUCK_S = 5.0
"""Seconds after which a reading that has not ended is logged. Chosen: only a driver or firmware
that hangs takes longer."""


class RnicReader:
    """Reads all devices, from sysfs and from rdma netlink. Blocks; for one thread at a time."""

    def __init__(self) -> None:
        self._sysfs = SysfsReader()
        self._mode = ""
        self._indexes: dict[tuple[str, int], int] = {}
        """Number by which rdma netlink knows each port's device."""

    def read(self, namespaces: Iterable[Namespace], *, whole: bool) -> RdmaView:
        """Return what is there now, in exclusive mode also inside `namespaces`.

        Else than `whole`, new devices and GIDs far behind the known ones are not looked for.
        """
        began_ns = now_ns()
        if whole:
            self._mode = _mode()
        devices = self._devices(SYSFS, whole=whole)
        if self._mode == "exclusive":
            for namespace in namespaces:
                devices |= self._inside(namespace, whole=whole)
        found = tuple(devices[name] for name in sorted(devices))
        return RdmaView(found, self._mode, wall_ns=wall_ns(), took_ns=now_ns() - began_ns)

    def _inside(self, namespace: Namespace, *, whole: bool) -> dict[str, RdmaDevice]:
        def read() -> dict[str, RdmaDevice]:
            with sysfs_here() as sysfs:
                return self._devices(sysfs, whole=whole)

        try:
            return call_in_namespace(namespace.path, read, inode=namespace.inode)
        except (OSError, CapabilityMissing) as error:
            log.debug("namespace_unreadable", path=namespace.path, error=str(error))
            return {}  # died meanwhile, or may not be entered

    def _devices(self, sysfs: Path, *, whole: bool) -> dict[str, RdmaDevice]:
        devices = {each.name: each for each in self._sysfs.devices(sysfs, whole=whole)}
        if all(_counts(port) for device in devices.values() for port in device.ports):
            return devices
        # sysfs has a device's counters in one namespace only, rdma netlink in all.
        with suppress(CapabilityMissing, OSError, RemoteProtocolError), RdmaQuery() as query:
            if whole:
                self._indexes.update({(i.device, i.port): i.index for i in query.links()})
            return {name: self._counted(query, device) for name, device in devices.items()}
        return devices

    def _counted(self, query: RdmaQuery, device: RdmaDevice) -> RdmaDevice:
        ports = []
        for port in device.ports:
            index = self._indexes.get((port.device, port.port))
            told = {} if index is None or _counts(port) else query.statistics(index, port.port)
            ports.append(replace(port, counters={**port.counters, **told}))
        return replace(device, ports=tuple(ports))


def _mode() -> str:
    with suppress(CapabilityMissing, OSError, RemoteProtocolError), RdmaQuery() as query:
        return query.system().mode
    return ""


def _counts(port: RdmaPort) -> bool:
    return bool(port.counters.keys() - NETDEV_ERRORS)


def pause_s(look_s: float, *, took_ns: int) -> float:
    """Return how long to rest after a look that took `took_ns`, in seconds."""
    return max(look_s, took_ns / 1e9 / MAX_SHARE)


class RnicMonitor:
    """Calls back with a whole `RdmaView`, once a second and after each change."""

    def __init__(self, *, look_s: float = LOOK_S) -> None:
        self._reader = RnicReader()
        self._look_s = look_s
        self._namespaces: tuple[Namespace, ...] = ()
        self._poked = asyncio.Event()

    def set_namespaces(self, namespaces: Iterable[Namespace]) -> None:
        """Read inside these as well, where RDMA is in exclusive mode."""
        found = tuple(dict.fromkeys(namespaces))
        if found != self._namespaces:
            self._namespaces = found
            self._poked.set()

    def poke(self) -> None:
        """Look now: an event of verbs, say, reported a change."""
        self._poked.set()

    async def run(self, callback: Callable[[RdmaView], None]) -> None:
        """Watch until cancelled. Raises whatever `callback` raises."""
        loop = asyncio.get_running_loop()
        changes = RdmaChanges()
        descriptors = changes.filenos()

        def changed() -> None:
            if changes.take():
                self._poked.set()

        try:
            for descriptor in descriptors:
                loop.add_reader(descriptor, changed)
            await self._look_and_tell(callback)
        finally:
            for descriptor in descriptors:
                loop.remove_reader(descriptor)
            changes.close()

    async def _look_and_tell(self, callback: Callable[[RdmaView], None]) -> None:
        whole_ns = now_ns()
        changed, whole = False, True
        while True:
            view = await self._look(whole=whole)
            if whole:
                whole_ns = now_ns()
            callback(view)
            rest_s = pause_s(self._look_s, took_ns=view.took_ns)
            again = changed
            changed = await self._pause(min(rest_s, AGAIN_S) if again else rest_s)
            whole = changed or again or now_ns() - whole_ns >= WHOLE_S * 1e9

    async def _look(self, *, whole: bool) -> RdmaView:
        looking = _in_thread(lambda: self._reader.read(self._namespaces, whole=whole))
        try:
            done, _ = await asyncio.wait({looking}, timeout=STUCK_S)
            if not done:
                log.warning("rnics_unreadable", seconds=STUCK_S)
            return await looking
        finally:
            looking.cancel()

    async def _pause(self, seconds: float) -> bool:
        """Wait for the next look; return whether a change is its reason."""
        with suppress(TimeoutError):
            async with timeout(seconds):
                await self._poked.wait()
            # What belongs to one change arrives together; many changes are still few looks.
            await asyncio.sleep(SETTLE_S)
        poked = self._poked.is_set()
        self._poked.clear()
        return poked


def _in_thread(read: Callable[[], RdmaView]) -> asyncio.Future[RdmaView]:
    """Return what `read` returns, from a thread of its own.

    A daemon: the agent does not wait for it at its exit. The kernel does, where a driver sleeps
    uninterruptibly.
    """
    loop = asyncio.get_running_loop()
    looking: asyncio.Future[RdmaView] = loop.create_future()

    def tell(view: RdmaView | None, error: Exception | None) -> None:
        if looking.done():  # cancelled meanwhile
            return
        if error is not None:
            looking.set_exception(error)
        elif view is not None:
            looking.set_result(view)

    def work() -> None:
        view, problem = None, None
        try:
            view = read()
        except Exception as error:  # noqa: BLE001 - carried over to who waits
            problem = error
        with suppress(RuntimeError):  # the loop is closed: the agent has ended
            loop.call_soon_threadsafe(tell, view, problem)

    threading.Thread(target=work, name="rnics", daemon=True).start()
    return looking
