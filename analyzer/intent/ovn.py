# SPDX-License-Identifier: Apache-2.0
"""OVN: rows of its northbound and southbound databases to an intent, one changed row at a time.

A row is a plain mapping from its columns to values: text, numbers and truths; None for an optional
one that is empty; sequences for sets; mappings for maps. References are uuids as text. A column
that the server lacks is not in it.

Theory of operation. What a row says by itself is kept by the row's uuid. What refers to other rows
(a port's network, the chassis of a binding) is looked up when it is told, and what has to be told
anew is noted whenever something it refers to changes. So a change costs what refers to it, and
never all that there is. The order in which rows of a transaction come does not matter.
"""

import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analyzer.intent.changes import CHASSIS, PLACEMENTS, PORTS, Changes
from analyzer.intent.logical import LogicalFlow
from analyzer.intent.model import (
    MOVES_NS,
    Allowed,
    Chassis,
    Encapsulation,
    Intent,
    Ladder,
    Placement,
    Port,
)
from netagent.model.address import canonical

SOURCE = "ovn"
NORTHBOUND, SOUTHBOUND = "northbound", "southbound"

TABLES: Mapping[str, tuple[str, ...]] = {
    NORTHBOUND: ("NB_Global", "Logical_Switch", "Logical_Switch_Port"),
    SOUTHBOUND: ("SB_Global", "Chassis", "Chassis_Private", "Encap", "Port_Binding"),
}
"""Tables that are read of each database; their names differ."""

MOST_MOVES = 256
"""Most moves of a port that are remembered. Chosen: more than two chassis that fight over a port
make in `MOVES_NS`; bounds memory."""

_MAPS = {NORTHBOUND: (PORTS,), SOUTHBOUND: (PLACEMENTS, CHASSIS)}
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_WORDS = re.compile(r"[\s,]+")
_MS = 10**6
"""Nanoseconds of a millisecond, in which OVN writes instants."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A row as it is now; None where it is not there any more."""

    table: str
    uuid: str
    row: Row | None


def flow_of(uuid: str, row: Row) -> LogicalFlow:
    """Return a logical flow."""
    said = row.get("external_ids") or {}
    return LogicalFlow(
        uuid=uuid,
        pipeline=row.get("pipeline", ""),
        table=row.get("table_id", 0),
        priority=row.get("priority", 0),
        match=row.get("match", ""),
        actions=row.get("actions", ""),
        stage=said.get("stage-name", ""),
        hint=said.get("stage-hint", ""),
        source=said.get("source", ""),
    )


def port_of(uuid: str, row: Row) -> Port | None:
    """Return what a row of Logical_Switch_Port says by itself; None where nothing is plugged in.

    Its `hosts` are as they are written: names of chassis, or of hosts. A port within another one's
    (parent_name) has no interface of its own.
    """
    if row.get("type") or row.get("parent_name"):
        return None
    name, ids = str(row.get("name", "")), row.get("external_ids") or {}
    options = row.get("options") or {}
    macs, addresses = _addresses(row)
    pod, container = _who(name, ids)
    return Port(
        name=name,
        pod=pod,
        container=container,
        macs=macs,
        addresses=addresses,
        hosts=_unique(filter(None, _WORDS.split(options.get("requested-chassis", "")))),
        is_enabled=row.get("enabled") is not False,
        allowed=tuple(filter(None, map(_allowed, sorted(row.get("port_security") or ())))),
        owner=f"Logical_Switch_Port {uuid}",
    )


