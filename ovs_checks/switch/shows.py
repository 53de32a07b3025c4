# SPDX-License-Identifier: Apache-2.0
"""What Open vSwitch shows of itself besides flows, read into values.

Each function takes the output of one command. Lines that are not understood are passed over, for
these outputs have headings and notes; what the tables need is checked where it is used.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ovs_checks.openflow.action_text import (
    NotUnderstoodError,
    Ports,
    parse_actions,
    port_number,
    split,
)
from ovs_checks.openflow.fields import FIELDS
from ovs_checks.openflow.notation import decode, integer, mac, or_zero

from .snapshot import (
    Bucket,
    FdbEntry,
    Features,
    Group,
    Listener,
    Neighbour,
    Route,
    TunnelOption,
)


def parse_fdb(text: str, ports: Ports | None = None) -> tuple[FdbEntry, ...]:
    """Read the output of `fdb/show`."""
    entries = []
    for line in text.splitlines():
        words = line.split()
        try:
            port, vlan, address, age = words
            age_s = or_zero(integer, age)
            number = port_number(port, ports or {})
            entries.append(FdbEntry(number, integer(vlan), mac(address), age_s))
        except (ValueError, NotUnderstoodError):
            continue
    return tuple(entries)


# --- ports ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PortState:
    """What `dump-ports-desc` says of one port."""

    number: int
    name: str
    mac: str = ""
    config: frozenset[str] = frozenset()
    state: frozenset[str] = frozenset()

    @property
    def live(self) -> bool:
        """Whether fast failover may choose it."""
        return "LIVE" in self.state


_PORT = re.compile(r"^ (\S+)\((.*)\): addr:([0-9a-fA-F:]+)\s*$")


def parse_ports(text: str) -> tuple[PortState, ...]:
    """Read the output of `ovs-ofctl dump-ports-desc`."""
    found: list[PortState] = []
    for line in text.splitlines():
        port = _PORT.match(line)
        word, _, rest = line.strip().partition(":")
        if port:
            number = _number(port[1])
            found.append(PortState(number, port[2].strip('"'), port[3]))
        elif found and word == "config":
            found[-1] = replace(found[-1], config=_flags(rest))
        elif found and word == "state":
            found[-1] = replace(found[-1], state=_flags(rest))
    return tuple(port for port in found if port.number >= 0)


def parse_fragments(text: str) -> str:
    """Read from the output of `ovs-ofctl show` how fragments match; `normal` if it is not said."""
    found = re.search(r"^OFPT_GET_CONFIG_REPLY .*\bfrags=(\S+)", text, re.MULTILINE)
    return found[1] if found else "normal"


_TREE_ROW = re.compile(r"^  (\S+) +\w+ +([a-z]+) +\d+ *\d*\.\d+\s*$", re.MULTILINE | re.IGNORECASE)
_TREE_STATES = {"blocking": "blocked", "discarding": "blocked"}


def parse_tree(text: str) -> dict[str, str]:
    """Read the output of `stp/show` or `rstp/show`: the states of the ports, by name."""
    rows = ((name, state.lower()) for name, state in _TREE_ROW.findall(text))
    return {name: _TREE_STATES.get(state, state) for name, state in rows}


def _number(text: str) -> int:
    """Return a port's number; -1 for what is none."""
    try:
        return port_number(text, {})
    except (NotUnderstoodError, ValueError):
        return -1


def _flags(text: str) -> frozenset[str]:
    return frozenset(word for word in text.split() if word != "0")


_DPIF_PORT = re.compile(r"^    (.*\S) (\d+)/(\d+|none): \(([^):]*)")
_DPIF_BRIDGE = re.compile(r"^  (\S.*):$")


