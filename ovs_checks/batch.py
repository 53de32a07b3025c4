# SPDX-License-Identifier: Apache-2.0
"""Many packets at once through one host's flow tables.

Packets go through the tables together: a lookup asks each mask once for all of them, and flows that
do the same with other constants are done at once. What this does not know (groups, connection
tracking, NORMAL, patch ports, several copies, ...) is left to `pipeline.walk`, packet by packet, so
that the answers are those of `walk` however they came about.

numpy is imported here, so this module stays out of the agent; it runs in a process of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from .actions import (
    Action,
    Goto,
    Move,
    Plain,
    Resubmit,
    SetTunnel,
    Subfield,
    ToField,
    ToPort,
    Write,
    WriteMetadata,
)
from .classifier import Table, is_condition
from .fields import FIELDS, spread
from .flow import Flow
from .heap import only_growing
from .notation import SPECIAL_PORTS, integer, ipv4, or_zero
from .packet import SLOTS, Header
from .pipeline import walk
from .switch import Bridge, Port, Snapshot
from .walk import End, EndKind

KINDS: tuple[EndKind, ...] = get_args(EndKind)
_OUTPUT, _TUNNELLED, _DROPPED, _MISSED = (
    KINDS.index(kind) for kind in ("output", "tunnelled", "dropped", "missed")
)
_UNDECIDED, _DEFERRED = len(KINDS), len(KINDS) + 1

MAX_DEPTH = 60
"""Lookups within lookups; what goes deeper is left to `walk`, which knows of loops."""

MAX_LOOKUPS = 4000
_MAX_DENSE = 1 << 22
_MAX_PRODUCT = 1 << 16
_WIDE = frozenset(
    slot for name, slot in SLOTS.items() if name.startswith(("ipv6_", "ct_ipv6", "tun_ipv6"))
) | {SLOTS[name] for name in ("ct_label", "tun_metadata", "nd_target")}
_IN_PORT, _TUN_DST, _TUN_ID = (SLOTS[name] for name in ("in_port", "tun_dst", "tun_id"))
_ALL = (1 << 64) - 1

U64 = NDArray[np.uint64]
I32 = NDArray[np.int32]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class Column:
    """One field of all packets: packet n has `values[codes[n]]`."""

    values: U64
    codes: I32

    @classmethod
    def of(cls, values: Sequence[int], codes: "Sequence[int] | I32") -> "Column":
        """Make a column; raises ValueError for values of over 64 bits or codes out of range."""
        try:
            made = cls(np.array(values, np.uint64), np.asarray(codes, np.int32))
        except OverflowError as e:
            raise ValueError(f"a value or a code is out of range: {e}") from e
        if made.codes.size and not 0 <= made.codes.min() <= made.codes.max() < made.values.size:
            raise ValueError("a code has no value")
        return made


@dataclass(frozen=True)
class Packets:
    """Packets that are alike but for some fields."""

    base: Header
    columns: Mapping[str, Column]
    """By slot of the header; all of the same length."""

    @cached_property
    def count(self) -> int:
        """How many packets there are; raises ValueError if columns are not of one length."""
        lengths = {column.codes.size for column in self.columns.values()}
        if len(lengths) != 1:
            raise ValueError(f"columns of {sorted(lengths)} packets")
        return lengths.pop()

    def header(self, number: int) -> Header:
        """Return one packet."""
        named = self.columns.items()
        return self.base._replace(
            **{name: int(column.values[column.codes[number]]) for name, column in named}
        )


@dataclass(frozen=True)
class Ends:
    """What became of the packets, one element for each."""

    kind: NDArray[np.uint8]
    """Index into `KINDS`."""

    port: I32
    """OpenFlow number of the port it left by, -1 for none."""

    tun_dst: U64
    """IPv4 address that it was tunnelled to; 0 for none."""

    tun_id: U64
    flow: I32
    """Index into the bridge's flows of the one that did it; -1 for none, or if it was walked."""

    walked: int
    """How many were left to `walk`."""


