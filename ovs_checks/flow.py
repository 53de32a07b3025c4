# SPDX-License-Identifier: Apache-2.0
"""What one host's virtual switch holds: flows, ports, addresses learned. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from .notation import integer, or_zero
from .packet import FIELDS, spread

TUNNEL_TYPES = frozenset({"vxlan", "geneve", "gre", "ip6gre", "stt", "lisp", "erspan", "gtpu"})
"""Interface types that encapsulate what is sent to them."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A match field or an action that is not understood: kept, reported, never skipped silently."""

    text: str
    column: int
    """1-based, in the text it was found in."""


@dataclass(frozen=True, slots=True)
class Term:
    """One condition of a match: the bits of `field` in `mask` must equal `value`."""

    field: str
    """As dumped; a key of `packet.FIELDS`."""

    value: int
    mask: int


@dataclass(frozen=True)
class Match:
    """A conjunction of terms; none at all matches everything."""

    terms: tuple[Term, ...] = ()
    unknown: tuple[Unknown, ...] = ()

    @cached_property
    def tests(self) -> tuple[tuple[int, int, int], ...]:
        """The terms as (slot of the header, value, mask)."""
        return tuple(
            test
            for term in self.terms
            for test in spread(FIELDS[term.field], term.value, term.mask)
        )


@dataclass(frozen=True, slots=True)
class Subfield:
    """`width` bits of a field from bit `start` up, as in `reg0[3..8]`."""

    field: str
    start: int
    width: int


@dataclass(frozen=True, slots=True)
class ToPort:
    """Send to an OpenFlow port, reserved ones (`notation.SPECIAL_PORTS`) included."""

    port: int


@dataclass(frozen=True, slots=True)
class ToField:
    """Send to the port whose number a field holds."""

    source: Subfield


@dataclass(frozen=True, slots=True)
class Write:
    """Set the bits of `field` in `mask`: set_field, load, and the mod_ and set_ actions."""

    field: str
    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Move:
    """Copy bits between fields."""

    source: Subfield
    target: Subfield


@dataclass(frozen=True, slots=True)
class Resubmit:
    """Look the packet up again, as if it had come in by `port`; None: as it is, in this table.

    `goto_table:N` is one without a port.
    """

    port: int | None
    table: int | None


@dataclass(frozen=True, slots=True)
class Plain:
    """An action without arguments that matter here; `none` changes nothing about the way taken."""

    verb: Literal[
        "drop", "controller", "dec_ttl", "push_vlan", "pop_vlan", "ct_clear", "exit", "none"
    ]


Action = ToPort | ToField | Write | Move | Resubmit | Plain | Unknown


@dataclass(frozen=True)
class Flow:
    """One entry of a flow table."""

    table: int
    priority: int
    match: Match
    actions: tuple[Action, ...]
    text: str
    """The line as dumped, stripped."""

    cookie: int = 0
    n_packets: int | None = None
    n_bytes: int | None = None
    """None where the dump carried no counters."""

    line: int = field(default=0, compare=False)
    """1-based line of the dump; 0 where there was none."""


@dataclass(frozen=True, slots=True)
class Tunnel:
    """How a tunnel port encapsulates; the string `flow` means: as the packet's metadata say."""

    port: str
    kind: str
    local_ip: str
    """Empty where the host's routing chooses."""

    remote_ip: str
    in_key: str
    out_key: str
    """`flow`, a number, or empty for no key."""

    dst_port: int


@dataclass(frozen=True, slots=True)
class Port:
    """One port of a bridge."""

    name: str
    ofport: int
    """OpenFlow port number; negative where Open vSwitch could not open it."""

    bridge: str
    type: str = ""
    options: tuple[tuple[str, str], ...] = ()
    external_ids: tuple[tuple[str, str], ...] = ()
    mac: str = ""
    state: str = ""
    """`up`, `down` or empty for unknown."""

    vlan: str = ""
    """How the port treats VLANs, as text, where it is not a plain trunk of all of them."""

    bond: str = ""
    """Name of the bond the interface belongs to, or empty."""

    @property
    def is_tunnel(self) -> bool:
        """Tell whether what is sent here gets encapsulated."""
        return self.type in TUNNEL_TYPES

    @property
    def tunnel(self) -> Tunnel | None:
        """The tunnel's settings, or None for a port that is none."""
        if not self.is_tunnel:
            return None
        options = dict(self.options)
        key = options.get("key", "")
        return Tunnel(
            self.name,
            self.type,
            local_ip=options.get("local_ip", ""),
            remote_ip=options.get("remote_ip", ""),
            in_key=options.get("in_key", key),
            out_key=options.get("out_key", key),
            dst_port=or_zero(integer, options.get("dst_port", "")),
        )


@dataclass(frozen=True, slots=True)
class FdbEntry:
    """A learned Ethernet address of a bridge."""

    port: int
    vlan: int
    mac: int
    age_s: int
    """Seconds since it was last seen; 0 for a static entry."""


@dataclass(frozen=True)
class Bridge:
    """One bridge: its tables, its ports, the addresses it learned."""

    name: str
    flows: tuple[Flow, ...] = ()
    ports: tuple[Port, ...] = ()
    fdb: tuple[FdbEntry, ...] = ()

    @cached_property
    def tables(self) -> Mapping[int, tuple[Flow, ...]]:
        """Flows by table, highest priority first, in the dump's order among equals."""
        tables: dict[int, list[Flow]] = {}
        for flow in self.flows:
            tables.setdefault(flow.table, []).append(flow)
        return {
            number: tuple(sorted(flows, key=lambda flow: -flow.priority))
            for number, flows in tables.items()
        }

    @cached_property
    def by_number(self) -> Mapping[int, Port]:
        """Ports by OpenFlow number."""
        return {port.ofport: port for port in self.ports if port.ofport >= 0}

    @cached_property
    def by_name(self) -> Mapping[str, Port]:
        """Ports by name."""
        return {port.name: port for port in self.ports}


@dataclass(frozen=True)
class Snapshot:
    """One host's virtual switch at one moment; any number of questions can be asked of it."""

    host: str
    bridges: tuple[Bridge, ...] = ()
    version: str = ""
    wall_ns: int = 0
    """Nanoseconds since the Unix epoch."""

    problems: tuple[str, ...] = ()
    """Lines of the dumps that could not be read; the answers may be wrong for lack of them."""

    @cached_property
    def by_name(self) -> Mapping[str, Bridge]:
        """Bridges by name."""
        return {bridge.name: bridge for bridge in self.bridges}

    def port(self, name: str) -> Port | None:
        """Return the port called `name` of whichever bridge, or None."""
        return next((b.by_name[name] for b in self.bridges if name in b.by_name), None)
