# SPDX-License-Identifier: Apache-2.0
"""The rows that a database file of OVSDB holds (ovsdb(5), ovsdb/log.c).

The file is a log: the schema, then transactions. A transaction says of each row which columns it
changed; of sets and maps, where it is marked so, only what was added, changed or taken out.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from netagent.model.errors import RemoteProtocolError

_DEFAULTS = {
    "integer": 0,
    "real": 0.0,
    "boolean": False,
    "string": "",
    "uuid": ["uuid", "00000000-0000-0000-0000-000000000000"],
}


def rows_of(text: str, tables: Mapping[str, list[str]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows of `tables` with the columns named, as the file leaves them.

    A column that the file does not keep, or does not know, has its default.

    Raises
    ------
    RemoteProtocolError
        If it is no database file. One that was cut off gives what it holds.
    """
    records = _records(text)
    schema = next(records, None)
    if not isinstance(schema, dict) or "tables" not in schema:
        raise RemoteProtocolError("no OVSDB file of a standalone server: no schema")
    try:
        columns = {name: schema["tables"].get(name, {}).get("columns", {}) for name in tables}
        kept: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in tables}
        for record in records:
            for name, changes in record.items():
                if name in kept:
                    _apply(kept[name], changes, columns[name], diff=bool(record.get("_is_diff")))
        return {
            name: [
                {column: _column(row, uuid, column, columns[name]) for column in wanted}
                for uuid, row in kept[name].items()
            ]
            for name, wanted in tables.items()
        }
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as e:
        raise RemoteProtocolError(f"OVSDB file: {e!r}"[:200]) from e


def _records(text: str) -> Iterator[Any]:
    """Yield the records; each follows a line of its own, `OVSDB JSON LENGTH SHA1`."""
    for line in text.split("\n"):  # nothing else ends a record
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):  # the last one, cut off: as ovsdb-server does
                return


def _apply(
    rows: dict[str, dict[str, Any]],
    changes: Mapping[str, Any],
    columns: Mapping[str, Any],
    *,
    diff: bool,
) -> None:
    for uuid, change in changes.items():
        if change is None:
            rows.pop(uuid, None)
            continue
        row = rows.setdefault(uuid, {})
        for column, value in change.items():
            if diff and column in row and _is_composite(columns.get(column)):
                row[column] = _changed(row[column], value)
            else:
                row[column] = value


def _column(row: Mapping[str, Any], uuid: str, column: str, columns: Mapping[str, Any]) -> Any:
    if column == "_uuid":
        return ["uuid", uuid]
    return row[column] if column in row else _default(columns.get(column))


def _default(column: Any) -> Any:
    kind = column["type"] if column else {"key": "string", "min": 0}
    if isinstance(kind, str):
        return _DEFAULTS[kind]
    if "value" in kind:
        return ["map", []]
    key = kind["key"]
    return ["set", []] if kind.get("min", 1) == 0 else _DEFAULTS[_name(key)]


def _name(kind: Any) -> str:
    return str(kind if isinstance(kind, str) else kind["type"])


def _is_composite(column: Any) -> bool:
    kind = column["type"] if column else "string"
    return isinstance(kind, dict) and kind.get("max", 1) not in {0, 1}


def _changed(old: Any, change: Any) -> Any:
    """Apply a difference (`ovsdb_datum_apply_diff`)."""
    if isinstance(change, list) and change[:1] == ["map"]:
        pairs = {json.dumps(key): value for key, value in old[1]}
        for key, value in change[1]:
            said = json.dumps(key)
            if pairs.get(said, _ABSENT) == value:
                del pairs[said]
            else:
                pairs[said] = value
        return ["map", [[json.loads(key), value] for key, value in pairs.items()]]
    items = dict.fromkeys(map(json.dumps, _items(old)))
    for item in map(json.dumps, _items(change)):
        if item in items:
            del items[item]
        else:
            items[item] = None
    found = [json.loads(item) for item in items]
    return found[0] if len(found) == 1 else ["set", found]


_ABSENT = object()


def _items(value: Any) -> list[Any]:
    return value[1] if isinstance(value, list) and value[:1] == ["set"] else [value]
