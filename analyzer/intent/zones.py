# SPDX-License-Identifier: Apache-2.0
"""One host's own databases as an intent of that host: rows come through its agent, whole.

What a host sends is held to what OVSDB can hold before anything is made of it: types, sizes, and
text that can be shown. Pure.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from analyzer.intent.model import Intent
from analyzer.intent.ovn import TABLES, Change, Follower, Row
from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import inflated
from netagent.wire.controller import MOST_GENERATION, MOST_TEXT
from netagent.wire.zone import SCHEMAS, ZoneRows

MOST_ROWS = 20_000
"""Rows of a table. Chosen: four times as many ports as a host may say that it has, and more chassis
than a cluster."""
MOST_LONG = 4096
"""Characters of a text that is no name. Chosen: an element of `addresses` lists some addresses."""
MOST_MEMBERS = 8192
"""Members of a set or map. Chosen: a switch may have all ports of a host."""
MOST_SHOWN = 200
"""Characters of a reason that are kept. Chosen: to be read."""
_MOST_MS = MOST_GENERATION // 10**6
_MOST_CHANGES = 1 << 62


class Zone:
    """The databases of one host, as far as they were read."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._follower = Follower()
        self._is_news = False
        """Whether something changed that is not the follower's."""
        self._remote: dict[str, tuple[str, str, tuple[str, ...]]] = {}
        """Chassis of other zones, by uuid: name, host, and what its tunnels' rows are."""
        self.digests: dict[str, str] = {}
        """Of the rows that are known."""
        self.lacks: dict[str, tuple[str, ...]] = {}
        self.intent = self._intent(0)

    def take(self, said: Mapping[str, ZoneRows], wall_ns: int) -> None:
        """Take what an agent read; a database that cannot be used is away."""
        for database in SCHEMAS:
            rows = said.get(database, ZoneRows(away="its agent does not speak of it"))
            if rows.away:
                self._follower.lose(database, _shown(rows.away))
                continue
            try:
                self._take(database, rows, wall_ns)
            except RemoteProtocolError as error:
                self.digests.pop(database, None)
                self._follower.lose(database, f"it cannot be understood: {_shown(str(error))}")
        self._tell(wall_ns)

    def lose(self, why: str, wall_ns: int) -> None:
        """Take that its agent does not answer."""
        for database in SCHEMAS:
            self._follower.lose(database, _shown(why))
        self._tell(wall_ns)

    def _take(self, database: str, rows: ZoneRows, wall_ns: int) -> None:
        if rows.rows:
            changes = self._changes(database, rows_of(database, inflated(rows.rows)))
            self._follower.take(changes, wall_ns)
            self.digests[database] = rows.digest[:MOST_TEXT]
            self.lacks[database] = tuple(map(_shown, rows.lacks[:MOST_SHOWN]))
        elif rows.digest != self.digests.get(database):
            raise RemoteProtocolError("nothing is said of what is new")
        self._follower.here(database)

    def _changes(self, database: str, tables: Mapping[str, Mapping[str, Row]]) -> list[Change]:
        if "Chassis" in tables:
            tables = self._own(tables)
        changes = [
            Change(table, each, None)
            for table in TABLES[database]
            for each in self._follower.uuids(table)
            if each not in tables[table]
        ]
        for table, rows in tables.items():
            changes += [Change(table, each, row) for each, row in rows.items()]
        return changes

    def _own(self, tables: Mapping[str, Mapping[str, Row]]) -> dict[str, Mapping[str, Row]]:
        """Note the chassis of other zones; return what is this one's own."""
        hosts, ends = tables["Chassis"], tables["Encap"]
        remote = {each for each, row in hosts.items() if _is_remote(row)}
        now = {
            each: (
                hosts[each]["name"],
                hosts[each]["hostname"],
                tuple(ends[end]["ip"] for end in hosts[each]["encaps"] if end in ends),
            )
            for each in sorted(remote)
        }
        self._is_news |= now != self._remote
        self._remote = now
        names = {name for name, _, _ in now.values()}
        own = {each: row for each, row in hosts.items() if each not in remote}
        privates = {
            each: row for each, row in tables["Chassis_Private"].items() if row["name"] not in names
        }
        return {**tables, "Chassis": own, "Chassis_Private": privates}

    def _tell(self, wall_ns: int) -> None:
        self._follower.step(wall_ns)
        if self._follower.has_news or self._is_news:
            self._follower.changes(wall_ns, _MOST_CHANGES)
            self._is_news = False
            self.intent = self._intent(wall_ns)
        elif not self.intent.away:
            self.intent = replace(self.intent, wall_ns=wall_ns)

    def _intent(self, wall_ns: int) -> Intent:
        made, was = self._follower.intent(wall_ns), getattr(self, "intent", None)
        remote = self._remote.values()
        believed: Mapping[str, frozenset[str]] = {name: frozenset(ips) for name, _, ips in remote}
        hostnames: Mapping[str, str] = {name: host for name, host, _ in remote}
        if was is not None:  # what is the same stays the same object, so that nobody counts anew
            believed = was.believed if believed == was.believed else believed
            hostnames = was.hostnames if hostnames == was.hostnames else hostnames
            chassis = was.chassis if made.chassis == was.chassis else made.chassis
            made = replace(made, chassis=chassis)
        return replace(made, zone=self._host, believed=believed, hostnames=hostnames)


