# SPDX-License-Identifier: Apache-2.0
"""Follows what this host carries: OVSDB, netlink, namespaces and ovs-vswitchd, as one view.

Most sources report their changes at once. The watcher looks once or twice a second only at what
ends silently: a namespace's name, ovs-vswitchd's control socket.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

import netagent
from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.host.board import read_hardware
from netagent.adapters.host.declared import DeclaredFolder
from netagent.adapters.host.namespaces import SEEK_NS, Namespaces, at_paths, locate, seek
from netagent.adapters.host.netlink import LinkMonitor, own_nsid
from netagent.adapters.host.ovn import OvnWatch
from netagent.adapters.host.ovsdb import OvsdbMonitor
from netagent.adapters.host.sysfs import netdev_rate, physical_function
from netagent.adapters.host.vswitchd import VswitchdWatch
from netagent.adapters.host.zone import folder_of, folders_of
from netagent.concurrency import TaskGroup, timeout
from netagent.config import AgentConfig
from netagent.host.board import BoardWatch
from netagent.host.checks.contract import Inspected
from netagent.host.controllers import ControllerPorts
from netagent.host.declared import DeclaredPorts
from netagent.host.discovery import Discovery
from netagent.host.driven import driven, driven_by, is_driven
from netagent.host.facts import Bridge, HostView, LinkView, Namespace, Uplink, VswitchView
from netagent.host.hardware import Hardware
from netagent.host.inside import container_nsids, named_paths, unwired_macs
from netagent.host.inventory import inventory_of
from netagent.host.ports import is_tunnel
from netagent.host.rates import PortRate, RateWatch
from netagent.host.sources import EndpointSource, Found, Given, OwnPorts, found_by
from netagent.host.unprobed import unprobed
from netagent.host.uplinks import Uplinks
from netagent.model.finding import Finding
from netagent.wire.controller import ControllerState
from netagent.wire.inventory import Inventory

log = structlog.get_logger()

SETTLE_S = 0.01
"""Seconds from a change to the look. Chosen: a container start is some forty changes, and one look
serves them."""

NAMESPACE_LOOK_S = 0.5
"""Seconds between two looks at the names of namespaces, which end silently. Chosen: a dead
container is seen within a second."""
VSWITCHD_LOOK_S = 1.0
"""Seconds between two looks at ovs-vswitchd. Chosen: each is a question to the thread that serves
OpenFlow."""
RATES_LOOK_S = 5.0
"""Seconds between two looks at how fast the RNICs run. Chosen: each is a question to the firmware,
and a port that was trained at a lower rate stays there."""

BOARD_LOOK_S = 60.0
"""Seconds between two looks at the board. Chosen: what is found there stays for days, each look
costs some milliseconds in a thread, and two must agree."""


CONTROLLER_LOOK_S = 5.0
"""Seconds between two looks at a controller's own process, where there is one. Chosen: a window;
each is a question to the thread that computes flows."""

_Search = Callable[[AbstractSet[str]], dict[str, tuple[int, Namespace]]]
"""Returns where each of several keys is found: the id of a namespace, and this."""


class Watcher:
    """Calls back with a whole `HostView` whenever one differs from the last."""

    def __init__(self, config: AgentConfig) -> None:
        rundir = Path(config.ovs.rundir)
        self._host = config.host
        self._bridge = config.ovs.integration_bridge
        self._driven_by = config.ovs.driven_by
        self._rails = config.ovs.rails
        self._discovery = Discovery(host=config.host, bridge=self._bridge, rnics=self._rails)
        rules = config.endpoints.rules()
        self._sources: list[EndpointSource] = [OwnPorts()]
        self._sources += [ControllerPorts(rules)] if rules else []
        self._has_rules = rules is not None
        self._sources.append(DeclaredPorts())
        self._declared = DeclaredFolder(config.endpoints.folder)
        self._functions_of: dict[str, str] = {}
        """Physical functions, by the parents of devices."""
        self._ovsdb = OvsdbMonitor(rundir / "db.sock")
        self._links = LinkMonitor()
        self._namespaces = Namespaces[int]()
        self._functions = _Placed(Namespaces[str](SEEK_NS), seek)
        """By the hardware address of a NIC's function in them."""
        self._named = _Placed(Namespaces[str](), at_paths)
        """By the path that whoever plugged a container in says."""
        self._vswitchd = VswitchdWatch(rundir)
        self._vswitch = VswitchView()
        self._read_once = self._looked_once = not self._bridge
        self._ovn = OvnWatch(Path(config.ovs.ovn_rundir))
        self._zone_folders = folders_of(config.ovs.ovn_databases, config.ovs.ovn_rundir)
        self._has_databases = False
        """Whether the controller's were seen on this host; where they went, asking says so."""
        self._odd: tuple[str, ...] = ()
        """What of a controller's part cannot be told, as logged."""
        self._rates = RateWatch(config.host)
        self._slow: tuple[Finding, ...] = ()
        self._board = BoardWatch()
        self._of_board: tuple[Finding, ...] = ()
        self._inventory: Inventory | None = None
        self._changed = asyncio.Event()
        self._last = HostView()

    async def run(self, callback: Callable[[HostView], None]) -> None:
        """Watch until cancelled.

        Raises CapabilityMissing without the rights to follow netlink, and whatever `callback`
        raises.
        """
        self._links.start(self._changed.set)
        parts: list[Coroutine[Any, Any, None]] = [
            self._look_at_namespaces(),
            self._look_at_rates(),
            self._look_at_board(),
            self._report(callback),
        ]
        if self._bridge:
            parts += [
                self._ovsdb.run(self._on_vswitch),
                self._look_at_vswitchd(),
                self._look_at_controller(),
            ]
        self._declared.look()
        self._changed.set()
        try:
            async with TaskGroup() as group:
                for part in parts:
                    group.create_task(part)
        finally:
            self._links.close()

    def _on_vswitch(self, view: VswitchView) -> None:
        self._vswitch = view
        self._read_once |= view.connected
        self._changed.set()

    async def _look_at_namespaces(self) -> None:
        while True:
            await asyncio.sleep(NAMESPACE_LOOK_S)
            lost = [self._namespaces.drop_lost()]
            lost += [each.namespaces.drop_lost() for each in (self._functions, self._named)]
            due = [self._namespaces.retry_ns()]
            due += [each.namespaces.retry_ns() for each in (self._functions, self._named)]
            lost.append(self._declared.look())
            if any(lost) or any(when is not None and when <= now_ns() for when in due):
                self._changed.set()

    async def _look_at_vswitchd(self) -> None:
        while True:
            ours = self._our_bridges()
            changed = await self._vswitchd.look(
                connected=self._vswitch.connected,
                bridges={bridge.name for bridge in ours},
                ports=self._expected_ports(ours),
            )
            if changed or not self._looked_once:
                self._looked_once = True
                self._changed.set()
            await asyncio.sleep(VSWITCHD_LOOK_S)

    async def _look_at_controller(self) -> None:
        while True:
            if is_driven(self._vswitch, self._bridge):
                had = self._has_databases
                self._has_databases = had or folder_of(self._zone_folders) is not None
                if await self._ovn.look() or had != self._has_databases:
                    self._changed.set()
            await asyncio.sleep(CONTROLLER_LOOK_S)

    async def _look_at_rates(self) -> None:
        while True:
            await asyncio.sleep(RATES_LOOK_S)
            rates = await asyncio.to_thread(_rates_of, self._last.rnics)
            slow = self._rates.observe(rates, now_ns=now_ns())
            if slow != self._slow:
                self._slow = slow
                self._changed.set()

    async def _look_at_board(self) -> None:
        while True:
            await asyncio.sleep(BOARD_LOOK_S)
            view = self._last
            try:
                hardware, rates = await asyncio.to_thread(_board_of, view.rnics)
                found = self._board.observe(Inspected(self._host, view, hardware), now_ns=now_ns())
                inventory = inventory_of(
                    hardware, rates, self._vswitch if self._read_once else None,
                    kernel=os.uname().release, netagent=netagent.__version__,
                )  # fmt: skip
            except Exception:
                # What a driver says of a card must not end the discovery of containers.
                log.exception("board_unreadable")
                continue
            if (found, inventory) != (self._of_board, self._inventory):
                self._of_board, self._inventory = found, inventory
                self._changed.set()

    def _our_bridges(self) -> list[Bridge]:
        """Return the bridges that probes cross: the integration bridge, and those of VTEPs."""
        vteps = {uplink.vtep for uplink in self._last.uplinks}
        return [
            bridge
            for bridge in self._vswitch.bridges
            if bridge.name == self._bridge or any(i.name in vteps for i in bridge.interfaces())
        ]

    def _expected_ports(self, bridges: list[Bridge]) -> set[str]:
        """Return the ports ovs-vswitchd must have to be at work: none that it cannot open."""
        devices = {link.name for link in self._links.host}
        return {
            each.name
            for bridge in bridges
            for each in bridge.interfaces()
            if each.error is None
            and (is_tunnel(each) or each.type == "internal" or each.name in devices)
        }

    async def _report(self, callback: Callable[[HostView], None]) -> None:
        told = False
        while True:
            await self._wait()
            if not (self._read_once or self._looked_once):
                continue
            view = await self._look()
            if view != self._last or not told:
                self._last, told = view, True
                callback(view)

    async def _wait(self) -> None:
        """Return when something changed, or when time alone changes what holds."""
        deadline_ns = self._discovery.deadline_ns()
        timeout_s = None if deadline_ns is None else max(0, deadline_ns - now_ns()) / 1e9
        with suppress(TimeoutError):
            async with timeout(timeout_s):
                await self._changed.wait()
            await asyncio.sleep(SETTLE_S)
        self._changed.clear()

    async def _look(self) -> HostView:
        self._namespaces.drop(self._links.gone)
        self._functions.drop(self._links.gone)
        self._named.drop(self._links.gone)
        self._links.gone.clear()
        links = self._links.view({})
        found_ports = self._found(links)
        ports = found_ports.ports
        nsids = container_nsids(ports, links)
        asked = self._namespaces.wanted(nsids, now_ns=now_ns())
        if asked:
            # A host has thousands of processes; walking them must not hold up a probe.
            found = await asyncio.to_thread(locate, asked)
            self._namespaces.learn(asked, found, now_ns=now_ns())
        await self._functions.look(unwired_macs(ports, links))
        await self._named.look(named_paths(ports, links))
        placed = self._functions.by_nsid | self._named.by_nsid
        self._links.follow((nsids | placed.keys()) - {self._own()})
        links = self._links.view({**placed, **self._namespaces.found})
        # Reading the others may have given this one an id.
        links = replace(links, by_path=self._named.nsids, own=self._own())
        view = self._discovery.observe(
            self._vswitch,
            replace(links, functions=self._physical(links)),
            found_ports,
            now_ns=now_ns(),
            wall_ns=wall_ns(),
            vswitch_down=self._vswitchd.down if self._looked_once else None,
            stated=(*self._slow, *self._of_board),
            complete=self._read_once,
        )
        left_out = unprobed(
            self._vswitch,
            self._bridge,
            found_ports,
            self._discovery.waiting(),
            view,
            links.host,
            has_rules=self._has_rules,
        )
        return replace(
            view,
            inventory=self._inventory,
            controller=self._controller(links),
            unprobed=left_out,
        )

    def _controller(self, links: LinkView) -> ControllerState | None:
        seen, inside = self._vswitch, self._discovery.inside()
        part = driven(
            seen,
            self._bridge,
            host=links.host,
            inside=inside,
            working=self._ovn.working,
            databases=self._has_databases,
        )
        if part is None and self._driven_by:
            part = driven_by(
                self._driven_by,
                seen,
                self._bridge,
                chassis=self._host,
                host=links.host,
                inside=inside,
            )
        odd = part.odd if part else ()
        if odd and odd != self._odd:
            log.warning("controller_odd", odd=list(odd))
        self._odd = odd
        return part.state if part else None

    def _found(self, links: LinkView) -> Found:
        """Return what all sources say of endpoints now."""
        bridge = self._vswitch.bridge(self._bridge)
        given = Given(
            ports=bridge.ports if bridge else (),
            links=links,
            uplinks=self._uplinks(links),
            files=self._declared.files,
        )
        return found_by(self._sources, given)

    def _own(self) -> int | None:
        """Return the id by which this namespace knows itself, where anything may refer to that."""
        return own_nsid() if self._named.nsids else None

    def _physical(self, links: LinkView) -> dict[str, str]:
        """Return the physical functions of the devices that endpoints without a port may use."""
        placed = self._named.nsids.values()
        inside = (link for nsid in placed for link in links.inside.get(nsid, {}).values())
        devices = [*inside, *links.host.values()] if placed else []
        known = self._functions_of
        self._functions_of = {
            parent: known.get(parent) or physical_function(parent)
            for parent in {link.parent for link in devices} - {""}
        }
        return self._functions_of

    def _uplinks(self, links: LinkView) -> tuple[Uplink, ...]:
        """Return the uplinks that are there, and those that were, of rails that lost theirs."""
        bridge = self._vswitch.bridge(self._bridge)
        interfaces = tuple(bridge.interfaces()) if bridge else ()
        fresh = Uplinks(self._rails)
        now, _ = fresh.observe(self._vswitch, interfaces, links, rails=frozenset())
        return tuple(({u.rail: u for u in self._last.uplinks} | {u.rail: u for u in now}).values())


