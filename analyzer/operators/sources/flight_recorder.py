# SPDX-License-Identifier: Apache-2.0
"""PyTorch's flight recorder: the dumps of a job's ranks as one log."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analyzer.operators.log import UNKNOWN, Group, GroupKind, Kind, Log, Place, State, log_of
from analyzer.operators.sources.dump import COUNTED, Dump, Entry
from analyzer.operators.sources.names import host_of, kind_of, ranks_of
from netagent.model.errors import RemoteProtocolError

SOURCE = "flight-recorder"
MAX_ROWS = 50_000_000
"""Most operators of a log. Chosen: some 4 GB of columns."""

_ONE_SIDED = frozenset({"broadcast", "reduce", "gather", "scatter"})
"""Operations that may end at one rank before another has come to them."""

Key = tuple[str, tuple[int, ...]]
"""A group: its name, and its ranks where they are known."""


@dataclass(frozen=True, slots=True)
class _Mapped:
    """An entry beside its rank and its group."""

    rank: int
    group: int
    """Number of its key: to look for a key itself takes as long as it has ranks."""
    entry: Entry
    ordinal: int
    """Number among all that its rank sent to, or received from, this peer; or `UNKNOWN`."""


def log(files: Mapping[str, Dump]) -> Log:
    """Return the log in dumps by their files' names.

    Raises RemoteProtocolError where it is not clear whose one is, and beyond `MAX_ROWS`.
    """
    dumps = _by_rank(files)
    hosts = {rank: host_of(name) for rank, name in zip(dumps, files, strict=True)}
    groups = _Groups(dumps)
    rows = [row for rank in sorted(dumps) for row in _mapped(rank, dumps[rank], groups)]
    given_up = _give_up(rows, dumps, groups)
    if len(rows) > MAX_ROWS:
        raise RemoteProtocolError(f"{len(rows)} operators, more than {MAX_ROWS}")
    seen = set(dumps) | {rank for _, members in groups.keys for rank in members}
    world = max(seen, default=-1) + 1
    return _log(
        rows,
        groups,
        places={rank: Place(host=hosts[rank]) for rank in sorted(dumps) if hosts[rank]},
        world=world,
        silent=tuple(rank for rank in sorted(dumps) if not dumps[rank].entries),
        unseen=tuple(rank for rank in range(world) if rank not in dumps),
        source=SOURCE,
        at_rest=all(dump.pickled for dump in dumps.values()) and not groups.guessed,
        overdue=sum(row.entry.timed_out for row in rows) + given_up,
        notes=tuple(_notes(dumps, groups)),
    )


def _by_rank(named: Mapping[str, Dump]) -> dict[int, Dump]:
    """Return dumps by rank: as they say it themselves, or as their files' names do."""
    said = [dump.rank for dump in named.values()]
    known = [rank for rank in said if rank is not None]
    if len(set(known)) < len(named):
        names = list(named)
        by_name = ranks_of(names)
        if by_name is None:
            shown = ", ".join(names[:3])
            raise RemoteProtocolError(f"no rank of its own in each file's name: {shown}")
        known = by_name
    return dict(zip(known, named.values(), strict=True))


class _Groups:
    """Which group an entry of a rank is of: names are told apart by their ranks."""

    def __init__(self, dumps: Mapping[int, Dump]) -> None:
        self._own = {rank: dump.members for rank, dump in dumps.items()}
        self._others: dict[str, set[tuple[int, ...]]] = {}
        for members in self._own.values():
            for name, ranks in members.items():
                self._others.setdefault(name, set()).add(ranks)
        self._everybody = tuple(range(max(dumps, default=-1) + 1))  # ranks are counted from 0
        self.keys: dict[Key, str] = {}
        """Descriptions of those in use, and of those that hold a rank without a dump."""
        self.guessed: set[str] = set()
        for name, many in self._others.items():
            for ranks in many:
                self.keys[name, ranks] = ""
        self.ranks: list[tuple[int, ...]] = []
        """Of each number."""
        self._number: dict[Key, int] = {}
        self._known: dict[tuple[int, tuple[str, str]], int] = {}

    def number(self, rank: int, entry: Entry) -> int:
        """Return the number of the group of an entry of a rank."""
        asked = rank, entry.group
        if asked not in self._known:
            self._known[asked] = self._new(rank, *entry.group)
        return self._known[asked]

    def _new(self, rank: int, name: str, description: str) -> int:
        key = (name, self._ranks(rank, name, description))
        if not self.keys.get(key):
            self.keys[key] = description
        if key not in self._number:
            self._number[key] = len(self.ranks)
            self.ranks.append(key[1])
        return self._number[key]

    def _ranks(self, rank: int, name: str, description: str) -> tuple[int, ...]:
        if not name or name.startswith(COUNTED):
            self.guessed.add(COUNTED)
            return (rank,)  # nobody knows whose else it is
        if own := self._own[rank].get(name):
            return own
        for ranks in self._others.get(name, ()):
            if rank in ranks:
                return ranks
        self.guessed.add(name)
        is_whole = name == "0" or kind_of(description or name) is GroupKind.WORLD
        return self._everybody if is_whole else ()

    def listed(self) -> tuple[list[int], tuple[Group, ...]]:
        """Return the place of each number, and groups with names that are unique."""
        keys = list(self.keys)
        names = [_label(key, self.keys[key], 0) for key in keys]
        for more in (1, 2):
            counts = Counter(names)
            names = [
                _label(key, self.keys[key], more) if counts[name] > 1 else name
                for key, name in zip(keys, names, strict=True)
            ]
        place = {key: at for at, key in enumerate(keys)}
        return [place[key] for key in self._number], tuple(
            Group(name, kind_of(self.keys[key] or key[0]), key[1])
            for key, name in zip(keys, names, strict=True)
        )