def _is_remote(row: Row) -> bool:
    return str(row.get("other_config", {}).get("is-remote", "")).lower() == "true"


def _shown(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text[:MOST_SHOWN])


# --- rows -----------------------------------------------------------------------------------------


def rows_of(database: str, body: bytes) -> dict[str, dict[str, Row]]:
    """Return the rows of a database's tables by uuid, as `Follower` reads them.

    Raises RemoteProtocolError for what is not the rows of such tables.
    """
    try:
        said = json.loads(body)
        return {table: _rows(table, said[table]) for table in TABLES[database]}
    except RemoteProtocolError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RemoteProtocolError(f"rows that are not OVN's: {error!r}") from error


def _rows(table: str, said: list[dict[str, Any]]) -> dict[str, Row]:
    if not isinstance(said, list) or len(said) > MOST_ROWS:
        raise RemoteProtocolError(f"{table} has no rows, or too many")
    needed, also = KINDS[table]
    found: dict[str, Row] = {}
    for row in said:
        values = {name: read(row[name]) for name, read in needed.items()}
        values |= {name: read(row[name]) for name, read in also.items() if name in row}
        found[_reference(row["_uuid"])] = values
    return found


Read = Callable[[Any], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MOST_LONG:
        raise RemoteProtocolError(f"{value!r:.80} is no text, or a long one")
    return value


def _name(value: Any) -> str:
    if len(_text(value)) > MOST_TEXT or not value.isprintable():
        raise RemoteProtocolError(f"{value!r:.80} is no name")
    return str(value)


def _number(value: Any, most: int = MOST_GENERATION) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise RemoteProtocolError(f"{value!r:.80} is no number of a generation")
    return value


def _instant(value: Any) -> int:
    return _number(value, _MOST_MS)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise RemoteProtocolError(f"{value!r:.80} is not true or false")
    return value


def _reference(value: Any) -> str:
    if not isinstance(value, list) or len(value) != 2 or value[0] != "uuid":
        raise RemoteProtocolError(f"{value!r:.80} is no reference")
    return _name(value[1])


def _set(read: Read) -> Read:
    """Return what reads a set (RFC 7047, 5.1): one member alone stands without its brackets."""

    def members(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or value[0] != "set":
            return (read(value),)
        if len(value) != 2 or len(value[1]) > MOST_MEMBERS:
            raise RemoteProtocolError(f"{value!r:.80} is no set, or a large one")
        return tuple(map(read, value[1]))

    return members


def _maybe(read: Read) -> Read:
    def one(value: Any) -> Any:
        found = _set(read)(value)
        if len(found) > 1:
            raise RemoteProtocolError(f"{value!r:.80} is more than one")
        return found[0] if found else None

    return one


def _map(value: Any) -> dict[str, str]:
    if not isinstance(value, list) or len(value) != 2 or value[0] != "map":
        raise RemoteProtocolError(f"{value!r:.80} is no map")
    if len(value[1]) > MOST_MEMBERS:
        raise RemoteProtocolError(f"a map of {len(value[1])}")
    return {_text(key): _text(each) for key, each in value[1]}


KINDS: Mapping[str, tuple[Mapping[str, Read], Mapping[str, Read]]] = {
    "NB_Global": ({"nb_cfg": _number}, {}),
    "Logical_Switch": ({"name": _name, "ports": _set(_reference)}, {}),
    "Logical_Switch_Port": (
        {
            "name": _name, "type": _name, "addresses": _set(_text), "options": _map,
            "external_ids": _map,
        },
        {
            "dynamic_addresses": _maybe(_text), "port_security": _set(_text),
            "enabled": _maybe(_truth), "parent_name": _maybe(_name),
        },
    ),
    "SB_Global": ({"nb_cfg": _number}, {}),
    "Chassis": (
        {"name": _name, "hostname": _name, "encaps": _set(_reference)}, {"other_config": _map},
    ),
    "Chassis_Private": ({"name": _name, "nb_cfg": _number}, {"nb_cfg_timestamp": _instant}),
    "Encap": ({"type": _name, "ip": _name}, {}),
    "Port_Binding": (
        {"logical_port": _name, "type": _name, "chassis": _maybe(_reference)},
        {"encap": _maybe(_reference), "up": _maybe(_truth), "parent_port": _maybe(_name)},
    ),
}  # fmt: skip
"""How columns are read, by table: those without which nothing can be said, and those that some
versions lack."""
