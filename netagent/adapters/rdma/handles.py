# SPDX-License-Identifier: Apache-2.0
"""Address handles of one port, by GID and flow; made when the resolver says that it takes no time.

A handle that is replaced is destroyed later: a request that was posted with it may still wait.
"""

from collections.abc import Iterable
from enum import Enum

from netagent.adapters.clock import now_ns
from netagent.adapters.rdma.port import RdmaPort
from netagent.adapters.rdma.resolver import Resolver
from netagent.adapters.rdma.verbs import Handle
from netagent.probing.rdma.steering import Steering

RETIRE_NS = 2_000_000_000
"""Nanoseconds from a handle's replacement to its release. Chosen: no posted request waits
longer."""
MAX_PORTS = 64
"""Flows of one GID that have a handle of their own. Chosen: the largest `flows_per_pair` of the
configuration, so more would be a peer's mischief."""


MAX_FOUND = 8192
"""Handles kept by GID and port for quick lookup; at more the lookup begins anew. Chosen: it bounds
memory."""


class Reach(Enum):
    """What is known of a GID."""

    PENDING = "pending"
    READY = "ready"
    SILENT = "silent"
    """The GID's neighbour did not answer."""
    UNKNOWN = "unknown"
    """Nobody aimed at it."""


class _Entry:
    __slots__ = ("handles", "reach")

    def __init__(self) -> None:
        self.reach = Reach.PENDING
        self.handles: dict[int, Handle] = {}
        """Handles by source port; under 0 where the port is not the handle's affair."""


class Handles:
    """All handles of a port."""

    def __init__(self, port: RdmaPort, resolver: Resolver, ports: Iterable[int] = ()) -> None:
        """Make those for `ports` as soon as a GID is resolved, others at their first use."""
        self._port = port
        self._resolver = resolver
        self._ports = tuple(ports)
        self._by_label = port.steering is Steering.FLOW_LABEL
        self._entries: dict[str, _Entry] = {}
        self._found: dict[tuple[str, int], Handle] = {}
        """Handles by (GID, port), for whoever sends; empty after every change."""
        self._retired: list[tuple[int, Handle]] = []

    def aim(self, gids: Iterable[str]) -> None:
        """Be ready for exactly these."""
        wanted = dict.fromkeys(gids)
        for gid in self._entries.keys() - wanted.keys():
            self._retire(self._entries.pop(gid))
        for gid in wanted:
            self._entries.setdefault(gid, _Entry())
        self._resolver.aim(self._port.place, wanted, self._answered)

    def reach(self, gid: str) -> Reach:
        """Return what is known of `gid`."""
        entry = self._entries.get(gid)
        return entry.reach if entry is not None else Reach.UNKNOWN

    def find(self, gid: str, port: int) -> Handle | None:
        """Return the handle for a flow; None unless `gid` is READY."""
        return self._found.get((gid, port)) or self._find(gid, port)

    def _find(self, gid: str, port: int) -> Handle | None:
        entry = self._entries.get(gid)
        if entry is None or entry.reach is not Reach.READY:
            return None
        handle = entry.handles.get(port if self._by_label else 0)
        if handle is None:
            handle = self._make(entry, gid, port)
        if handle is not None:
            if len(self._found) >= MAX_FOUND:
                self._found.clear()
            self._found[gid, port] = handle
        return handle

    def heard(self, gid: str) -> None:
        """Be ready for `gid` as well: something came from there."""
        entry = self._entries.setdefault(gid, _Entry())
        if entry.reach is not Reach.READY:
            self._resolver.heard(self._port.place, gid)

    def forget(self, gid: str) -> None:
        """Need no handles for `gid` any more."""
        entry = self._entries.pop(gid, None)
        if entry is not None:
            self._retire(entry)
            self._resolver.forget(self._port.place, gid)

    def lost(self, gid: str) -> None:
        """Probes of `gid` are lost: its neighbour may have changed."""
        self._resolver.hurry(self._port.place, gid)

    def _answered(self, gid: str, resolved: bool) -> None:  # noqa: FBT001 - a Listener
        self._bury()
        entry = self._entries.get(gid)
        if entry is None:
            return
        if not resolved:
            if entry.reach is Reach.PENDING:
                entry.reach = Reach.SILENT
            return  # an old handle stays in use: the probes show whether it leads anywhere
        self._retire(entry)
        entry.reach = Reach.READY
        for port in self._ports if self._by_label else (0,):
            self._make(entry, gid, port)

    def _make(self, entry: _Entry, gid: str, port: int) -> Handle | None:
        key = port if self._by_label else 0
        if len(entry.handles) >= MAX_PORTS:
            return next(iter(entry.handles.values()))
        try:
            entry.handles[key] = self._port.handle(gid, port)
        except OSError:  # silent again in the meantime, or the device is going away
            entry.reach = Reach.PENDING  # no verdict: the resolver asks anew
            self._resolver.hurry(self._port.place, gid)
            return None
        return entry.handles[key]

    def _retire(self, entry: _Entry) -> None:
        self._found.clear()
        until_ns = now_ns() + RETIRE_NS
        self._retired += [(until_ns, handle) for handle in entry.handles.values()]
        entry.handles = {}

    def _bury(self) -> None:
        at_ns = now_ns()
        while self._retired and self._retired[0][0] <= at_ns:
            self._retired.pop(0)[1].close()

    def close(self) -> None:
        """Destroy all."""
        self._resolver.leave(self._port.place)
        for entry in self._entries.values():
            self._retire(entry)
        self._entries = {}
        for _, handle in self._retired:
            handle.close()
        self._retired = []