def parse_dpif(text: str) -> dict[str, dict[str, int | None]]:
    """Read the output of `dpif/show`: each bridge's ports by name, numbered in the datapath."""
    found: dict[str, dict[str, int | None]] = {}
    bridge = ""
    for line in text.splitlines():
        head, port = _DPIF_BRIDGE.match(line), _DPIF_PORT.match(line)
        if port and bridge:
            found[bridge][port[1]] = None if port[3] == "none" else integer(port[3])
        elif head:
            bridge = head[1]
            found[bridge] = {}
    return found


def parse_datapath_ports(text: str) -> dict[str, int]:
    """Read the output of `dpctl/show`: the ports of the datapath by name."""
    rows = re.findall(r"^  port (\d+): (\S+)", text, re.MULTILINE)
    return {name: int(number) for number, name in rows}


_AT_RUN_TIME = re.compile(r"^\w+ \((.*)\) : \[run time\]:(\w+), .*$", re.MULTILINE)


def parse_features(text: str) -> Features:
    """Read the output of `dpif/show-dp-features` or, of what is used, `dpif/set-dp-features`."""
    text = _AT_RUN_TIME.sub(r"\1: \2", text)
    said = {
        key.strip().lower(): value.strip()
        for key, colon, value in (line.partition(":") for line in text.splitlines())
        if colon
    }

    def yes(name: str, default: bool) -> bool:  # noqa: FBT001 - the default is the datum
        return said[name].lower().startswith(("yes", "true")) if name in said else default

    def number(name: str, default: int) -> int:
        try:
            return integer(said[name])
        except (KeyError, ValueError):
            return default

    return Features(
        masked_set=yes("masked set action", default=True),
        tunnel_push_pop=yes("tunnel push pop", default=False),
        truncate=yes("truncate action", default=True),
        clone=yes("clone action", default=True),
        sample_nesting=number("sample nesting", 10),
        ct_eventmask=yes("conntrack eventmask", default=True),
        ct_clear=yes("conntrack clear", default=True),
        ct_timeout=yes("conntrack timeout policy", default=True),
        max_hash_algorithm=number("max dp_hash algorithm", 1),
        check_packet_length=yes("check pkt length action", default=True),
        lb_output=yes("optimized balance tcp mode", default=False),
        recirculation=yes("recirc", default=True),
        max_mpls=number("max mpls depth", 3),
    )


# --- groups --------------------------------------------------------------------------------------

_GROUP_TYPES: Mapping[str, Literal["all", "select", "indirect", "ff"]] = {
    "all": "all",
    "select": "select",
    "indirect": "indirect",
    "ff": "ff",
    "fast_failover": "ff",
}


def parse_groups(text: str, ports: Ports) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    """Read the output of `ovs-ofctl dump-groups`: the groups, and lines that could not be read."""
    groups, problems = [], []
    for n, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped.startswith("group_id="):
            continue
        try:
            groups.append(_group(stripped, ports))
        except (ValueError, NotUnderstoodError, KeyError) as e:
            problems.append(f"groups: line {n}, column 1: {e}")
    return tuple(groups), tuple(problems)


def _group(text: str, ports: Ports) -> Group:
    head, *buckets = re.split(r",bucket=", text)
    said = {}
    for begin, end in split(head):
        key, _, value = head[begin:end].partition("=")
        said[key] = value
    fields_text = next((key for key in said if key.startswith("fields(")), None)
    if fields_text is not None:
        fields = _hash_fields(head[head.index("fields(") + 7 :].rpartition(")")[0])
    elif said.get("fields"):
        fields = _hash_fields(said["fields"])
    else:
        fields = ()
    kind = _GROUP_TYPES[said["type"]]
    weight = int(kind == "select")  # not written where it is the default
    return Group(
        integer(said["group_id"]),
        kind,
        tuple(_bucket(bucket, Bucket(n, (), weight), ports) for n, bucket in enumerate(buckets)),
        method=said.get("selection_method", ""),
        parameter=integer(said.get("selection_method_param", "0")),
        fields=fields,
        text=text,
    )


