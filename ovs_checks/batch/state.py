# SPDX-License-Identifier: Apache-2.0
"""The fields of many packets, column by column, while they go through the tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ovs_checks.openflow.packet import SLOTS, Header

WIDE = frozenset(
    slot for name, slot in SLOTS.items() if name.startswith(("ipv6_", "ct_ipv6", "tun_ipv6"))
) | {SLOTS[name] for name in ("ct_label", "tun_metadata", "nd_target")}
"""Slots of over 64 bits."""

ALL_BITS = (1 << 64) - 1
"""Mask of all 64 bits of a column."""
_MAX_PRODUCT = 1 << 16
"""Pairs of an old value and a written value that are formed without looking which occur. Chosen:
half a megabyte is cheaper than a sort."""

U64 = NDArray[np.uint64]
I32 = NDArray[np.int32]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class Column:
    """A field of all packets: packet n has `values[codes[n]]`."""

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
    """Columns by slot of the header; all of the same length."""

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


class State:
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
        keep = np.uint64(ALL_BITS ^ mask)
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
