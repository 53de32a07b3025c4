# SPDX-License-Identifier: Apache-2.0
"""The door of python-ovs' IDL: a live replica of what we need of OVSDB, as plain values.

The IDL is written for a poll loop of its own; here its descriptors and timers are handed to
asyncio, so nothing is polled and nothing blocks. ovsdb-server sends changes by itself (monitor).
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ovs.db.error
import ovs.db.idl
import ovs.timeval
import structlog

from netagent.concurrency import timeout
from netagent.host.facts import Bridge, Port, VswitchView
from netagent.model.vswitch import interface_of

log = structlog.get_logger()

_POLLIN, _POLLOUT = 1, 4
"""Events the IDL asks for, as ovs.poller numbers them (poll(2))."""

BACKOFF_MS = (100, 1000)
"""First and longest wait between two attempts to reach ovsdb-server, in milliseconds. Chosen: a
change is to be seen within a second, also after a restart."""

PROBE_MS = 5000
"""Milliseconds of silence after which the IDL sends ovsdb-server an echo request. Chosen: the
interval that Open vSwitch's own clients use by default."""

_STRINGS = {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}
_STRING = {"type": "string"}
_MAYBE_STRING = {"type": {"key": "string", "min": 0, "max": 1}}


def _references(table: str) -> dict[str, Any]:
    return {"type": {"key": {"type": "uuid", "refTable": table}, "min": 0, "max": "unlimited"}}


# The columns we monitor, written as a schema of their own: the host's schema file (version and
# place differ) is then not needed, and the replica holds nothing else.
_SCHEMA: dict[str, Any] = {
    "name": "Open_vSwitch",
    "version": "7.0.0",
    "tables": {
        "Open_vSwitch": {
            "isRoot": True,
            "columns": {
                "bridges": _references("Bridge"),
                "external_ids": _STRINGS,
                "other_config": _STRINGS,
                "ovs_version": _MAYBE_STRING,
            },
        },
        "Bridge": {
            "columns": {
                "name": _STRING,
                "datapath_type": _STRING,
                "ports": _references("Port"),
                "controller": _references("Controller"),
                "external_ids": _STRINGS,
            }
        },
        "Controller": {"columns": {"is_connected": {"type": "boolean"}}},
        "Port": {
            "columns": {
                "name": _STRING,
                "interfaces": _references("Interface"),
                "external_ids": _STRINGS,
            }
        },
        "Interface": {
            "columns": {
                "name": _STRING,
                "type": _STRING,
                "ofport": {"type": {"key": "integer", "min": 0, "max": 1}},
                "options": _STRINGS,
                "external_ids": _STRINGS,
                "mac_in_use": _MAYBE_STRING,
                "admin_state": _MAYBE_STRING,
                "link_state": _MAYBE_STRING,
                "error": _MAYBE_STRING,
            }
        },
    },
}


class _Wishes:
    """Collects what the IDL wants to wait for; quacks like `ovs.poller.Poller`."""

    def __init__(self) -> None:
        self.events: dict[int, int] = {}
        self.timeout_ms: float | None = None

    def fd_wait(self, fd: Any, events: int) -> None:
        number = fd if isinstance(fd, int) else fd.fileno()
        self.events[number] = self.events.get(number, 0) | events

    def timer_wait(self, msec: float) -> None:
        wait = max(0.0, msec)
        self.timeout_ms = wait if self.timeout_ms is None else min(wait, self.timeout_ms)

    def timer_wait_until(self, msec: float) -> None:
        self.timer_wait(msec - ovs.timeval.msec())

    def immediate_wake(self) -> None:
        self.timeout_ms = 0.0


