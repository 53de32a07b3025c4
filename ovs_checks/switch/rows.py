# SPDX-License-Identifier: Apache-2.0
"""What the rows of OVSDB say of bridges and their ports."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, get_args

from netagent.model.errors import RemoteProtocolError
from netagent.model.vswitch import Interface, drives, interface_of

from .bonds import Bond
from .shows import PortState
from .snapshot import ALL_TAGS, LOCAL, UNKNOWN, Bridge, Lane, Mirror, Port, VlanMode

TABLES = {
    "Open_vSwitch": ["other_config"],
    "Bridge": [
        *("_uuid", "name", "ports", "datapath_type", "other_config", "mirrors"),
        *("mcast_snooping_enable", "stp_enable", "rstp_enable", "netflow", "sflow", "ipfix"),
        "external_ids",
    ],
    "Port": [
        *("_uuid", "name", "interfaces", "tag", "trunks", "vlan_mode", "cvlans", "protected"),
        *("qos", "other_config", "external_ids"),
    ],
    "QoS": ["_uuid", "queues"],
    "Queue": ["_uuid", "dscp"],
    "Flow_Sample_Collector_Set": ["bridge"],
    "Interface": [
        *("_uuid", "name", "type", "ofport", "options", "external_ids"),
        *("mac_in_use", "link_state", "mtu"),
    ],
    "Mirror": [
        *("_uuid", "name", "select_all", "select_src_port", "select_dst_port", "select_vlan"),
        *("output_port", "output_vlan", "snaplen"),
    ],
}
"""The tables and columns that are read."""

Row = Mapping[str, Any]


def bridge_parts(tables: Mapping[str, list[Row]]) -> tuple[Bridge, ...]:
    """Return the bridges with their ports, lanes and mirrors, from the rows of `TABLES`.

    Raises
    ------
    RemoteProtocolError
        If the rows are not as OVSDB's schema has them.
    """
    try:
        ports = {row["_uuid"][1]: row for row in tables["Port"]}
        interfaces = {row["_uuid"][1]: row for row in tables["Interface"]}
        mirrors = {row["_uuid"][1]: row for row in tables.get("Mirror", [])}
        marks = _marks(tables.get("QoS", []), tables.get("Queue", []))
        sampled = {one for row in tables.get("Flow_Sample_Collector_Set", [])
                   for one in _uuids(row["bridge"])}  # fmt: skip
        return tuple(
            replace(
                _bridge(row, ports, interfaces, mirrors, marks),
                collects=bool(_items(row.get("ipfix", _NONE)))
                or bool(sampled.intersection(_uuids(row.get("_uuid", _NONE)))),
            )
            for row in tables["Bridge"]
        )
    except (KeyError, TypeError, IndexError, ValueError) as e:
        raise RemoteProtocolError(f"OVSDB rows: {e!r}"[:200]) from e


def configuration(tables: Mapping[str, list[Row]]) -> dict[str, str]:
    """Return the settings of the switch as a whole; none where the rows do not have them."""
    try:
        rows = tables.get("Open_vSwitch", [])
        return dict(pair for row in rows for pair in _pairs(row.get("other_config", _NO_PAIRS)))
    except (TypeError, AttributeError, IndexError, ValueError) as e:
        raise RemoteProtocolError(f"OVSDB rows: {e!r}"[:200]) from e


_Queues = tuple[tuple[int, int], ...]


def _marks(rules: Iterable[Row], queues: Iterable[Row]) -> dict[str, _Queues]:
    """Return, for each row of QoS, the DSCP that its queues mark packets with."""
    dscp = {row["_uuid"][1]: _atom(row["dscp"]) for row in queues}
    return {
        row["_uuid"][1]: tuple(
            (int(number), int(dscp[uuid]))
            for number, (_, uuid) in sorted(row["queues"][1])
            if dscp.get(uuid) is not None
        )
        for row in rules
    }


def _bridge(
    row: Row,
    ports: Mapping[str, Row],
    interfaces: Mapping[str, Row],
    mirrors: Mapping[str, Row],
    marks: Mapping[str, _Queues],
) -> Bridge:
    name = row["name"]
    members = {
        uuid: [_interface(interfaces[one]) for one in _uuids(ports[uuid]["interfaces"])]
        for uuid in _uuids(row["ports"])
    }
    found = tuple(
        _port(name, ports[uuid], interface, marks, bond=len(several) > 1)
        for uuid, several in members.items()
        for interface in several
    )
    lanes = tuple(_lane(ports[uuid], several) for uuid, several in members.items())
    names = {uuid: str(ports[uuid]["name"]) for uuid in members}
    other = dict(_pairs(row["other_config"])) if "other_config" in row else {}
    return Bridge(
        name,
        ports=found,
        lanes=tuple(sorted(lanes, key=_flood_key)),
        mirrors=tuple(_mirror(mirrors[one], names) for one in _uuids(row.get("mirrors", _NONE))),
        datapath_type=str(row.get("datapath_type", "")),
        forwards_bpdu=other.get("forward-bpdu") == "true",
        spanning_tree="RSTP"
        if row.get("rstp_enable") is True
        else "STP"
        if row.get("stp_enable") is True
        else "",
        is_driven=drives(dict(_pairs(row.get("external_ids", _NO_PAIRS)))),
        unsupported=tuple(_unsupported(row)),
    )


_NONE = ["set", []]
_NO_PAIRS = ["map", []]


def _flood_key(lane: Lane) -> tuple[bool, int]:
    """Return the sort key of a lane: nothing records the order in which ports were opened."""
    known = [number for number in lane.ports if number >= 0]
    return LOCAL not in lane.ports, min(known, default=0xFFFF)


def _unsupported(row: Row) -> Iterable[str]:
    if row.get("mcast_snooping_enable") is True:
        yield "multicast snooping is on"


def _lane(port: Row, interfaces: list[Interface]) -> Lane:
    tag, trunks = _atom(port["tag"]), frozenset(int(v) for v in _items(port["trunks"]))
    cvlans = frozenset(int(v) for v in _items(port.get("cvlans", _NONE)))
    mode = str(_atom(port["vlan_mode"]) or ("access" if tag is not None else "trunk"))
    other = dict(_pairs(port["other_config"])) if "other_config" in port else {}
    tags = other.get("priority-tags", "no")
    if mode not in get_args(VlanMode):
        raise ValueError(f"VLAN mode {mode!r}")
    if mode in {"native-tagged", "native-untagged"} and tag:  # VLAN 0 is the native one
        trunks = (trunks or ALL_TAGS) - {0} | {int(tag)}
    return Lane(
        str(port["name"]),
        tuple(one.ofport for one in interfaces if one.ofport is not None),
        mode=mode,  # type: ignore[arg-type]
        tag=int(tag or 0),
        trunks=trunks or None,
        cvlans=cvlans or None,
        tag_type=0x8100 if other.get("qinq-ethtype") == "802.1q" else 0x88A8,
        priority_tags="if-nonzero" if tags in {"true", "if-nonzero"} else
        "always" if tags == "always" else "no",
        protected=port.get("protected") is True,
    )  # fmt: skip


def _mirror(row: Row, names: Mapping[str, str]) -> Mirror:
    everything = row["select_all"] is True
    sources, destinations = (
        frozenset(names.values()) if everything
        else frozenset(names[one] for one in _uuids(row[column]) if one in names)
        for column in ("select_src_port", "select_dst_port")
    )  # fmt: skip
    output = next((names[one] for one in _uuids(row["output_port"]) if one in names), "")
    vlans = frozenset(int(v) for v in _items(row["select_vlan"]))
    return Mirror(
        str(row["name"]),
        sources,
        destinations,
        vlans or None,
        output,
        int(_atom(row["output_vlan"]) or 0),
        int(_atom(row["snaplen"]) or 0),
    )


def with_states(
    bridge: Bridge,
    states: Iterable[PortState],
    numbers: Mapping[str, int | None],
    settings: Iterable[PortState] = (),
) -> Bridge:
    """Return the bridge with what OpenFlow and the datapath say of its ports.

    Only the configuration in `settings` is used.
    """
    known = {state.name: state for state in states}
    config = {state.name: state.config for state in settings}
    ports = []
    for port in bridge.ports:
        state = known.get(port.name)
        if state is not None:
            port = replace(port, ofport=state.number, config=state.config, live=state.live)  # noqa: PLW2901
        said = port.config | config.get(port.name, frozenset())
        ports.append(replace(port, config=said, datapath=numbers.get(port.name)))
    by_name = {port.name: port.ofport for port in ports}
    lanes = tuple(
        replace(lane, ports=(by_name[lane.name],))
        if len(lane.ports) < 2 and by_name.get(lane.name, -1) >= 0
        else lane
        for lane in bridge.lanes
    )
    return replace(bridge, ports=tuple(ports), lanes=lanes)


def with_bonds(bridge: Bridge, bonds: Mapping[str, Bond]) -> Bridge:
    """Return the bridge with how its bonds stand."""
    lanes = tuple(replace(lane, bond=bonds.get(lane.name)) for lane in bridge.lanes)
    return replace(bridge, lanes=lanes)


_SHOWN_NAME = 10
"""Characters of a port's name that `stp/show` and `rstp/show` print."""


