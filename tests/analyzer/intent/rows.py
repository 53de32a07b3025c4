# SPDX-License-Identifier: Apache-2.0
"""Rows of one host's databases as its agent sends them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from netagent.wire.codec import deflated
from netagent.wire.zone import NORTHBOUND, SOUTHBOUND, ZoneRows

Rows = dict[str, list[dict[str, Any]]]


def a_set(*values: object) -> list[object]:
    """Return a set as OVSDB writes one that has not just one member."""
    return ["set", list(values)]


def a_map(**values: str) -> list[object]:
    """Return a map as OVSDB writes it."""
    return ["map", [[key.replace("_", "-"), value] for key, value in values.items()]]


def ref(name: str) -> list[str]:
    """Return a reference to a row."""
    return ["uuid", name]


def northbound(*ports: str, asked: int = 1, **changes: object) -> Rows:
    """Return a northbound database with ports on one switch; `changes` are of each port."""
    rows = [
        {
            "_uuid": ref(f"u-{name}"), "name": name, "type": "", "options": a_map(),
            "addresses": f"02:00:00:00:00:0{number} 10.0.0.{number}", "external_ids": a_map(),
            "dynamic_addresses": a_set(), "port_security": a_set(), "enabled": a_set(),
            "parent_name": a_set(), **changes,
        }
        for number, name in enumerate(ports, 1)
    ]  # fmt: skip
    return {
        "NB_Global": [{"_uuid": ref("nb"), "nb_cfg": asked}],
        "Logical_Switch": [
            {"_uuid": ref("s"), "name": "net", "ports": a_set(*(row["_uuid"] for row in rows))}
        ],
        "Logical_Switch_Port": rows,
    }


def southbound(
    own: str,
    *bound: str,
    remote: Mapping[str, str] = {},
    translated: int = 1,
    installed: int = 1,
    address: str = "192.0.2.1",
) -> Rows:
    """Return a southbound database of the chassis `own`, with ports bound to it.

    `remote` are chassis of other zones -> their addresses.
    """
    known = {own: address, **remote}
    return {
        "SB_Global": [{"_uuid": ref("sb"), "nb_cfg": translated}],
        "Chassis": [
            {
                "_uuid": ref(f"c-{name}"), "name": name, "hostname": f"{name}.example",
                "encaps": ref(f"e-{name}"),
                "other_config": a_map(is_remote="true") if name in remote else a_map(),
            }
            for name in known
        ],
        "Chassis_Private": [
            {"_uuid": ref("p"), "name": own, "nb_cfg": installed, "nb_cfg_timestamp": 5}
        ],
        "Encap": [
            {"_uuid": ref(f"e-{name}"), "type": "geneve", "ip": ip} for name, ip in known.items()
        ],
        "Port_Binding": [
            {
                "_uuid": ref(f"b-{name}"), "logical_port": name, "type": "", "up": True,
                "chassis": ref(f"c-{own}"), "encap": a_set(), "parent_port": a_set(),
            }
            for name in bound
        ],
    }  # fmt: skip


def sent(databases: Mapping[str, Rows], *, lacks: Sequence[str] = ()) -> dict[str, ZoneRows]:
    """Return databases as an agent sends them."""
    found = {}
    for name, rows in databases.items():
        body = json.dumps(rows).encode()
        found[name] = ZoneRows(digest=f"{hash(body)}", rows=deflated(body), lacks=tuple(lacks))
    return found


def both(north: Rows, south: Rows) -> dict[str, ZoneRows]:
    """Return both databases as an agent sends them."""
    return sent({NORTHBOUND: north, SOUTHBOUND: south})
