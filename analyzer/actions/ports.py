# SPDX-License-Identifier: Apache-2.0
"""Which ports of OVN may be disabled here, and enabled again: those that are nobody's. Pure.

A port with any `external_ids` belongs to who wrote them (ovn-kubernetes, Kube-OVN, Neutron): it is
left to them. What is written into one that has none says by which action it was disabled, how
`enabled` was, and how the rest of the row was: undoing needs no memory but that, and does nothing
where anything differs from it. Rows and operations are those of RFC 7047.
"""

import hashlib
import json
from typing import Any

Row = dict[str, Any]
Operation = dict[str, Any]

DATABASE, TABLE = "OVN_Northbound", "Logical_Switch_Port"
MARK = "netagent-disabled"
"""Key in a port's external_ids: ACTION HOW-ENABLED DIGEST."""
OTHERS = ("name", "type", "addresses", "port_security", "options", "parent_name", "tag")
"""What must be as it was. Not what northd writes: `up`, `dynamic_addresses`."""

_NONE, _EMPTY = ["set", []], ["map", []]
_ENABLED = {"unset": _NONE, "true": True}


def reading(name: str) -> Operation:
    """Return the operation that reads a port."""
    columns = ["_uuid", *OTHERS, "enabled", "external_ids"]
    where = [["name", "==", name]]
    return {"op": "select", "table": TABLE, "where": where, "columns": columns}


def disabling(row: Row, action: str) -> list[Operation] | str:
    """Return the operations that disable a port for an action, or why that may not be."""
    if row["external_ids"] != _EMPTY:
        return "it belongs to who wrote its external_ids: disable it there"
    was = next((each for each, value in _ENABLED.items() if row["enabled"] == value), None)
    if was is None:
        return "it is disabled already"
    mark = f"{action} {was} {_digest(row)}"
    return _changing(row, enabled=False, external_ids=["map", [[MARK, mark]]])


def enabling(row: Row, action: str) -> list[Operation] | str:
    """Return the operations that take `disabling` back, or why that may not be."""
    if row["enabled"] is not False:
        return "somebody enabled it since"
    external_ids = dict(row["external_ids"][1])
    by, was, digest = (*external_ids.get(MARK, "").split(" "), "", "")[:3]
    if by != action or was not in _ENABLED:
        return "it was not disabled by this action, or somebody changed it since"
    if len(external_ids) != 1 or digest != _digest(row):
        return "somebody changed it since"
    return _changing(row, enabled=_ENABLED[was], external_ids=_EMPTY)


def _changing(row: Row, **to: Any) -> list[Operation]:
    """Return the operations that change a row, unless somebody did since it was read."""
    where = [["_uuid", "==", row["_uuid"]]]
    columns = [*OTHERS, "enabled", "external_ids"]
    was = {each: row[each] for each in columns}
    return [
        {"op": "wait", "timeout": 0, "table": TABLE, "where": where, "columns": columns,
         "until": "==", "rows": [was]},
        {"op": "update", "table": TABLE, "where": where, "row": to},
    ]  # fmt: skip


def _digest(row: Row) -> str:
    told = json.dumps([row["_uuid"], *(_ordered(row[each]) for each in OTHERS)])
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _ordered(value: Any) -> Any:
    """Return a column with its sets and maps in order: servers give them in any."""
    is_many = isinstance(value, list) and len(value) == 2 and value[0] in {"set", "map"}
    return [value[0], sorted(value[1])] if is_many else value