# --- one table -----------------------------------------------------------------------------------


class _Subtable:
    """The flows of one mask, by a number that their values make."""

    def __init__(self, mask: Sequence[tuple[int, int]], rows: Sequence[tuple[int, Flow]]) -> None:
        self.top = max(flow.priority for _, flow in rows)
        values = [[value for _, value, _ in flow.match.tests] for _, flow in rows]
        self._parts: list[tuple[int, int, Any]] = []
        self._radices = []
        keys = np.zeros(len(rows), np.int64)
        self.countable = True
        product = 1
        for n, (slot, bits) in enumerate(mask):
            told = sorted({row[n] for row in values})
            codes = {value: code for code, value in enumerate(told)}
            known: Any = codes if slot in _WIDE else np.array(told, np.uint64)
            self._parts.append((slot, bits, known))
            radix = len(told) + 1  # the last code is for none of them
            self._radices.append(radix)
            product *= radix
            if product > 1 << 62:
                self.countable = False
                return
            keys = keys * radix + np.array([codes[row[n]] for row in values], np.int64)
        numbers = np.array([row for row, _ in rows], np.int32)
        # Of flows with the same match, the one of highest priority counts.
        order = np.lexsort((np.array([-flow.priority for _, flow in rows]), keys))
        keys, numbers = keys[order], numbers[order]
        first = np.ones(keys.size, bool)
        first[1:] = keys[1:] != keys[:-1]
        self._keys, self._numbers = keys[first], numbers[first]
        self._dense: I32 | None = None
        if product <= _MAX_DENSE:
            self._dense = np.full(product, -1, np.int32)
            self._dense[self._keys] = self._numbers

    def find(self, state: "_State", index: Index) -> I32 | None:
        """Return for each packet the number of its flow, -1 for none; None if there is none."""
        key: Any = 0
        for (slot, bits, known), radix in zip(self._parts, self._radices, strict=True):
            code = state.code(slot, bits, known, index)
            if code is None:
                return None
            key = key * radix + code
        if isinstance(key, int):
            key = np.full(index.size, key, np.int64)
        if self._dense is not None:
            dense: I32 = self._dense[key]
            return dense
        at = np.minimum(np.searchsorted(self._keys, key), self._keys.size - 1)
        found: I32 = np.where(self._keys[at] == key, self._numbers[at], np.int32(-1))
        return found


@dataclass(slots=True)
class _Template:
    """Flows that do the same, with other constants."""

    steps: tuple[tuple[Any, ...], ...]
    constants: list[Any]
    """One array for each step: its constants, by the flow's position in the template."""

    deferred: bool


class _Table:
    """One table, made for lookups of many packets."""

    def __init__(self, number: int, table: Table, index: Mapping[int, int]) -> None:
        rows = list(enumerate(table.flows))
        self.deferred = any(flow.match.unknown or is_condition(flow) for flow in table.flows)
        by_mask: dict[tuple[tuple[int, int], ...], list[tuple[int, Flow]]] = {}
        if not self.deferred:
            for row, flow in rows:
                mask = tuple((slot, bits) for slot, _, bits in flow.match.tests)
                by_mask.setdefault(mask, []).append((row, flow))
        subtables = [_Subtable(mask, flows) for mask, flows in by_mask.items()]
        self.deferred |= not all(one.countable for one in subtables)
        self.subtables = sorted(subtables, key=lambda one: -one.top)
        self.priority = np.array([flow.priority for flow in table.flows], np.int32)
        self.flow = np.array([index[id(flow)] for flow in table.flows], np.int32)
        self.template = np.zeros(len(rows), np.int32)
        self.position = np.zeros(len(rows), np.int32)
        self.templates: list[_Template] = []
        self._compile(number, table.flows)

    def _compile(self, number: int, flows: Sequence[Flow]) -> None:
        known: dict[tuple[Any, ...], int] = {}
        told: list[list[list[int]]] = []
        for row, flow in enumerate(flows):
            steps, constants = _steps(number, flow.actions)
            at = known.get(steps)
            if at is None:
                at = known[steps] = len(told)
                told.append([])
            self.template[row], self.position[row] = at, len(told[at])
            told[at].append(constants)
        for steps, rows in zip(known, told, strict=True):
            columns = [np.array(column, np.uint64) for column in zip(*rows, strict=True)]
            self.templates.append(_Template(steps, columns, ("defer",) in steps))


