# SPDX-License-Identifier: Apache-2.0
"""OVN's rows as OVSDB's `select` returns them (RFC 7047, 5.1), read as values.

Logical flows are never followed, since there are thousands; they are selected when somebody asks.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analyzer.intent.logical import Bound, Explainer, Host, LogicalFlow, cookie_of, host_of
from netagent.model.errors import RemoteProtocolError
from netagent.wire.zone import EXPLAINING

Row = Mapping[str, Any]

YOUNG: Mapping[str, Sequence[str]] = {"Static_MAC_Binding": ()}
"""Tables that older servers do not have; flows are made of their rows, too."""
SOUTHBOUND = {name: of for name, of in EXPLAINING["southbound"].items() if name not in YOUNG}
"""Tables that tell which flows belong where, with their columns."""
NORTHBOUND = EXPLAINING["northbound"]
"""Tables whose rows logical flows are made for, with what a row is called by."""
_CALLED = {
    "ACL": "ACL", "Logical_Switch_Port": "port", "Logical_Router_Port": "router port",
    "Load_Balancer": "load balancer", "QoS": "QoS rule", "NAT": "NAT of", "Port_Binding": "port",
    "Multicast_Group": "multicast group",
}  # fmt: skip
_SHOWN = 80
"""Characters of a name or match that are told. Chosen: to be read."""


@dataclass(frozen=True, slots=True)
class Selected:
    """What was selected of both databases."""

    flows: tuple[LogicalFlow, ...]
    bindings: tuple[Bound, ...]
    keys: Mapping[str, int]
    """Tunnel keys of datapaths."""
    groups: Mapping[str, frozenset[str]]
    empty: frozenset[str]
    others: frozenset[int]
    """Cookies of the rows of all other tables."""
    rows: Mapping[int, str] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[tuple[int, int], str] = field(default_factory=dict)
    doubtful: frozenset[int] = frozenset()
    """Cookies that several rows have: of 30,000 rows, one time in ten two do."""
    networks: Mapping[str, str] = field(default_factory=dict)
    """Datapaths -> what each is, ``logical switch NAME``."""
    addresses: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Addresses of address sets."""

    def owner(self, flow: LogicalFlow) -> str:
        """Return what a logical flow was made for: a northbound object, or its own networks."""
        named = self.owners.get(flow.hint, "")
        return named or ", ".join(self.networks.get(each, each) for each in sorted(flow.datapaths))

    def host(self, chassis: str) -> Host:
        """Return what is on a chassis."""
        return host_of(chassis, self.bindings, keys=self.keys, groups=self.groups, empty=self.empty)

    def explainer(self) -> Explainer:
        """Return who says what cookies stand for."""
        none = self.doubtful | {0}  # that of the fixed part, whichever row begins with it
        flows = {each.cookie: each for each in self.flows if each.cookie not in none}
        rows = {cookie: text for cookie, text in self.rows.items() if cookie not in none}
        return Explainer(flows, self.owners, rows, self.ports, self.doubtful)


def read(
    southbound: Mapping[str, Iterable[Row]], northbound: Mapping[str, Iterable[Row]]
) -> Selected:
    """Return the rows of tables, by name; RemoteProtocolError where one lacks what it must have."""
    try:
        return _read(southbound, northbound)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RemoteProtocolError(f"rows that are not OVN's: {error!r}") from error


