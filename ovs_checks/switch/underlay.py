# SPDX-License-Identifier: Apache-2.0
"""What a host's own kernel does with a tunnel's packets: route, neighbour, MTU (`ip -j`)."""

import ipaddress
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from netagent.model.errors import NetAgentError

OVERHEAD = {"vxlan": 50, "geneve": 50, "gre": 42, "ip6gre": 42}
"""Bytes that a tunnel adds to a packet over IPv4: inner Ethernet, own header, outer UDP and IP."""
_MORE_OVER_IPV6 = 20
"""Bytes that an IPv6 header (RFC 8200) has more than an IPv4 header without options (RFC 791)."""

_DEAD = frozenset({"FAILED", "INCOMPLETE"})
_LOCAL = frozenset({"local", "broadcast", "multicast", "anycast"})
_REFUSING = frozenset({"unreachable", "blackhole", "prohibit", "throw"})
_TABLES = ("local", "main", "default")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Underlay:
    """Routes, neighbours and links of one host; empty where they are not known."""

    routes: tuple[Row, ...] = ()
    neighbours: tuple[Row, ...] = ()
    links: Mapping[str, Row] = field(default_factory=dict)
    addresses: frozenset[str] = frozenset()

    def fault(
        self,
        remote: str,
        *,
        kind: str,
        mtu: int,
        uplinks: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> str:
        """Return what keeps packets of `mtu` bytes from leaving in a tunnel to `remote`.

        Empty if nothing does, or nothing is known. What leaves by a bridge leaves the host by its
        `uplinks`.
        """
        if not self.routes or not remote:
            return ""
        route = self.route(remote)
        if route is None and self._elsewhere(remote):
            return ""
        if route is None or route.get("type") in _REFUSING:
            return f"no route leads to {remote}"
        if route.get("type") in _LOCAL:
            return f"{remote} is an address of this host"
        hops = route.get("nexthops", [route])
        added = OVERHEAD.get(kind, 0) + (_MORE_OVER_IPV6 if ":" in remote else 0)
        said = [
            self._unanswered(hop, remote) or self._narrow(hop, kind, mtu, added, uplinks)
            for hop in hops
        ]
        return said[0] if said and all(said) else ""

    def _elsewhere(self, remote: str) -> bool:
        """Tell whether a table has a route that only rules lead to (`ip rule`)."""
        address = ipaddress.ip_address(remote)
        return any(address in _network(row) for row in self.routes)

    def route(self, remote: str) -> Row | None:
        """Return the route to an address: the longest prefix of the first table that has one."""
        address = ipaddress.ip_address(remote)
        for table in _TABLES:
            fitting = [
                (network.prefixlen, -row.get("metric", 0), n, row)
                for n, row in enumerate(self.routes)
                if row.get("table", "main") == table and address in (network := _network(row))
            ]
            if fitting:
                return max(fitting, key=lambda one: one[:3])[3]
        return None

    def _unanswered(self, hop: Row, remote: str) -> str:
        device, via = hop.get("dev"), hop.get("gateway", remote)
        for row in self.neighbours:
            same = row.get("dst") == via and row.get("dev") == device
            if same and _DEAD & set(row.get("state", [])):
                return f"{via} does not answer on {device}"
        return ""

    def _narrow(
        self, hop: Row, kind: str, mtu: int, added: int, uplinks: Mapping[str, Sequence[str]]
    ) -> str:
        device = str(hop.get("dev", ""))
        needs = mtu + added
        stages = [[device], list(uplinks.get(device, ()))]
        for devices in filter(None, stages):
            carried = {name: self.links.get(name, {}).get("mtu", 0) for name in devices}
            widest = max(carried, key=lambda name: carried[name])
            if kind in OVERHEAD and mtu and 0 < carried[widest] < needs and all(carried.values()):
                said = f"{widest} carries {carried[widest]} bytes"
                return f"{said}, a packet of {mtu} needs {needs} in {kind}"
        return ""


def _network(row: Row) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    to = str(row.get("dst", ""))
    if to == "default":
        v6 = "pref" in row or ":" in str(row.get("gateway", ""))
        to = "::/0" if v6 else "0.0.0.0/0"
    return ipaddress.ip_network(to, strict=False)


def read_underlay(told: Callable[[str], str]) -> tuple[Underlay, tuple[str, ...]]:
    """Read the answers that `told` gives to `ip -j`; return what could not be read beside it."""
    problems: list[str] = []

    def rows(command: str) -> list[Row]:
        try:
            found = json.loads(told(command))
        except (NetAgentError, ValueError, RecursionError) as e:
            problems.append(f"{command}: {e}"[:200])
            return []
        return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []

    addresses = {
        str(one.get("local"))
        for row in rows("ip -j addr")
        for one in _inner(row, "addr_info")
        if one.get("scope") != "host"
    }
    underlay = Underlay(
        tuple(row for row in rows("ip -j route show table all") if _is_route(row)),
        tuple(row for row in rows("ip -j neigh") if isinstance(row.get("state", []), list)),
        {str(row.get("ifname")): row for row in rows("ip -j -s -d link") if _is_int(row, "mtu")},
        frozenset(addresses - {"None"}),
    )
    return underlay, tuple(problems)


def _is_route(row: Row) -> bool:
    try:
        _network(row)
    except ValueError:
        return False
    hops = row.get("nexthops", [])
    whole = isinstance(hops, list) and len(hops) == len(_inner(row, "nexthops"))
    return whole and _is_int(row, "metric")


def _is_int(row: Row, key: str) -> bool:
    return isinstance(row.get(key, 0), int)


def _inner(row: Row, key: str) -> list[Row]:
    found = row.get(key, [])
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