def _label(key: Key, description: str, more: int) -> str:
    name, ranks = key
    plain = description if description and description != "undefined" else name
    if more == 0:
        return plain or "?"
    plain = f"{name}:{plain}"
    return plain if more == 1 else f"{plain}@{ranks[0] if ranks else '?'}+{len(ranks)}"


def _mapped(rank: int, dump: Dump, groups: _Groups) -> list[_Mapped]:
    rows = []
    counts: dict[tuple[int, int, Kind], int] = {}
    for entry in dump.entries:
        group, ordinal = groups.number(rank, entry), UNKNOWN
        entry.peer = _rank_at(entry.peer, groups.ranks[group])
        if entry.kind in (Kind.SEND, Kind.RECV) and dump.whole:
            ordinal = counts.get((group, entry.peer, entry.kind), 0)
            counts[group, entry.peer, entry.kind] = ordinal + 1
        rows.append(_Mapped(rank, group, entry, ordinal))
    return rows


def _give_up(rows: Sequence[_Mapped], dumps: Mapping[int, Dump], groups: _Groups) -> int:
    """Take back the end of what cannot have ended; return how many operators that are.

    gloo says of what it gave up as of what ended. What all must take part in did not end where one
    has not come to it, nor, as the last one, where ranks of its group did different things.
    """
    doubted = [row for row in rows if not row.entry.sure and row.entry.kind is Kind.COLLECTIVE]
    reached: dict[int, dict[int, tuple[int, str]]] = {}
    for row in doubted:
        reached.setdefault(row.group, {})[row.rank] = (row.entry.sequence, row.entry.op)
    ends = {}
    for group, last in reached.items():
        members = [each for each in groups.ranks[group] or last if each in dumps]
        least = min(last.get(each, (UNKNOWN, ""))[0] for each in members)
        together = len({at for at, _ in last.values()}) == 1
        ends[group] = least, together and len({op for _, op in last.values()}) > 1
    given_up = [row for row in doubted if _is_given_up(row.entry, *ends[row.group])]
    for row in given_up:
        row.entry.state = State.STARTED
    return len(given_up)


def _is_given_up(entry: Entry, least: int, odd: bool) -> bool:  # noqa: FBT001
    late = entry.sequence > least and entry.op not in _ONE_SIDED
    return late or (odd and entry.sequence == least)


def _rank_at(place: int, ranks: Sequence[int]) -> int:
    """Return the rank at a place in a group; the place itself where its ranks are not known."""
    if not ranks or place == UNKNOWN:
        return place
    return ranks[place] if place < len(ranks) else UNKNOWN


def _log(rows: Sequence[_Mapped], groups: _Groups, **rest: Any) -> Log:
    places, listed = groups.listed()
    ops = _ops(rows)
    names = tuple(dict.fromkeys(ops))
    numbers = {name: number for number, name in enumerate(names)}
    entries = [row.entry for row in rows]
    is_pair = [entry.kind in (Kind.SEND, Kind.RECV) for entry in entries]
    columns: dict[str, Sequence[int]] = {
        "rank": [row.rank for row in rows],
        "kind": [entry.kind for entry in entries],
        "op": [numbers[op] for op in ops],
        "group": [places[row.group] for row in rows],
        "peer": [entry.peer for entry in entries],
        "bytes": [entry.bytes for entry in entries],
        "sequence": [
            row.ordinal if pair else row.entry.sequence
            for row, pair in zip(rows, is_pair, strict=True)
        ],
        "enqueued_ns": [entry.enqueued_ns for entry in entries],
        "started_ns": [entry.started_ns for entry in entries],
        "ended_ns": [entry.ended_ns for entry in entries],
        "state": [entry.state for entry in entries],
    }
    return log_of(columns, ops=names or ("",), groups=listed, **rest)


def _ops(rows: Sequence[_Mapped]) -> list[str]:
    """Return the name of each row's operation.

    A log has no column for types and shapes; where ranks of one collective differ in them and not
    in their operation, each name says its own.
    """
    said: dict[tuple[int, int, str], set[str]] = {}
    for row in rows:
        if row.entry.signature:
            key = (row.group, row.entry.sequence, row.entry.op)
            said.setdefault(key, set()).add(row.entry.signature)
    return [
        f"{row.entry.op} of {row.entry.signature}"
        if len(said.get((row.group, row.entry.sequence, row.entry.op), ())) > 1
        else row.entry.op
        for row in rows
    ]


def _notes(dumps: Mapping[int, Dump], groups: _Groups) -> Iterator[str]:
    if left_out := sum(dump.left_out for dump in dumps.values()):
        yield f"{left_out} entries name no operation and were left out"
    cut = sum(not dump.whole for dump in dumps.values())
    if cut:
        yield f"the oldest entries of {cut} of {len(dumps)} ranks have fallen off their rings"
    if groups.guessed:
        some = ", ".join(sorted(groups.guessed)[:4])
        yield (
            f"the dumps do not say who is in {len(groups.guessed)} groups ({some}):"
            " members are those seen in them"
        )
    versions = {dump.version for dump in dumps.values()}
    if len(versions) > 1:
        yield f"dumps are of {len(versions)} versions: {', '.join(sorted(versions))}"