def _hash_fields(text: str) -> tuple[tuple[str, int], ...]:
    order = {name: n for n, name in enumerate(FIELDS)}
    found = []
    for part in text.split(","):
        name, assigned, value = part.strip().partition("=")
        if name:
            field = FIELDS[name]
            found.append((field.name, decode(field, value)[0] if assigned else field.bits))
    return tuple(sorted(found, key=lambda pair: order[pair[0]]))


def _bucket(text: str, bucket: Bucket, ports: Ports) -> Bucket:
    """Read a bucket; `bucket` has the values that the text does not name."""
    head, _, actions = text.partition("actions=")
    for word in head.split(","):
        key, _, value = word.replace("=", ":").partition(":")
        match key:
            case "bucket_id":
                bucket = replace(bucket, id=integer(value))
            case "weight":
                bucket = replace(bucket, weight=integer(value))
            case "watch_port":
                bucket = replace(bucket, watch_port=_watched(port_number(value, ports), 0xFFFF))
            case "watch_group":
                any_group = value.lower() in {"any", "4294967295"}
                bucket = replace(bucket, watch_group=None if any_group else integer(value))
            case "":
                continue
            case _:
                raise NotUnderstoodError(f"bucket: {word}")
    return replace(bucket, actions=parse_actions(actions, ports) if actions else ())


def _watched(number: int, nothing: int) -> int | None:
    return None if number == nothing else number


def parse_meters(text: str) -> tuple[int, ...]:
    """Read the output of `ovs-ofctl dump-meters`: the numbers of the meters."""
    return tuple(sorted(int(found) for found in re.findall(r"^ ?meter=(\d+)", text, re.MULTILINE)))


def parse_options(text: str) -> tuple[TunnelOption, ...]:
    """Read the output of `ovs-ofctl dump-tlv-map`."""
    row = re.compile(r"^\s*(0x[0-9a-f]+|\d+)\s+(0x[0-9a-f]+|\d+)\s+(\d+)\s+tun_metadata(\d+)\s*$")
    return tuple(
        TunnelOption(integer(m[1]), integer(m[2]), int(m[3]), int(m[4]))
        for line in text.splitlines()
        if (m := row.match(line))
    )


# --- the underlay --------------------------------------------------------------------------------

_ROUTE = re.compile(
    r"^(?:Cached|User|\S+)\s*:\s+(\S+?)(?: MARK (\d+))? dev (\S+)(?: GW (\S+))?(?: SRC (\S+))?"
    r"( local)?\s*$"
)


def parse_routes(text: str) -> tuple[Route, ...]:
    """Read the output of `ovs/route/show`."""
    routes = []
    for line in text.splitlines():
        found = _ROUTE.match(line.strip())
        if found is None:
            continue
        user = int(line.startswith("User"))
        mark = int(found[2] or 0)
        told = found[1], found[3], found[4] or "", found[5] or "", mark, user, bool(found[6])
        routes.append(Route(*told))
    return tuple(routes)


def parse_neighbours(text: str) -> tuple[Neighbour, ...]:
    """Read the output of `tnl/neigh/show`."""
    row = re.compile(r"^(\S+)\s+([0-9a-f]{2}(?::[0-9a-f]{2}){5})\s+(\S+)")
    return tuple(
        Neighbour(m[1], m[2], m[3]) for line in text.splitlines() if (m := row.match(line))
    )


_LISTENER = re.compile(
    r"^(?P<name>\S+) \((?P<port>\d+)\) : eth\(dst=(?P<mac>[^)]+)\),.*?"
    r"ipv[46]\(dst=(?P<address>[^,]+),proto=(?P<proto>\d+)[^)]*\)(?:,udp\(dst=(?P<udp>\d+)\))?"
)


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """Read the output of `tnl/ports/show -v`."""
    return tuple(
        Listener(
            int(m["port"]), m["name"].partition("_")[0], m["address"], m["mac"], int(m["proto"]),
            int(m["udp"] or 0),
        )
        for line in text.splitlines()
        if (m := _LISTENER.match(line.strip()))
    )  # fmt: skip