class OvsdbMonitor:
    """Follows one OVSDB and calls back with a `VswitchView` on every relevant change."""

    def __init__(self, socket: Path | str) -> None:
        self._remote = f"unix:{socket}"
        self._seqno = 0
        self._view = VswitchView()

    async def run(self, callback: Callable[[VswitchView], None]) -> None:
        """Follow until cancelled, reconnecting with back-off whenever ovsdb-server goes away."""
        while True:
            idl = self._open()
            try:
                await self._follow(idl, callback)
            except (ovs.db.error.Error, ArithmeticError, LookupError, TypeError, ValueError) as why:
                # The server sent what the IDL cannot digest: start over with a fresh replica.
                log.warning("ovsdb_replica_broken", remote=self._remote, error=repr(why))
            finally:
                idl.close()
            await asyncio.sleep(1)

    def _open(self) -> Any:
        self._seqno = 0
        helper = ovs.db.idl.SchemaHelper(schema_json=_SCHEMA)
        helper.register_all()
        idl = ovs.db.idl.Idl(self._remote, helper, probe_interval=PROBE_MS, leader_only=False)
        # The default first back-off of a second alone would spend the promise "within a second".
        idl._session.reconnect.set_backoff(*BACKOFF_MS)  # noqa: SLF001 - no public way
        return idl

    async def _follow(self, idl: Any, callback: Callable[[VswitchView], None]) -> None:
        while True:
            idl.run()
            view = self._observe(idl)
            if view is not None:
                callback(view)
            wishes = _Wishes()
            idl.wait(wishes)
            await _wait(wishes)

    def _observe(self, idl: Any) -> VswitchView | None:
        """Return the new view, or None if nothing of interest changed."""
        session = idl._session  # noqa: SLF001 - no public way
        connected = idl.state == idl.IDL_S_MONITORING and session.is_connected()
        if idl.change_seqno == self._seqno and connected == self._view.connected:
            return None
        self._seqno = idl.change_seqno
        view = (
            _view_of(idl.tables)
            if idl.change_seqno and connected
            else replace(self._view, connected=False)
        )
        if view == self._view:
            return None
        self._view = view
        return view


async def _wait(wishes: _Wishes) -> None:
    """Return when a descriptor is ready or the time is over."""
    if wishes.timeout_ms == 0.0:
        await asyncio.sleep(0)
        return
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    for fd, events in wishes.events.items():
        if events & _POLLIN:
            loop.add_reader(fd, ready.set)
        if events & _POLLOUT:
            loop.add_writer(fd, ready.set)
    try:
        with suppress(TimeoutError):
            timeout_s = None if wishes.timeout_ms is None else wishes.timeout_ms / 1e3
            async with timeout(timeout_s):
                await ready.wait()
    finally:
        # Always before the IDL runs: it may close a descriptor, whose number is then used again.
        for fd in wishes.events:
            loop.remove_reader(fd)
            loop.remove_writer(fd)


def _view_of(tables: Mapping[str, Any]) -> VswitchView:
    roots = list(tables["Open_vSwitch"].rows.values())
    bridges = (_bridge(row) for root in roots for row in root.bridges)
    return VswitchView(
        connected=True,
        bridges=tuple(sorted(bridges, key=lambda bridge: bridge.name)),
        external_ids=dict(roots[0].external_ids) if roots else {},
        settings=dict(roots[0].other_config) if roots else {},
        version=next((said for root in roots[:1] for said in root.ovs_version), ""),
    )


def _bridge(row: Any) -> Bridge:
    ports = sorted((_port(port) for port in row.ports), key=lambda port: port.name)
    connected = tuple(sorted(each.is_connected for each in row.controller))
    return Bridge(row.name, row.datapath_type, tuple(ports), dict(row.external_ids), connected)


def _port(row: Any) -> Port:
    found = (interface_of(_Columns(each)) for each in row.interfaces)
    interfaces = tuple(sorted(found, key=lambda each: each.name))
    return Port(row.name, interfaces, dict(row.external_ids))


class _Columns:
    """A row of the Interface table as the IDL has it: a column's values are a list or a dict."""

    def __init__(self, row: Any) -> None:
        self._row = row

    def atom(self, name: str) -> object:
        if name not in _SCHEMA["tables"]["Interface"]["columns"]:
            return None
        value = getattr(self._row, name)
        if isinstance(value, list):
            return value[0] if value else None
        return value

    def pairs(self, name: str) -> Mapping[str, str]:
        return dict(getattr(self._row, name))
