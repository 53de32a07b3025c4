# SPDX-License-Identifier: Apache-2.0
"""What a host reads of the controller's databases that it has itself, for the analyzer.

With ovn-kubernetes' interconnect each host has a pair of its own, behind a socket of that host.
What can be asked for is listed here: nobody names a table, a column or a condition over the wire.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

NORTHBOUND, SOUTHBOUND = "northbound", "southbound"
SCHEMAS: Mapping[str, str] = {NORTHBOUND: "OVN_Northbound", SOUTHBOUND: "OVN_Southbound"}

Tables = Mapping[str, Sequence[str]]
"""Columns by table."""

FOLLOWED: Mapping[str, Tables] = {
    NORTHBOUND: {
        "NB_Global": ("nb_cfg",),
        "Logical_Switch": ("name", "ports"),
        "Logical_Switch_Port": (
            "name", "type", "addresses", "options", "external_ids", "dynamic_addresses",
            "port_security", "enabled", "parent_name",
        ),
    },
    SOUTHBOUND: {
        "SB_Global": ("nb_cfg",),
        "Chassis": ("name", "hostname", "encaps", "other_config"),
        "Chassis_Private": ("name", "nb_cfg", "nb_cfg_timestamp"),
        "Encap": ("type", "ip"),
        "Port_Binding": ("logical_port", "type", "chassis", "encap", "up", "parent_port"),
    },
}  # fmt: skip
"""What should be, looked at again and again."""
EXPLAINING: Mapping[str, Tables] = {
    NORTHBOUND: {
        "ACL": ("name", "action", "match"),
        "Logical_Switch_Port": ("name",),
        "Logical_Router_Port": ("name",),
        "Load_Balancer": ("name",),
        "QoS": ("match",),
        "NAT": ("external_ip",),
    },
    SOUTHBOUND: {
        "Datapath_Binding": ("tunnel_key", "external_ids"),
        "Logical_DP_Group": ("datapaths",),
        "Chassis": ("name",),
        "Port_Binding": ("logical_port", "chassis", "datapath", "tunnel_key", "type", "options"),
        "Address_Set": ("name", "addresses"),
        "Port_Group": ("name", "ports"),
        "Logical_Flow": (
            "logical_datapath", "logical_dp_group", "pipeline", "table_id", "priority", "match",
            "actions", "external_ids",
        ),
        "Multicast_Group": ("name",),
        "Load_Balancer": ("name",),
        "MAC_Binding": (),
        "Static_MAC_Binding": (),
        "FDB": (),
        "DNS": (),
        "Encap": (),
    },
}  # fmt: skip
"""Which rows flows were made of, looked at where somebody asks why packets are dropped. Tables that
a server lacks are left out."""
PLUGGED: Mapping[str, Sequence[Any]] = {
    "Logical_Switch_Port": [["type", "==", ""]],
    "Port_Binding": [["type", "==", ""]],
}
"""Conditions on what is followed: routers' ports, and those of other zones, are left out."""


class ZoneRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked of the databases."""

    known: dict[str, str] = {}
    """Database -> digest of what the asker has of it: that is not sent again."""
    explaining: bool = False
    """Whether `EXPLAINING` is asked for, instead of `FOLLOWED`."""


class ZoneRows(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was read of one database."""

    digest: str = ""
    """Of the rows."""
    rows: bytes = b""
    """Table -> its rows as OVSDB's `select` returns them, with `_uuid`: JSON, `codec.deflated`.
    Empty where the asker has what the digest is of."""
    lacks: tuple[str, ...] = ()
    """``TABLE.COLUMN`` that its server does not have, and so are not in the rows."""
    away: str = ""
    """Why it could not be read; then all else is empty."""


class ZoneReply(Struct, frozen=True, kw_only=True):
    """What was read of a host's own databases."""

    host: str
    databases: dict[str, ZoneRows]
