# SPDX-License-Identifier: Apache-2.0
"""Flow tables made ready for lookups of many packets at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ovs_checks.openflow.actions import (
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
from ovs_checks.openflow.classifier import Table, is_condition
from ovs_checks.openflow.fields import FIELDS, spread
from ovs_checks.openflow.flow import Flow
from ovs_checks.openflow.notation import SPECIAL_PORTS
from ovs_checks.openflow.packet import SLOTS

from .state import ALL_BITS, I32, WIDE, Index, State

_TUN_ID = SLOTS["tun_id"]
_MAX_DENSE = 1 << 22
"""Entries of an index that is a plain array. Chosen: 16 MB at four bytes; a larger product of
values is looked up otherwise."""


class Subtable:
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
            known: Any = codes if slot in WIDE else np.array(told, np.uint64)
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

    def find(self, state: "State", index: Index) -> I32 | None:
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
class Template:
    """Flows that do the same, with other constants."""

    steps: tuple[tuple[Any, ...], ...]
    constants: list[Any]
    """An array for each step: the step's constants, by the flow's position in the template."""

    deferred: bool


class PacketTable:
    """A table, made for lookups of many packets."""

    def __init__(self, number: int, table: Table, index: Mapping[int, int]) -> None:
        rows = list(enumerate(table.flows))
        self.deferred = any(flow.match.unknown or is_condition(flow) for flow in table.flows)
        by_mask: dict[tuple[tuple[int, int], ...], list[tuple[int, Flow]]] = {}
        if not self.deferred:
            for row, flow in rows:
                mask = tuple((slot, bits) for slot, _, bits in flow.match.tests)
                by_mask.setdefault(mask, []).append((row, flow))
        subtables = [Subtable(mask, flows) for mask, flows in by_mask.items()]
        self.deferred |= not all(one.countable for one in subtables)
        self.subtables = sorted(subtables, key=lambda one: -one.top)
        self.priority = np.array([flow.priority for flow in table.flows], np.int32)
        self.flow = np.array([index[id(flow)] for flow in table.flows], np.int32)
        self.template = np.zeros(len(rows), np.int32)
        self.position = np.zeros(len(rows), np.int32)
        self.templates: list[Template] = []
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
            self.templates.append(Template(steps, columns, ("defer",) in steps))


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
            return [(("write", _TUN_ID, ALL_BITS), action.value)]
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
        case ToPort() if action.port not in RESERVED:
            return [(("output",), action.port)]
        case ToPort(port=port) if port == SPECIAL_PORTS["in_port"]:
            return [(("return",), 0)]
        case ToField() if _is_narrow(action.source):
            return [(("output by", *_bits(action.source)), 0)]
        case Plain(verb="drop" | "note"):
            return []
    return None


RESERVED = frozenset(SPECIAL_PORTS.values()) - {SPECIAL_PORTS["local"]}


def _is_plain(name: str) -> bool:
    """Tell whether every packet has a field (all are Ethernet frames), and it fits a column."""
    field = FIELDS[name]
    had = field.needs in {"", "ethernet"} and not field.present
    return had and not any(p.slot in WIDE for p in field.parts)


def _is_narrow(one: Subfield) -> bool:
    field = FIELDS[one.field]
    return _is_plain(one.field) and len(field.parts) == 1


def _bits(one: Subfield) -> tuple[int, int, int]:
    """Return slot, lowest bit and width."""
    part = FIELDS[one.field].parts[0]
    return part.slot, part.shift + one.start, one.width