def _read(
    southbound: Mapping[str, Iterable[Row]], northbound: Mapping[str, Iterable[Row]]
) -> Selected:
    tables = {name: {_uuid(row): row for row in rows} for name, rows in southbound.items()}
    datapaths = {
        key: _map(row["external_ids"]).get("name", key)
        for key, row in tables.get("Datapath_Binding", {}).items()
    }
    several = {
        key: frozenset(datapaths.get(each, each) for each in _set(row["datapaths"]))
        for key, row in tables.get("Logical_DP_Group", {}).items()
    }
    chassis = {key: str(row["name"]) for key, row in tables.get("Chassis", {}).items()}
    keys = {
        datapaths[key]: int(row["tunnel_key"])
        for key, row in tables.get("Datapath_Binding", {}).items()
    }
    cookies = Counter(cookie_of(key) for rows in tables.values() for key in rows)
    hints = Counter(_uuid(row)[:8] for rows in northbound.values() for row in rows)
    return Selected(
        flows=tuple(
            _flow(key, row, datapaths, several)
            for key, row in tables.get("Logical_Flow", {}).items()
        ),
        bindings=tuple(
            Bound(
                port=str(row["logical_port"]),
                datapath=datapaths.get(_one(row["datapath"]), ""),
                kind=str(row["type"]),
                chassis=chassis.get(_one(row["chassis"]), ""),
                peer=_map(row["options"]).get("peer", ""),
                cookie=cookie_of(key),
            )
            for key, row in tables.get("Port_Binding", {}).items()
        ),
        keys=keys,
        groups={
            str(row["name"]): frozenset(_set(row["ports"]))
            for row in tables.get("Port_Group", {}).values()
        },
        empty=frozenset(
            str(row["name"])
            for row in tables.get("Address_Set", {}).values()
            if not _set(row["addresses"])
        ),
        others=frozenset(
            cookie_of(key)
            for name, rows in tables.items()
            if name != "Logical_Flow"
            for key in rows
        ),
        rows={
            cookie_of(key): _called(name, row)
            for name in ("Port_Binding", "Multicast_Group")
            for key, row in tables.get(name, {}).items()
        },
        owners={
            hint: _called(name, row)
            for name, rows in northbound.items()
            for row in rows
            if hints[hint := _uuid(row)[:8]] == 1
        },
        doubtful=frozenset(cookie for cookie, count in cookies.items() if cookie and count > 1),
        ports={
            (keys[name], int(row["tunnel_key"])): str(row["logical_port"])
            for row in tables.get("Port_Binding", {}).values()
            if (name := datapaths.get(_one(row["datapath"]), "")) in keys
        },
        addresses={
            str(row["name"]): frozenset(_set(row["addresses"]))
            for row in tables.get("Address_Set", {}).values()
        },
        networks={
            datapaths[key]: f"{kind.replace('-', ' ')} {datapaths[key]}"
            for key, row in tables.get("Datapath_Binding", {}).items()
            for kind in ("logical-switch", "logical-router")
            if kind in _map(row["external_ids"])
        },
    )


def _flow(
    key: str, row: Row, datapaths: Mapping[str, str], several: Mapping[str, frozenset[str]]
) -> LogicalFlow:
    one, group = _one(row["logical_datapath"]), _one(row["logical_dp_group"])
    said = _map(row["external_ids"])
    return LogicalFlow(
        uuid=key,
        datapaths=frozenset({datapaths.get(one, one)}) if one else several.get(group, frozenset()),
        pipeline=str(row["pipeline"]),
        table=int(row["table_id"]),
        priority=int(row["priority"]),
        match=str(row["match"]),
        actions=str(row["actions"]),
        stage=said.get("stage-name", ""),
        hint=said.get("stage-hint", ""),
    )


def _called(table: str, row: Row) -> str:
    names = (row.get(column) for column in ("logical_port", "name", "external_ip", "match"))
    named = next((text for each in names if (text := _one(each) if each else "")), "")
    shown = named if len(named) <= _SHOWN else f"{named[:_SHOWN]}..."
    return f"{_CALLED.get(table, table)} {shown}".rstrip()


def _uuid(row: Row) -> str:
    return str(row["_uuid"][1])


def members(value: Any) -> list[Any]:
    """Return the members of a set as OVSDB writes it; one alone stands without its brackets."""
    return list(value[1]) if isinstance(value, list) and value[0] == "set" else [value]


def _set(value: object) -> list[str]:
    return [_atom(each) for each in members(value)]


def _one(value: object) -> str:
    """Return the only member of a set, "" of an empty one."""
    found = _set(value)
    return found[0] if found else ""


def _atom(value: object) -> str:
    return str(value[1]) if isinstance(value, list) else str(value)


def _map(value: Sequence[Any]) -> dict[str, str]:
    return {str(key): str(each) for key, each in value[1]}