Step = tuple[Any, ...]
"""What is done, and to what: ("write", slot, mask)."""


def _steps(number: int, actions: Sequence[Action]) -> tuple[tuple[Step, ...], list[int]]:
    """Return what a flow does, and the constants that it does it with, one for each step."""
    found: list[tuple[Step, int]] = []
    for action in actions:
        steps = _rewrites(action) or _leads(number, action)
        if steps is None:
            return (("defer",),), [0]
        found += steps
    return tuple(step for step, _ in found), [constant for _, constant in found]


def _rewrites(action: Action) -> list[tuple[Step, int]] | None:
    """Return the steps of an action that changes the packet; None for any other."""
    match action:
        case Write() if _is_plain(action.field):
            told = spread(FIELDS[action.field], action.value, action.mask)
            return [(("write", slot, mask), value) for slot, value, mask in told]
        case SetTunnel():
            return [(("write", _TUN_ID, _ALL), action.value)]
        case WriteMetadata():
            step = ("write", SLOTS["metadata"], action.mask)
            return [(step, action.value & action.mask)]
        case Move() if _is_narrow(action.source) and _is_narrow(action.target):
            return [(("move", *_bits(action.source), *_bits(action.target)[:2]), 0)]
    return None


def _leads(number: int, action: Action) -> list[tuple[Step, int]] | None:
    """Return the steps of an action that says where the packet goes; None for what is not known."""
    match action:
        case Resubmit(port=None, conntrack=False) | Goto():
            return [(("look up", number if action.table is None else action.table), 0)]
        case ToPort() if action.port not in _RESERVED:
            return [(("output",), action.port)]
        case ToPort(port=port) if port == SPECIAL_PORTS["in_port"]:
            return [(("return",), 0)]
        case ToField() if _is_narrow(action.source):
            return [(("output by", *_bits(action.source)), 0)]
        case Plain(verb="drop" | "note"):
            return []
    return None


_RESERVED = frozenset(SPECIAL_PORTS.values()) - {SPECIAL_PORTS["local"]}


def _is_plain(name: str) -> bool:
    """Tell whether every packet has a field (all are Ethernet frames), and it fits a column."""
    field = FIELDS[name]
    had = field.needs in {"", "ethernet"} and not field.present
    return had and not any(p.slot in _WIDE for p in field.parts)


def _is_narrow(one: Subfield) -> bool:
    field = FIELDS[one.field]
    return _is_plain(one.field) and len(field.parts) == 1


def _bits(one: Subfield) -> tuple[int, int, int]:
    """Return slot, lowest bit and width."""
    part = FIELDS[one.field].parts[0]
    return part.slot, part.shift + one.start, one.width


# --- the packets ---------------------------------------------------------------------------------