def _addresses(row: Row) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return hardware and IP addresses of a port: ovn-nb(5), column addresses.

    An element is ``MAC [IP...]``, ``unknown``, or says with ``dynamic`` that OVN chooses, which it
    tells in `dynamic_addresses`.
    """
    macs, addresses = list[str](), list[str]()
    for said in (*sorted(row.get("addresses") or ()), row.get("dynamic_addresses") or ""):
        for word in _WORDS.split(said):
            if _MAC.fullmatch(word.lower()):
                macs.append(word.lower())
            elif address := canonical(word):
                addresses.append(address)
    return _unique(macs), _unique(addresses)


def _allowed(said: str) -> Allowed | None:
    """Return an element of port_security, ``MAC [IP[/PLEN]...]``; None for any other kind."""
    mac, *words = said.lower().replace(",", " ").split() or ("",)
    if not _MAC.fullmatch(mac):
        return None
    return Allowed(mac, _unique(map(_prefix, words)))


def _prefix(word: str) -> str:
    address, slash, length = word.partition("/")
    return (canonical(address) or address) + slash + length


def _who(name: str, ids: Mapping[str, str]) -> tuple[str, str]:
    """Return the pod of a port and its container, by what the controllers on top of OVN write.

    A container is named as `netagent.host.controllers` reads it on the host.
    """
    namespace, slash, pod = ids.get("pod", "").partition("/")
    if slash:  # kube-ovn: buildLogicalSwitchPort, pkg/ovs/ovn-nb-logical_switch_port.go
        return f"{namespace}/{pod}", f"{namespace}.{pod}"
    if ids.get("pod") == "true" and ids.get("namespace"):
        # ovn-kubernetes: go-controller/pkg/ovn/base_network_controller_pods.go. The name of the
        # port ends with NAMESPACE_POD, and neither holds a "_". Its containers are sandboxes.
        return f"{ids['namespace']}/{name.rpartition('_')[2]}", ""
    if any(key.startswith("neutron:") for key in ids):  # neutron/common/ovn/constants.py
        return "", ids.get("neutron:device_id", "")
    return "", name


def _unique(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


@dataclass(frozen=True, slots=True)
class _Binding:
    port: str
    chassis: str
    """Its uuid; "" where there is none."""
    encap: str
    up: bool | None


@dataclass(frozen=True, slots=True)
class _Host:
    name: str
    hostname: str
    encaps: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Private:
    name: str
    installed: int
    installed_ns: int


@dataclass(slots=True)
class _Watched:
    """Where a port was, as far as that was watched."""

    chassis: str
    since_ns: int
    last: str
    """Chassis that it had last."""
    moves: deque[int] | None = None
    """Unix nanoseconds of its newest ones."""


class Follower:
    """The rows of both databases, as an intent and what changes of it."""

    def __init__(self) -> None:
        self._ports: dict[str, Port] = {}
        self._port_uuids: dict[str, str] = {}
        self._wishes: dict[str, set[str]] = {}
        """Name of a chassis or host -> uuids of ports that may be on it alone."""
        self._switches: dict[str, tuple[str, frozenset[str]]] = {}
        self._switch_of: dict[str, str] = {}
        """By a port's uuid."""
        self._bindings: dict[str, _Binding] = {}
        self._binding_uuids: dict[str, str] = {}
        self._bound: dict[str, set[str]] = {}
        """Uuid of a chassis or an encapsulation -> uuids of bindings that refer to it."""
        self._hosts: dict[str, _Host] = {}
        self._host_uuids: dict[str, str] = {}
        self._hostnames: dict[str, set[str]] = {}
        """Name of a host -> names of its chassis."""
        self._encaps: dict[str, Encapsulation] = {}
        self._encap_hosts: dict[str, str] = {}
        self._privates: dict[str, _Private] = {}
        self._private_uuids: dict[str, str] = {}
        self._generations: dict[str, dict[str, int]] = {"NB_Global": {}, "SB_Global": {}}
        self._watched: dict[str, _Watched] = {}
        self._moved: set[str] = set()
        """Ports with moves that count."""
        self._ladder = Ladder()
        self._unread = {NORTHBOUND, SOUTHBOUND}
        self._away = dict.fromkeys((NORTHBOUND, SOUTHBOUND), "it was not read so far")
        self._pending: dict[str, dict[str, None]] = {PORTS: {}, PLACEMENTS: {}, CHASSIS: {}}
        """Keys of what is to be told, in order."""
        self._afresh: list[str] = []
        self._is_news = True
        self._touched: dict[str, None] = {}
        """Bindings whose place is to be looked at, once all rows of a batch are there."""
        self._takers = {
            "NB_Global": lambda uuid, row: self._take_generation("NB_Global", uuid, row),
            "SB_Global": lambda uuid, row: self._take_generation("SB_Global", uuid, row),
            "Logical_Switch": self._take_switch,
            "Logical_Switch_Port": self._take_port,
            "Chassis": self._take_host,
            "Chassis_Private": self._take_private,
            "Encap": self._take_encap,
            "Port_Binding": self._take_binding,
        }

    # --- what comes in --------------------------------------------------------------------------

    def take(self, changes: Collection[Change], wall_ns: int) -> None:
        """Take rows that changed; those of one transaction together."""
        # A name may go from one row to another in a transaction: whoever goes, goes first.
        for change in changes:
            if change.row is None:
                self._takers[change.table](change.uuid, None)
        for change in changes:
            if change.row is not None:
                self._takers[change.table](change.uuid, change.row)
        self._place(wall_ns)
        self._climb(wall_ns)
        self.step(wall_ns)

    def uuids(self, table: str) -> Collection[str]:
        """Return the rows of a table that are known, to compare them with those that are there."""
        held: Mapping[str, Collection[str]] = {
            "Logical_Switch": self._switches,
            "Logical_Switch_Port": self._ports,
            "Chassis": self._hosts,
            "Chassis_Private": self._privates,
            "Encap": self._encaps,
            "Port_Binding": self._bindings,
            **self._generations,
        }
        return held[table]

    def here(self, database: str) -> None:
        """Note that a database was read whole, and is followed."""
        if database in self._unread:
            self._unread.discard(database)
            self._afresh += _MAPS[database]
            for name in _MAPS[database]:
                self._pending[name] = dict.fromkeys(self._keys(name))
        self._is_news |= self._away.pop(database, None) is not None

    def lose(self, database: str, why: str) -> None:
        """Note why a database cannot be read now."""
        if self._away.get(database) != why:
            self._away[database] = why
            self._is_news = True

    def step(self, wall_ns: int) -> None:
        """Let moves that were long ago count no more."""
        for port in sorted(self._moved):
            watched = self._watched[port]
            moves = watched.moves or deque()
            before = len(moves)
            while moves and not 0 <= wall_ns - moves[0] < MOVES_NS:
                moves.popleft()  # also what would be to come: the clock was set
            if len(moves) != before:
                self._pending[PLACEMENTS][port] = None
            if not moves:
                watched.moves = None
                self._moved.discard(port)

    # --- what goes out --------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell."""
        return self._is_news or any(self._pending.values())

    def changes(self, wall_ns: int, most: int) -> Changes:
        """Return what changed since the last call, `most` ports, placements and chassis of it."""
        told: dict[str, dict[str, Any]] = {}
        for name, keys in self._pending.items():
            look, now = self._look(name), dict[str, Any]()
            while keys and most > 0:
                key = next(iter(keys))
                del keys[key]
                now[key] = look(key)
                most -= 1
            told[name] = now
        afresh, self._afresh, self._is_news = tuple(self._afresh), [], False
        return Changes(
            source=SOURCE,
            wall_ns=wall_ns,
            ports=told[PORTS],
            placements=told[PLACEMENTS],
            chassis=told[CHASSIS],
            ladder=self._ladder,
            away=dict(self._away),
            afresh=afresh,
            is_whole=not any(self._pending.values()),
        )

    def intent(self, wall_ns: int) -> Intent:
        """Return all that is known: for tests and one-off looks, since it builds everything."""
        told = {name: {key: self._look(name)(key) for key in self._keys(name)} for name in
                (PORTS, PLACEMENTS, CHASSIS)}  # fmt: skip
        return Intent(
            source=SOURCE,
            wall_ns=wall_ns,
            away=dict(self._away),
            ports=told[PORTS],
            placements=told[PLACEMENTS],
            chassis=told[CHASSIS],
            ladder=self._ladder,
        )

    def _keys(self, name: str) -> Iterable[str]:
        uuids = {
            PORTS: self._port_uuids,
            PLACEMENTS: self._binding_uuids,
            CHASSIS: self._host_uuids,
        }
        return uuids[name]

    def _look(self, name: str) -> Any:
        return {PORTS: self._port, PLACEMENTS: self._placement, CHASSIS: self._chassis}[name]

    def _port(self, name: str) -> Port | None:
        uuid = self._port_uuids.get(name)
        if uuid is None:
            return None
        port = self._ports[uuid]
        switch = self._switches.get(self._switch_of.get(uuid, ""))
        return replace(
            port, network=switch[0] if switch else "", hosts=self._chassis_of(port.hosts)
        )

    def _chassis_of(self, wishes: Sequence[str]) -> tuple[str, ...]:
        """Return names of chassis; what names none stays as it is written: nobody has it."""
        found = list[str]()
        for wish in wishes:
            by_hostname = self._hostnames.get(wish)
            named = wish in self._host_uuids or not by_hostname
            found += [wish] if named else sorted(by_hostname or ())
        return _unique(found)

    def _placement(self, port: str) -> Placement | None:
        uuid = self._binding_uuids.get(port)
        if uuid is None:
            return None
        binding, watched = self._bindings[uuid], self._watched[port]
        encap = self._encaps.get(binding.encap)
        return Placement(
            port=port,
            chassis=watched.chassis,
            # As northd takes it: a chassis older than the column says nothing of it.
            is_up=bool(watched.chassis) if binding.up is None else binding.up,
            encapsulation=encap.address if encap else "",
            since_ns=watched.since_ns,
            moves=len(watched.moves or ()),
        )

    def _chassis(self, name: str) -> Chassis | None:
        uuid = self._host_uuids.get(name)
        if uuid is None:
            return None
        host = self._hosts[uuid]
        encaps = (self._encaps[each] for each in host.encaps if each in self._encaps)
        private = self._privates.get(self._private_uuids.get(name, ""))
        has_said = private is not None and bool(private.installed or private.installed_ns)
        return Chassis(
            name=name,
            hostname=host.hostname,
            encapsulations=tuple(sorted(encaps, key=lambda each: (each.kind, each.address))),
            is_registered=private is not None,
            installed=private.installed if private and has_said else None,
            installed_ns=private.installed_ns if private else 0,
        )

    # --- northbound -----------------------------------------------------------------------------

    def _take_port(self, uuid: str, row: Row | None) -> None:
        was, now = self._ports.get(uuid), port_of(uuid, row) if row is not None else None
        if was == now:
            return
        if was is not None:
            self._forget(self._port_uuids, was.name, uuid)
            for wish in was.hosts:
                _discard(self._wishes, wish, uuid)
            self._pending[PORTS][was.name] = None
            del self._ports[uuid]
        if now is not None:
            self._ports[uuid] = now
            self._port_uuids[now.name] = uuid
            for wish in now.hosts:
                self._wishes.setdefault(wish, set()).add(uuid)
            self._pending[PORTS][now.name] = None

    def _take_switch(self, uuid: str, row: Row | None) -> None:
        name, ports = self._switches.pop(uuid, ("", frozenset[str]()))
        if row is None:
            now_name, now_ports = "", frozenset[str]()
        else:
            now_name, now_ports = str(row.get("name", "")), frozenset(row.get("ports") or ())
            self._switches[uuid] = now_name, now_ports
        for port in ports - now_ports:
            self._forget(self._switch_of, port, uuid)
        for port in now_ports - ports:
            self._switch_of[port] = uuid
        touched = ports ^ now_ports if name == now_name else ports | now_ports
        self._touch_ports(touched)

    def _touch_ports(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            port = self._ports.get(uuid)
            if port is not None:
                self._pending[PORTS][port.name] = None

    # --- southbound -----------------------------------------------------------------------------

    def _take_binding(self, uuid: str, row: Row | None) -> None:
        was, now = self._bindings.get(uuid), _binding_of(row) if row is not None else None
        if was == now:
            return
        if was is not None:
            self._forget(self._binding_uuids, was.port, uuid)
            for other in (was.chassis, was.encap):
                _discard(self._bound, other, uuid)
            self._touched[was.port] = None
            del self._bindings[uuid]
        if now is not None:
            self._bindings[uuid] = now
            self._binding_uuids[now.port] = uuid
            for other in filter(None, (now.chassis, now.encap)):
                self._bound.setdefault(other, set()).add(uuid)
            self._touched[now.port] = None

    def _touch_bound(self, uuid: str) -> None:
        """Look again at the bindings that refer to a chassis or an encapsulation."""
        for each in self._bound.get(uuid, ()):
            self._touched[self._bindings[each].port] = None

    def _take_host(self, uuid: str, row: Row | None) -> None:
        was, now = self._hosts.get(uuid), _host_of(row) if row is not None else None
        if was == now:
            return
        if was is not None:
            self._forget(self._host_uuids, was.name, uuid)
            _discard(self._hostnames, was.hostname, was.name)
            for encap in was.encaps:
                self._forget(self._encap_hosts, encap, uuid)
            del self._hosts[uuid]
        if now is not None:
            self._hosts[uuid] = now
            self._host_uuids[now.name] = uuid
            self._hostnames.setdefault(now.hostname, set()).add(now.name)
            self._encap_hosts.update(dict.fromkeys(now.encaps, uuid))
        names = {each.name for each in (was, now) if each}
        self._pending[CHASSIS].update(dict.fromkeys(sorted(names)))
        if was is None or now is None or (was.name, was.hostname) != (now.name, now.hostname):
            self._touch_bound(uuid)
            for wish in names | {each.hostname for each in (was, now) if each}:
                self._touch_ports(self._wishes.get(wish, ()))

    def _take_private(self, uuid: str, row: Row | None) -> None:
        was, now = self._privates.get(uuid), _private_of(row) if row is not None else None
        if was == now:
            return
        if was is not None:
            self._forget(self._private_uuids, was.name, uuid)
            self._pending[CHASSIS][was.name] = None
            del self._privates[uuid]
        if now is not None:
            self._privates[uuid] = now
            self._private_uuids[now.name] = uuid
            self._pending[CHASSIS][now.name] = None

    def _take_encap(self, uuid: str, row: Row | None) -> None:
        if row is None:
            self._encaps.pop(uuid, None)
        else:
            self._encaps[uuid] = Encapsulation(str(row.get("type", "")), str(row.get("ip", "")))
        if host := self._hosts.get(self._encap_hosts.get(uuid, "")):
            self._pending[CHASSIS][host.name] = None
        self._touch_bound(uuid)

    def _place(self, wall_ns: int) -> None:
        """See where ports are that were touched."""
        for port in self._touched:
            self._pending[PLACEMENTS][port] = None
            uuid = self._binding_uuids.get(port)
            if uuid is None:
                self._watched.pop(port, None)
                self._moved.discard(port)
                continue
            host = self._hosts.get(self._bindings[uuid].chassis)
            chassis, watched = host.name if host else "", self._watched.get(port)
            if watched is None:
                self._watched[port] = _Watched(chassis, wall_ns, chassis)
            elif watched.chassis != chassis:
                self._move(port, watched, chassis, wall_ns)
        self._touched.clear()

    def _move(self, port: str, watched: _Watched, chassis: str, wall_ns: int) -> None:
        watched.chassis, watched.since_ns = chassis, wall_ns
        if not chassis:
            return  # whether it moves is seen where it is next
        if watched.last and watched.last != chassis:
            watched.moves = watched.moves or deque(maxlen=MOST_MOVES)
            watched.moves.append(wall_ns)
            self._moved.add(port)
        watched.last = chassis

    # --- both -----------------------------------------------------------------------------------

    def _take_generation(self, table: str, uuid: str, row: Row | None) -> None:
        if row is None:
            self._generations[table].pop(uuid, None)
        else:
            self._generations[table][uuid] = row.get("nb_cfg", 0)

    def _climb(self, wall_ns: int) -> None:
        asked, translated = (
            next(iter(self._generations[table].values()), None)
            for table in ("NB_Global", "SB_Global")
        )
        was = self._ladder
        if (asked, translated) == (was.asked, was.translated):
            return
        since_ns = was.asked_ns if asked == was.asked else wall_ns
        self._ladder = Ladder(asked, translated, since_ns if asked is not None else 0)
        self._is_news = True

    @staticmethod
    def _forget(names: dict[str, str], name: str, uuid: str) -> None:
        """Forget whose a name is, unless it is another's by now."""
        if names.get(name) == uuid:
            del names[name]


def _binding_of(row: Row) -> _Binding | None:
    """Return what a row of Port_Binding says; None where nothing is plugged in."""
    if row.get("type") or row.get("parent_port"):
        return None
    return _Binding(
        port=str(row.get("logical_port", "")),
        chassis=row.get("chassis") or "",
        encap=row.get("encap") or "",
        up=row.get("up"),
    )


def _host_of(row: Row) -> _Host:
    encaps = frozenset(row.get("encaps") or ())
    return _Host(str(row.get("name", "")), str(row.get("hostname", "")), encaps)


def _private_of(row: Row) -> _Private:
    stamp = row.get("nb_cfg_timestamp", 0) * _MS
    return _Private(str(row.get("name", "")), row.get("nb_cfg", 0), stamp)


def _discard(index: dict[str, set[str]], key: str, value: str) -> None:
    held = index.get(key)
    if held is not None:
        held.discard(value)
        if not held:
            del index[key]
