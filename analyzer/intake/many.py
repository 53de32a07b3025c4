# SPDX-License-Identifier: Apache-2.0
"""Columns of several hosts' flows as those of one, so that all are decoded at once.

What numpy and Python take for the small arrays of a host, they take for the large ones of sixty.
"""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate

import numpy as np
from msgspec.structs import astuple

from netagent.wire.columns import WIDTHS, narrow, typecodes
from netagent.wire.messages import FlowColumns

HISTOGRAM = ("hist_bucket", "hist_count")
"""Columns that have an item for each entry of a flow's histogram, and not for each flow."""


def as_one(
    flows: Sequence[FlowColumns], rows: Sequence[int]
) -> tuple[FlowColumns, list[int]] | None:
    """Return columns of all hosts' flows, host after host, and how many entries each host has.

    `rows` (n_hosts,) are how many flows each has. None where a column has not as many items:
    whoever reads the columns one by one says what is wrong.
    """
    made: dict[str, bytes] = {}
    entries: list[int] = []
    parts_of = dict(
        zip(FlowColumns.__struct_fields__, zip(*map(astuple, flows), strict=True), strict=True)
    )
    for name, sizes in _sized():
        if name == HISTOGRAM[0]:
            entries = _sums(made["hist_len"], rows)
            came = zip(parts_of["hist_count"], entries, strict=True)
            if any(len(counts) < many for counts, many in came):  # before there is room for them
                return None
        column = _joined(parts_of[name], rows if name not in HISTOGRAM else entries, sizes)
        if column is None:
            return None
        made[name] = column
    return FlowColumns(**made), entries


@cache
def _sized() -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the columns, those of histograms last, with the bytes that an item may have."""
    codes = typecodes(FlowColumns)
    plain = [name for name in codes if name not in HISTOGRAM]
    found: dict[str, tuple[int, ...]] = {}
    for name in (*plain, *HISTOGRAM):
        may_be_narrow = name in narrow(FlowColumns)
        sizes = [np.dtype(each).itemsize for each in WIDTHS.get(codes[name], "")]
        found[name] = (0, *sizes) if may_be_narrow else (np.dtype(codes[name]).itemsize,)
    found["hist_count"] = tuple(filter(None, found["hist_count"]))  # none counts nothing
    return tuple(found.items())


def _joined(parts: Sequence[bytes], items: Sequence[int], sizes: Sequence[int]) -> bytes | None:
    """Return columns of so many items each as one, all as wide as the widest of them."""
    lengths = list(map(len, parts))
    for size in sizes:  # mostly all are alike
        if lengths == [size * count for count in items]:
            return b"".join(parts)
    widths: list[int] = []
    for length, count in zip(lengths, items, strict=True):
        width = length // count if count else 0
        if length != width * count or (count and width not in sizes):
            return None
        widths.append(width)
    widest = max(widths)
    return b"".join(
        part if width == widest else _wider(part, count, width, widest)
        for part, count, width in zip(parts, items, widths, strict=True)
    )


def _wider(part: bytes, count: int, width: int, widest: int) -> bytes:
    if not width:
        return bytes(count * widest)
    return np.frombuffer(part, f"<u{width}").astype(f"<u{widest}").tobytes()


def _sums(lengths: bytes, rows: Sequence[int]) -> list[int]:
    """Return (n_hosts,) how many entries the histograms of each host's rows have."""
    count = sum(rows)
    if not lengths or not count:
        return [0] * len(rows)
    before = np.zeros(count + 1, np.int64)
    np.cumsum(np.frombuffer(lengths, f"<u{len(lengths) // count}"), out=before[1:])
    ends = before[list(accumulate(rows))]
    found: list[int] = np.diff(ends, prepend=0).tolist()
    return found