class _State:
    """The fields of all packets while they go through the tables."""

    def __init__(self, packets: Packets) -> None:
        self._base = packets.base
        self._count = packets.count
        self._columns = {SLOTS[name]: column for name, column in packets.columns.items()}

    def code(self, slot: int, mask: int, known: Any, index: Index) -> Any:
        """Return which of the known masked values packets have, by position; None if none has any.

        A packet that has none of them gets the position after the last.
        """
        column = self._columns.get(slot)
        if column is None:
            value = self._base[slot] & mask
            if isinstance(known, dict):
                return known.get(value)
            at = int(np.searchsorted(known, np.uint64(value)))
            return at if at < known.size and int(known[at]) == value else None
        masked = column.values & np.uint64(mask)
        at = np.minimum(np.searchsorted(known, masked), known.size - 1)
        hit = known[at] == masked
        if not hit.any():
            return None
        return np.where(hit, at, known.size)[column.codes[index]]

    def read(self, slot: int, index: Index) -> U64:
        """Return a field of some packets."""
        column = self._columns.get(slot)
        if column is None:
            return np.full(index.size, self._base[slot], np.uint64)
        return column.values[column.codes[index]]

    def write(self, slot: int, mask: int, values: U64, codes: Any, index: Index) -> None:
        """Set bits of a field: packet `index[n]` gets those of `values[codes[n]]`."""
        old = self._columns.get(slot)
        if old is None:
            start = np.array([self._base[slot]], np.uint64)
            old = Column(start, np.zeros(self._count, np.int32))
        keep = np.uint64(_ALL ^ mask)
        if not (old.values & keep).any():
            new, at = values, codes
        elif old.values.size * values.size <= _MAX_PRODUCT:
            new = ((old.values & keep)[:, None] | values[None, :]).ravel()
            at = old.codes[index] * values.size + codes
        else:
            mixed = old.values[old.codes[index]] & keep | values[codes]
            new, at = np.unique(mixed, return_inverse=True)
        if index.size == self._count:
            self._columns[slot] = Column(new, _all_of(index, at, self._count))
            return
        changed = old.codes.copy()
        changed[index] = at + old.values.size
        self._columns[slot] = Column(np.concatenate((old.values, new)), changed)


def _all_of(index: Index, codes: Any, count: int) -> I32:
    made = np.empty(count, np.int32)
    made[index] = codes
    return made


class Batch:
    """One bridge of a snapshot, made ready for many packets."""

    def __init__(self, snapshot: Snapshot, bridge: str) -> None:
        self.snapshot = snapshot
        self.bridge: Bridge = snapshot.by_name[bridge]
        self._index = {id(flow): n for n, flow in enumerate(self.bridge.flows)}
        self._tables: dict[int, _Table | None] = {}
        self._ports = _PortKinds(snapshot, self.bridge)

    def prepare(self) -> None:
        """Make all tables ready, which is otherwise done when a packet comes to them."""
        with only_growing():
            for number in self.bridge.tables:
                self.table(number)

    def table(self, number: int) -> _Table | None:
        """Return a table; None for an empty one."""
        if number not in self._tables:
            table = self.bridge.tables.get(number)
            self._tables[number] = _Table(number, table, self._index) if table else None
        return self._tables[number]

    def run(self, packets: Packets) -> Ends:
        """Carry packets that enter the bridge by their `in_port` through the host.

        Raises
        ------
        ValueError
            If columns are not of one length, or hold fields of over 64 bits.
        """
        wide = [name for name in packets.columns if SLOTS[name] in _WIDE]
        if wide:
            raise ValueError(f"no column may hold {wide[0]}")
        run = _Run(self, packets)
        everyone = np.arange(packets.count, dtype=np.int64)
        if _may_begin(packets) and self._ports.simple:
            in_ports = run.state.read(_IN_PORT, everyone).astype(np.int64)
            known = self._ports.kind[np.minimum(in_ports, 0xFFFF)] == _PLAIN
            run.defer(everyone[~known])
            run.look_up(0, everyone[known], 0)
        else:
            run.defer(everyone)
        return run.ends()

    @property
    def ports(self) -> "_PortKinds":
        """How packets leave by each port."""
        return self._ports


def _may_begin(packets: Packets) -> bool:
    """Tell whether packets are of the kind that lookups of many are made for."""
    names = ("packet_type", "nw_frag", "recirc_id", "tun_dst", "tun_tos", "ct_state", "conj_id")
    return not any(getattr(packets.base, name) or name in packets.columns for name in names)


_ABSENT, _PLAIN, _TUNNEL, _OTHER = range(4)