class _Placed:
    """Namespaces that are found by what is known of them, with the ids they have here."""

    def __init__(self, namespaces: Namespaces[str], search: _Search) -> None:
        self.namespaces = namespaces
        self.nsids: dict[str, int] = {}
        """Ids by what was looked for."""
        self._search = search

    @property
    def by_nsid(self) -> dict[int, Namespace]:
        """Return the namespaces by their ids."""
        return {self.nsids[key]: there for key, there in self.namespaces.found.items()}

    def drop(self, gone: AbstractSet[int]) -> None:
        """Forget namespaces that died."""
        self.namespaces.drop({key for key, nsid in self.nsids.items() if nsid in gone})

    async def look(self, keys: AbstractSet[str]) -> None:
        """Find these, and forget all others."""
        asked = self.namespaces.wanted(keys, now_ns=now_ns())
        if asked:
            # A host has thousands of processes; walking them must not hold up a probe.
            found = await asyncio.to_thread(self._search, asked)
            self.nsids.update({key: nsid for key, (nsid, _) in found.items()})
            there = {key: namespace for key, (_, namespace) in found.items()}
            self.namespaces.learn(asked, there, now_ns=now_ns())
        kept = self.namespaces.found
        self.nsids = {key: nsid for key, nsid in self.nsids.items() if key in kept}


def _board_of(names: Collection[str]) -> tuple[Hardware, dict[str, PortRate | None]]:
    return read_hardware(names), _rates_of(names)


def _rates_of(names: Iterable[str]) -> dict[str, PortRate | None]:
    return {name: netdev_rate(name) for name in names}
