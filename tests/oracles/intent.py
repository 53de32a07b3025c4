# SPDX-License-Identifier: Apache-2.0
"""What OVN's rows say, read from scratch: all of them, whatever changed, with no index at all."""

from collections.abc import Mapping, Sequence
from typing import Any

Tables = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Table -> uuid -> row."""


def naive(tables: Tables) -> dict[str, dict[str, dict[str, Any]]]:
    """Return ports, placements and chassis by name, each as a plain mapping.

    Only of what refers to other rows: what a row says by itself is held to examples.
    """
    return {
        "ports": {
            row["name"]: {"network": _network(tables, uuid), "hosts": _hosts(tables, row)}
            for uuid, row in tables["Logical_Switch_Port"].items()
            if not row["type"]
        },
        "placements": {
            row["logical_port"]: {
                "chassis": _chassis_of(tables, row),
                "encapsulation": tables["Encap"].get(row["encap"], {}).get("ip", ""),
                "is_up": row["up"],
            }
            for row in tables["Port_Binding"].values()
            if not row["type"]
        },
        "chassis": {
            row["name"]: {
                "hostname": row["hostname"],
                "encapsulations": sorted(
                    (each["type"], each["ip"])
                    for uuid, each in tables["Encap"].items()
                    if uuid in row["encaps"]
                ),
                "installed": _installed(tables, row["name"]),
            }
            for row in tables["Chassis"].values()
        },
    }


def _chassis_of(tables: Tables, binding: Mapping[str, Any]) -> str:
    """Return the name of a binding's chassis; "" where it has none."""
    return str(tables["Chassis"].get(binding["chassis"], {}).get("name", ""))


def watched(seen: Sequence[tuple[int, str | None]], now_ns: int, moves_ns: int) -> tuple[int, int]:
    """Return since when a port is where it is, and how often it moved within `moves_ns`.

    `seen` holds when it was looked at and the chassis that it had: "" for none, None where there
    was no such port.
    """
    began = max((i for i, (_, chassis) in enumerate(seen) if chassis is None), default=-1) + 1
    since_ns, moves, last = seen[began][0], list[int](), seen[began][1]
    for (_, before), (at_ns, now) in zip(seen[began:], seen[began + 1 :], strict=False):
        if now != before:
            since_ns = at_ns
        if now and last and now != last:
            moves.append(at_ns)
        last = now or last
    return since_ns, sum(now_ns - at_ns < moves_ns for at_ns in moves)


def _network(tables: Tables, uuid: str) -> str:
    found = [row["name"] for row in tables["Logical_Switch"].values() if uuid in row["ports"]]
    return str(found[0]) if found else ""


def _hosts(tables: Tables, row: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for wish in row["options"].get("requested-chassis", "").split(","):
        named = [each["name"] for each in tables["Chassis"].values() if each["name"] == wish]
        on = [each["name"] for each in tables["Chassis"].values() if each["hostname"] == wish]
        found += [each for each in named or sorted(on) or [wish] if each and each not in found]
    return found


def _installed(tables: Tables, name: str) -> int | None:
    rows = [row for row in tables["Chassis_Private"].values() if row["name"] == name]
    return rows[0]["nb_cfg"] if rows else None