class _PortKinds:
    """What becomes of packets that are sent to a port, by number."""

    def __init__(self, snapshot: Snapshot, bridge: Bridge) -> None:
        features = snapshot.features.get(bridge.datapath_type)
        native = bool(features and features.tunnel_push_pop)
        self.simple = not bridge.mirrors and not snapshot.listeners and not bridge.unsupported
        self.kind = np.zeros(1 << 16, np.uint8)
        self.tunnels: dict[int, Port] = {}
        for number, port in bridge.by_number.items():
            lane = bridge.by_lane.get(number)
            odd = port.config or port.type == "patch" or (lane is not None and lane.protected)
            self.kind[number & 0xFFFF] = _OTHER if odd else _PLAIN
            if port.tunnel is not None:
                self.kind[number & 0xFFFF] = _OTHER if odd or native else _TUNNEL
                self.tunnels[number] = port


class _Run:
    """One batch on its way."""

    def __init__(self, batch: Batch, packets: Packets) -> None:
        count = packets.count
        self._batch, self._packets = batch, packets
        self.state = _State(packets)
        self._kind = np.full(count, _UNDECIDED, np.uint8)
        self._port = np.full(count, -1, np.int32)
        self._flow = np.full(count, -1, np.int32)
        self._tun_dst = np.zeros(count, np.uint64)
        self._tun_id = np.zeros(count, np.uint64)
        self._events = np.zeros(count, np.int32)
        self._lookups = 0

    def defer(self, index: Index) -> None:
        """Leave packets to `walk`."""
        self._kind[index] = _DEFERRED
        self._events[index] += 1

    def look_up(self, number: int, index: Index, depth: int) -> None:
        """Have packets looked up in a table, and do what is found."""
        index = index[self._kind[index] != _DEFERRED]
        if not index.size:
            return
        self._lookups += 1
        table = self._batch.table(number)
        if table is None:
            self._end(index, _MISSED, -1)
            return
        if table.deferred or depth > MAX_DEPTH or self._lookups > MAX_LOOKUPS:
            self.defer(index)
            return
        rows, doubtful = self._find(table, index)
        if doubtful.any():
            self.defer(index[doubtful])
            index, rows = index[~doubtful], rows[~doubtful]
        missed = rows < 0
        if missed.any():
            self._end(index[missed], _MISSED, -1)
            index, rows = index[~missed], rows[~missed]
        used = table.template[rows]
        present = np.flatnonzero(np.bincount(used, minlength=len(table.templates)))
        for one in present:
            chosen = slice(None) if present.size == 1 else used == one
            self._do(table, table.templates[one], index[chosen], rows[chosen], depth)

    def _find(self, table: _Table, index: Index) -> tuple[I32, NDArray[np.bool_]]:
        """Return the row of each packet's flow, -1 for none, and where another is as good."""
        best = np.full(index.size, -1, np.int32)
        doubtful = np.zeros(index.size, bool)
        if len(table.subtables) == 1:
            found = table.subtables[0].find(self.state, index)
            return (best if found is None else found), doubtful
        rank = np.full(index.size, -1, np.int32)
        for subtable in table.subtables:
            if rank.size and rank.min() > subtable.top:
                break
            found = subtable.find(self.state, index)
            if found is None:
                continue
            priority = np.where(found >= 0, table.priority[found], np.int32(-2))
            doubtful |= priority == rank
            better = priority > rank
            doubtful &= ~better
            best[better], rank[better] = found[better], priority[better]
        return best, doubtful

    def _do(self, table: _Table, template: _Template, index: Index, rows: I32, depth: int) -> None:
        if template.deferred:
            self.defer(index)
            return
        before = self._events[index]
        position = table.position[rows]
        for n, step in enumerate(template.steps):
            constants = template.constants[n]
            match step:
                case ("write", slot, mask):
                    self.state.write(slot, mask, constants, position, index)
                case ("move", source, start, width, target, at):
                    moved = self.state.read(source, index) >> np.uint64(start)
                    moved = (moved & np.uint64((1 << width) - 1)) << np.uint64(at)
                    values, codes = np.unique(moved, return_inverse=True)
                    mask = (1 << width) - 1 << at
                    self.state.write(target, mask, values, codes, index)
                case ("look up", number):
                    self.look_up(number, index, depth + 1)
                case ("output",):
                    self._output(constants[position], index, table.flow[rows])
                case ("output by", slot, start, width):
                    ports = self.state.read(slot, index) >> np.uint64(start)
                    ports &= np.uint64((1 << width) - 1)
                    special = np.isin(ports, _SPECIAL)
                    self.defer(index[special])
                    self._output(ports[~special], index[~special], table.flow[rows[~special]])
                case ("return",):
                    ports = self.state.read(_IN_PORT, index)
                    self._output(ports, index, table.flow[rows], back=True)
        nothing = self._events[index] == before
        self._end(index[nothing], _DROPPED, table.flow[rows[nothing]])

    def _end(self, index: Index, kind: int, flow: Any) -> None:
        """Note how packets ended, unless a copy of them has left."""
        self._events[index] += 1
        lost = ~np.isin(self._kind[index], (_OUTPUT, _TUNNELLED, _DEFERRED))
        index = index[lost]
        self._kind[index] = kind
        self._flow[index] = flow[lost] if isinstance(flow, np.ndarray) else flow

    def _output(self, ports: U64, index: Index, flow: I32, *, back: bool = False) -> None:
        numbers = ports.astype(np.int64)
        kinds = np.where(numbers > 0xFFFF, _ABSENT, self._batch.ports.kind[numbers & 0xFFFF])
        if not back:
            kinds = np.where(self.state.read(_IN_PORT, index) == ports, _ABSENT, kinds)
        again = np.isin(self._kind[index], (_OUTPUT, _TUNNELLED)) & (kinds != _ABSENT)
        kinds = np.where(again, _OTHER, kinds)
        self.defer(index[kinds == _OTHER])
        plain = kinds == _PLAIN
        self._sent(index[plain], _OUTPUT, numbers[plain], flow[plain])
        tunnelled = kinds == _TUNNEL
        for number in np.unique(numbers[tunnelled]):
            mine = tunnelled & (numbers == number)
            self._encapsulate(self._batch.ports.tunnels[int(number)], index[mine], flow[mine])

    def _encapsulate(self, port: Port, index: Index, flow: I32) -> None:
        tunnel = port.tunnel
        if tunnel is None:
            return
        if tunnel.remote_ip == "flow":
            remote = self.state.read(_TUN_DST, index)
        else:
            remote = np.full(index.size, or_zero(ipv4, tunnel.remote_ip), np.uint64)
        if tunnel.out_key == "flow":
            key = self.state.read(_TUN_ID, index)
        else:
            key = np.full(index.size, or_zero(integer, tunnel.out_key), np.uint64)
        led = remote != 0
        self.defer(index[~led])
        index = index[led]
        self._tun_dst[index], self._tun_id[index] = remote[led], key[led]
        self._sent(index, _TUNNELLED, port.ofport, flow[led])

    def _sent(self, index: Index, kind: int, port: Any, flow: I32) -> None:
        kept = self._kind[index] != _DEFERRED
        self._events[index] += 1
        index = index[kept]
        self._kind[index], self._flow[index] = kind, flow[kept]
        self._port[index] = port[kept] if isinstance(port, np.ndarray) else port

    def ends(self) -> Ends:
        """Return what became of the packets; what was deferred is walked now."""
        deferred = np.flatnonzero(self._kind >= _UNDECIDED)
        for n in deferred:
            end = walk(
                self._batch.snapshot, self._batch.bridge.name, self._packets.header(int(n))
            ).end
            self._take(int(n), end)
        columns = self._kind, self._port, self._tun_dst, self._tun_id, self._flow
        return Ends(*columns, walked=int(deferred.size))

    def _take(self, n: int, end: End) -> None:
        port = self._batch.snapshot.port(end.port) if end.port else None
        self._kind[n] = KINDS.index(end.kind)
        self._port[n] = port.ofport if port else -1
        self._tun_dst[n] = or_zero(ipv4, end.tun_dst)
        self._tun_id[n] = end.tun_id
        self._flow[n] = -1


_SPECIAL = np.array(sorted(_RESERVED), np.uint64)
