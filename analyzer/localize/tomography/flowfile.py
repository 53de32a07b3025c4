# SPDX-License-Identifier: Apache-2.0
"""Observations made elsewhere, one row a flow: CSV or msgpack. Pure.

A flow's path is the ids of the components that it crosses, joined by "|"; where it may have taken
one of several, these are joined by ";". An id with "->" is a link in one direction. Between two
nodes beside each other there is a link, from the first to the second, whether it is listed or not.
A row without a path takes one of the shortest ways through the topology, if one is given.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.localize.tomography.observations import Arrived, Builder, Floats, Observations
from netagent.model.errors import RemoteProtocolError

if TYPE_CHECKING:
    import _csv

COLUMNS = ("src", "dst", "path", "sent", "lost", "lat_mean_us", "lat_std_us")
REQUIRED = COLUMNS[:5]
LINK = "->"
MAX_WAYS = 4096
"""Most ways that one flow may have taken. Chosen: a fat-tree of 128 ports has as many between two
pods."""
MAX_COUNT = 1 << 53
"""Most probes of one row: beyond it, a float is no exact integer."""
ALIKE = 8
"""Least flows over ways as long, for the slow among them to be told. Chosen: their median is then
that of healthy flows even if three are slow."""
SLOW_FACTOR, SLOW_US, SLOW_SCALES = 1.3, 3.0, 6.0
"""A flow is slow where its latency exceeds the median of its like by this factor, by these
microseconds, and by this many standard deviations of its like. Factor and microseconds are the
floors of docs/localization.md; the deviations are chosen: none of 100,000 healthy flows exceeds
them."""
MAD_SCALE = 1.4826
"""Standard deviations in a median absolute deviation of normally distributed values."""


class Row(Struct, frozen=True):
    """One flow."""

    src: str
    dst: str
    path: str
    sent: int
    lost: int
    lat_mean_us: float | None = None
    lat_std_us: float | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """A file of flows."""

    loss: Observations[str]
    slow: Observations[str] | None
    """Each flow with a latency as one probe, lost where the flow is slow; None without any."""
    ignored: tuple[str, ...] = ()
    """Columns that mean nothing here."""
    pathless: int = 0
    """Flows without a path, which were left out."""


def rows_of_csv(lines: Iterable[str], ignored: list[str]) -> Iterator[tuple[int, Row]]:
    """Yield line numbers and rows; raise RemoteProtocolError where a line makes no sense.

    A header names the columns, in any order; without one they are COLUMNS. Names of columns that
    mean nothing here are added to `ignored`.
    """
    reader = csv.reader(lines)
    names: Sequence[str] | None = None
    for fields in _read(reader):
        line = reader.line_num
        if not any(map(str.strip, fields)):
            continue
        if names is None:
            names = [each.strip().lstrip("\ufeff") for each in fields]
            if "src" in names:
                if missing := [each for each in REQUIRED if each not in names]:
                    raise RemoteProtocolError(f"line {line}: no column {', '.join(missing)}")
                ignored += [each for each in names if each not in COLUMNS]
                continue
            names = COLUMNS
        if not len(REQUIRED) <= len(fields) <= max(len(names), len(REQUIRED)):
            raise RemoteProtocolError(f"line {line}: {len(fields)} fields, not {len(names)}")
        yield line, _row(dict(zip(names, fields, strict=False)), line)
    if names is None:
        raise RemoteProtocolError("line 1: the file is empty")


def _read(reader: "_csv.Reader") -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise RemoteProtocolError(f"line {reader.line_num}: {error}") from error


def _row(fields: Mapping[str, str], line: int) -> Row:
    def number(name: str) -> float | None:
        text = fields.get(name, "").strip()
        if not text:
            return None
        try:
            return float(text)
        except ValueError:
            raise RemoteProtocolError(f"line {line}: {name} is {text!r}, no number") from None

    def count(name: str) -> int:
        value = number(name)
        if value is None or not value.is_integer():
            raise RemoteProtocolError(f"line {line}: {name} is {fields.get(name, '')!r}, no count")
        return int(value)

    src, dst, path = (fields.get(name, "").strip() for name in ("src", "dst", "path"))
    latencies = number("lat_mean_us"), number("lat_std_us")
    return Row(src, dst, path, count("sent"), count("lost"), *latencies)


def rows_of_msgpack(data: bytes) -> Iterator[tuple[int, Row]]:
    """Yield row numbers and rows: an array of maps; RemoteProtocolError where it is none."""
    try:
        rows = msgspec.msgpack.decode(data, type=list[Row])
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"no msgpack array of flows: {error}") from error
    yield from enumerate(rows, start=1)


def links_of(lines: Iterable[str]) -> dict[str, set[str]]:
    """Return node -> nodes beside it: two ids a line, by comma, blank or "->", "#" comments.

    An edge leads both ways, one with "->" from the first to the second only.
    """
    beside: dict[str, set[str]] = defaultdict(set)
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        one_way = LINK in text
        ends = text.replace(LINK, " ").replace(",", " ").split()
        if len(ends) != 2 or ends[0] == ends[1]:
            raise RemoteProtocolError(f"line {number}: {text!r} is no edge; write A,B")
        beside[ends[0]].add(ends[1])
        if not one_way:
            beside[ends[1]].add(ends[0])
    return dict(beside)


def observed(
    rows: Iterable[tuple[int, Row]],
    beside: Mapping[str, set[str]] | None = None,
    ignored: Sequence[str] = (),
) -> Imported:
    """Return rows as observations; raise RemoteProtocolError where one makes no sense."""
    builder = Builder[str]()
    legs: dict[tuple[str, ...], tuple[int, float]] = {}
    latencies: list[tuple[int, float, float, float]] = []
    pathless = 0
    for line, row in rows:
        _check(row, line)
        key = (row.path,) if row.path else (row.src, row.dst, "")
        if key not in legs:
            ways = _ways(row, beside or {}, line)
            length = sum(map(len, ways)) / max(1, len(ways))
            legs[key] = (builder.leg(ways) if ways else -1, length)
        leg, length = legs[key]
        if leg < 0:
            pathless += 1
            continue
        builder.flow([leg], row.sent, row.lost)
        if row.lat_mean_us is not None:
            latencies.append((leg, length, row.lat_mean_us, row.lat_std_us or 0.0))
    loss = builder.build()
    return Imported(loss, _slow(loss, latencies), tuple(ignored), pathless)


def _check(row: Row, line: int) -> None:
    if not 0 <= row.lost <= row.sent <= MAX_COUNT:
        raise RemoteProtocolError(f"line {line}: {row.lost} lost of {row.sent} sent")
    for value in (row.lat_mean_us, row.lat_std_us):
        if value is not None and not 0.0 <= value < math.inf:
            raise RemoteProtocolError(f"line {line}: a latency of {value} us")


def _ways(row: Row, beside: Mapping[str, set[str]], line: int) -> list[list[str]]:
    ways = [each.split("|") for each in row.path.split(";")] if row.path else []
    if not row.path and row.src in beside and row.dst in beside:
        ways = _shortest(beside, row.src, row.dst)
    if len(ways) > MAX_WAYS:
        raise RemoteProtocolError(f"line {line}: more than {MAX_WAYS} ways")
    made = []
    for way in ways:
        ids = [each.strip() for each in way]
        if not all(ids):
            raise RemoteProtocolError(f"line {line}: an empty id in path {'|'.join(way)!r}")
        if odd := next((each for each in ids if each.count(LINK) > 1), None):
            raise RemoteProtocolError(f"line {line}: {odd!r} is no link; write A{LINK}B")
        made.append(_crossed(ids))
    return made


def _crossed(ids: Sequence[str]) -> list[str]:
    """Return every component that a path crosses, once each: nodes, and the links between them."""
    crossed = dict.fromkeys(ids)
    crossed |= dict.fromkeys(
        f"{a}{LINK}{b}" for a, b in pairwise(ids) if LINK not in a and LINK not in b
    )
    for each in ids:
        if LINK in each:
            crossed |= dict.fromkeys(end for end in each.split(LINK) if end)
    return list(crossed)


def _shortest(beside: Mapping[str, set[str]], first: str, last: str) -> list[list[str]]:
    ways, seen = [[first]], {first}
    while ways and last not in seen:
        ways = [
            [*way, hop]
            for way in ways
            for hop in sorted(beside.get(way[-1], ()))
            if hop not in seen
        ]
        seen |= {way[-1] for way in ways}
        if len(ways) > MAX_WAYS:
            return ways
    return [way for way in ways if way[-1] == last]


def _slow(
    loss: Observations[str], latencies: Sequence[tuple[int, float, float, float]]
) -> Observations[str] | None:
    """Return flows with a latency as one probe each, lost where it is slow among its like."""
    if not latencies:
        return None
    legs, lengths, means, stds = (np.asarray(column) for column in zip(*latencies, strict=True))
    slow, judged = np.zeros((2, len(legs)), np.bool_)
    for length in np.unique(lengths):
        alike = np.flatnonzero(lengths == length)
        if len(alike) >= ALIKE:
            judged[alike] = True
            slow[alike] = _is_slow(means[alike]) | _is_slow(stds[alike])
    return Observations(
        loss.components,
        judged.astype(np.int64),
        slow.astype(np.int64),
        legs.astype(np.int64)[:, None],
        loss.first_alternative,
        loss.weight,
        loss.first_member,
        loss.members,
        np.ones(len(legs), np.int64),
        np.zeros(len(legs)),
        Arrived.nothing(len(loss.components)),
    )


def _is_slow(values_us: Floats) -> NDArray[np.bool_]:
    middle = float(np.median(values_us))
    scale = MAD_SCALE * float(np.median(np.abs(values_us - middle)))
    floor_us = max(middle * SLOW_FACTOR, middle + SLOW_US, middle + SLOW_SCALES * scale)
    slow: NDArray[np.bool_] = values_us > floor_us
    return slow
