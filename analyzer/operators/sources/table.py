# SPDX-License-Identifier: Apache-2.0
"""Operators as a table: a row an operation, in columns that anybody can write.

`COLUMNS` says what they are. A door (`analyzer/store/operations.py`) reads CSV and Parquet into
`Table`; here it becomes a log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer.operators.log import NEVER, UNKNOWN, Group, GroupKind, Kind, Log, Place, State, log_of
from analyzer.operators.sources.names import kind_of
from netagent.model.errors import RemoteProtocolError

SOURCE = "import"
NEEDED = ("rank", "kind", "op", "start_us", "end_us")
OPTIONAL = ("step", "group", "peer", "microbatch", "bytes", "sequence", "dp", "pp", "tp", "ep")
TEXTS = ("kind", "op", "group")
TIMES = ("start_us", "end_us")
COLUMNS = (*NEEDED, *OPTIONAL)
AXES = ("dp", "pp", "tp", "ep")
KINDS = {kind.name.lower(): kind for kind in Kind}
MAX_RANK = 10_000_000
"""Largest rank. Chosen: a hundred times the largest job."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of words: of each row the place of its word, `UNKNOWN` for none."""

    place: Ints
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of one length; those of `OPTIONAL` may be missing."""

    numbers: Mapping[str, Ints]
    """`UNKNOWN` where a row has none."""
    times: Mapping[str, Floats]
    """Microseconds; NaN where a row has none."""
    texts: Mapping[str, Texts]

    def number(self, name: str) -> Ints:
        """Return a column of numbers."""
        return self.numbers.get(name, np.full(len(self.numbers["rank"]), UNKNOWN, np.int64))


def log(table: Table) -> Log:
    """Return the log in a table. Raises RemoteProtocolError for a rank or a kind that is none."""
    kind = _kinds(table.texts["kind"])
    rank = table.number("rank")
    if len(rank) and not (int(rank.min()) >= 0 and int(rank.max()) <= MAX_RANK):
        raise RemoteProtocolError(f"column rank: not all are 0 to {MAX_RANK}")
    started, ended = _nanoseconds(table.times["start_us"]), _nanoseconds(table.times["end_us"])
    order = np.lexsort((started, table.number("step"), rank))
    axes = {name: table.numbers[name] for name in AXES if name in table.numbers}
    group, groups = _groups(table, kind, axes)
    columns: dict[str, NDArray[Any]] = {
        "rank": rank, "kind": kind, "op": table.texts["op"].place, "group": group,
        "started_ns": started, "ended_ns": ended, "state": _states(started, ended),
        **{name: table.number(name) for name in ("step", "peer", "microbatch", "bytes")},
    }  # fmt: skip
    columns = {name: values[order] for name, values in columns.items()}
    if "sequence" in table.numbers:
        columns["sequence"] = table.numbers["sequence"][order]
    else:
        columns["sequence"] = _sequence(columns)
    seen = np.unique(rank)
    world = int(seen[-1]) + 1 if len(seen) else 0
    return log_of(
        columns,
        ops=table.texts["op"].words or ("",),
        groups=groups,
        places=_places(rank, axes),
        world=world,
        unseen=_unseen(seen, world),
        source=SOURCE,
        notes=tuple(_notes(columns)),
    )


def _unseen(seen: Ints, world: int) -> tuple[int, ...]:
    # By a mask, since two rows may name ten million ranks: a set of them takes half a minute.
    absent = np.ones(world, bool)
    absent[seen] = False
    return tuple(np.flatnonzero(absent).tolist())


def _kinds(texts: Texts) -> Ints:
    known = [KINDS.get(word.lower()) for word in texts.words]
    for word, kind in zip(texts.words, known, strict=True):
        if kind is None:
            raise RemoteProtocolError(f"column kind: {word[:40]!r} is none of {', '.join(KINDS)}")
    if (texts.place == UNKNOWN).any():
        raise RemoteProtocolError("column kind: some rows have none")
    return np.array([int(kind or 0) for kind in known] or [0])[texts.place]


def _nanoseconds(us: Floats) -> Ints:
    """Return times in nanoseconds; below a microsecond apart, as a double holds no more of days."""
    known = np.isfinite(us) & (np.abs(us) < 1e15 * 9)
    whole = np.floor(np.where(known, us, 0))
    made = whole.astype(np.int64) * 1000
    made += np.round((np.where(known, us, 0) - whole) * 1000).astype(np.int64)
    return np.where(known, made, NEVER)


def _states(started: Ints, ended: Ints) -> Ints:
    """Return how far each came. In a table without an end nobody says what is not over."""
    if not (ended != NEVER).any():
        return np.full(len(ended), State.UNKNOWN)
    begun = np.where(started != NEVER, int(State.STARTED), int(State.UNKNOWN))
    return np.where(ended != NEVER, int(State.ENDED), begun)


def _groups(table: Table, kind: Ints, axes: Mapping[str, Ints]) -> tuple[Ints, tuple[Group, ...]]:
    """Return each row's group, and the groups: who names one is in it.

    A group that is named after an axis alone, such as `tp`, is one for each place on the others.
    """
    texts = table.texts.get("group")
    if texts is None:
        return np.full(len(kind), UNKNOWN), ()
    rank, label = table.number("rank"), texts.place.copy()
    label[kind == Kind.COMPUTE] = UNKNOWN
    keys = [label]
    for name, column in axes.items():
        alone = [place for place, word in enumerate(texts.words) if word.lower() in AXES]
        other = [place for place in alone if texts.words[place].lower() != name]
        keys.append(np.where(np.isin(label, other), column, UNKNOWN))
    rows = np.flatnonzero(label != UNKNOWN)
    code = np.zeros(len(rows), np.int64)
    for key in keys:
        values, place = np.unique(key[rows], return_inverse=True)
        # As small as it can be after each column, so that it never overflows.
        _, code = np.unique(code * len(values) + place.reshape(-1), return_inverse=True)
        code = code.reshape(-1).astype(np.int64)
    group = np.full(len(label), UNKNOWN)
    group[rows] = code
    _, first = np.unique(code, return_index=True)
    unique = np.stack([key[rows[first]] for key in keys], axis=1)
    pairs = np.unique(code * (MAX_RANK + 1) + rank[rows])
    members = np.split(pairs % (MAX_RANK + 1), np.flatnonzero(np.diff(pairs // (MAX_RANK + 1))) + 1)
    made = []
    for key, ranks in zip(unique.tolist(), members, strict=bool(len(unique))):
        word = texts.words[key[0]]
        where = [f"{name}{place}" for name, place in zip(axes, key[1:], strict=True) if place >= 0]
        named = "/".join([word, *where])
        made.append(Group(named, _kind(word, ranks, axes, rank), tuple(ranks.tolist())))
    return group, tuple(made)


def _kind(word: str, members: Ints, axes: Mapping[str, Ints], rank: Ints) -> GroupKind:
    """Return what a group is for: as it is named, or the one axis that its members differ on."""
    named = kind_of(word)
    if named is not GroupKind.UNKNOWN or not axes:
        return named
    inside = np.isin(rank, members)
    differ = [name for name, column in axes.items() if len(np.unique(column[inside])) > 1]
    return GroupKind(differ[0]) if len(differ) == 1 else GroupKind.UNKNOWN


def _sequence(columns: Mapping[str, NDArray[Any]]) -> Ints:
    """Return the number of each operator among those of its rank that it could be taken for.

    Within a step collectives are counted by group, transfers by peer and direction; steps are as
    far apart as the longest, so that a rank which left one out in a step is not off in the next.
    """
    kind, rank = columns["kind"], columns["rank"]
    is_pair = (kind == Kind.SEND) | (kind == Kind.RECV)
    counts = is_pair & (columns["peer"] != UNKNOWN)
    counts |= (kind == Kind.COLLECTIVE) & (columns["group"] != UNKNOWN)
    rows = np.flatnonzero(counts)
    made = np.full(len(rank), UNKNOWN)
    if len(rows) == 0:
        return made
    with_whom = np.where(is_pair, columns["peer"], columns["group"])[rows]
    direction = np.where(is_pair, kind, 0)[rows]
    keys = (columns["step"][rows], with_whom, direction, rank[rows])
    order = np.lexsort(keys)
    changed = np.zeros(len(rows), bool)
    for key in keys:
        changed[1:] |= np.diff(key[order]) != 0
    begins = np.flatnonzero(changed | (np.arange(len(rows)) == 0))
    lengths = np.diff(np.append(begins, len(rows)))
    number = np.arange(len(rows)) - np.repeat(begins, lengths)
    step = columns["step"][rows][order].astype(np.int64)
    _, nth = np.unique(step, return_inverse=True)
    made[rows[order]] = nth.reshape(-1) * int(lengths.max()) + number
    return made


def _places(rank: Ints, axes: Mapping[str, Ints]) -> dict[int, Place]:
    if not axes:
        return {}
    ranks, first = np.unique(rank, return_index=True)
    columns = {name: column[first].tolist() for name, column in axes.items()}
    return {
        each: Place(**{name: column[number] for name, column in columns.items()})
        for number, each in enumerate(ranks.tolist())
    }


def _notes(columns: Mapping[str, NDArray[Any]]) -> Sequence[str]:
    notes = []
    kind = columns["kind"]
    loose = int(((kind == Kind.COLLECTIVE) & (columns["group"] == UNKNOWN)).sum())
    if loose:
        notes.append(f"{loose} collectives name no group: who took part in them is not known")
    alone = int((np.isin(kind, (Kind.SEND, Kind.RECV)) & (columns["peer"] == UNKNOWN)).sum())
    if alone:
        notes.append(f"{alone} transfers name no peer")
    known = (columns["started_ns"] != NEVER) & (columns["ended_ns"] != NEVER)
    if backwards := int((known & (columns["ended_ns"] < columns["started_ns"])).sum()):
        notes.append(f"{backwards} operations end before they begin: they count as no time")
    if len(kind) and not (columns["ended_ns"] != NEVER).any():
        notes.append("no operation has an end")
    return notes