def with_tree(bridge: Bridge, states: Mapping[str, str] | None) -> Bridge:
    """Return the bridge with what its spanning tree lets its ports do; None: that is not known."""
    shortened = [port.name[:_SHOWN_NAME] for port in bridge.ports]

    def state(name: str) -> str:
        alike = shortened.count(name) > 1 and name in (states or {})
        return UNKNOWN if states is None or alike else states.get(name, "")

    ports = tuple(
        replace(port, tree=state(name)) for port, name in zip(bridge.ports, shortened, strict=True)
    )
    return replace(bridge, ports=ports)


def _port(
    bridge: str, port: Row, interface: Interface, marks: Mapping[str, _Queues], *, bond: bool
) -> Port:
    vlan = [
        f"{column}={_items(port[column])}"
        for column in ("tag", "trunks", "vlan_mode")
        if _items(port[column])
    ]
    ids = dict(_pairs(port.get("external_ids", _NO_PAIRS)))  # ovs-cni writes them there
    return Port(
        name=interface.name,
        ofport=interface.ofport if interface.ofport is not None else -1,
        bridge=bridge,
        type=interface.type,
        options=tuple(sorted(interface.options.items())),
        external_ids=tuple(sorted({**ids, **interface.external_ids}.items())),
        mac=interface.mac_in_use or "",
        state=interface.link_state or "",
        vlan=" ".join(vlan),
        bond=str(port["name"]) if bond else "",
        mtu=interface.mtu or 0,
        queues=next((marks.get(one, ()) for one in _uuids(port.get("qos", _NONE))), ()),
    )


class _Columns:
    """A row of the Interface table as JSON-RPC has it (RFC 7047, 5.1)."""

    def __init__(self, row: Row) -> None:
        self._row = row

    def atom(self, name: str) -> object:
        wanted = name in TABLES["Interface"] and name not in _YOUNG
        return _atom(self._row[name] if wanted else self._row.get(name, _NONE))

    def pairs(self, name: str) -> Mapping[str, str]:
        return dict(_pairs(self._row[name]))


_YOUNG = {"mtu"}
"""Columns that bundles of earlier versions lack."""


def _interface(row: Row) -> Interface:
    return interface_of(_Columns(row))


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((str(k), str(v)) for k, v in value[1]))


def _items(value: Any) -> list[Any]:
    """Return the members of an OVSDB set, which is written as one atom if it has one member."""
    if isinstance(value, list) and value[0] == "set":
        return list(value[1])
    return [value]


def _atom(value: Any) -> Any:
    items = _items(value)
    return items[0] if items else None


def _uuids(value: Any) -> list[str]:
    return [item[1] for item in _items(value)]
