# SPDX-License-Identifier: Apache-2.0
"""The folder with minutes and hours: each minute is written, hours are merged, the oldest go.

An hour is made of the files of its minutes, once a later one is written. So nothing of it is in
memory, and a restart loses nothing of it. Minutes of an hour that is over, and hours of a day, are
put together in a pack, one file after each minute that is written: so none takes long, and those of
an analyzer of before are put together by and by. The pieces go once their pack is there; whoever
finds both takes the pack.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from analyzer.config import History
from analyzer.history.blocks import Block, Table
from analyzer.history.files import (
    FORMAT,
    HISTORY,
    PACKED_FORMAT,
    TRIPS,
    Piece,
    Tier,
    What,
    due,
    excess,
    packable,
)
from analyzer.history.ledger import MINUTE_NS
from analyzer.store.listing import pieces_in, remove_if_empty
from analyzer.store.parquet import (
    GROUP_ROWS,
    HALF,
    MANY_GROUP_ROWS,
    NO_TABLES,
    Columns,
    Parquet,
    Values,
    names_of,
)
from analyzer.store.rows import (
    ALL,
    IN_TURN,
    MERGE,
    MERGE_TRIPS,
    MERGE_UNKNOWN,
    PACK,
    PACK_AGAIN,
    PART_ROWS,
    SPREADING,
    WRITE,
    counted,
    ranges,
)
from netagent.model.errors import CapabilityMissing, RemoteProtocolError

log = structlog.get_logger()

SECOND = 10**9
SPREAD_S = 86_400
"""Seconds for which histograms of minutes are kept. Chosen: their quantiles stay, and the hours'
histograms; they take more than all the rest of a minute, and add up tasks of the last day."""
AGAIN_S = 3600
"""Seconds after which a pack that the disk refused is tried again. Chosen: what it is made of is
there, and read, meanwhile."""
LABELS = {"netagent_history": str(FORMAT)}
PACKED_LABELS = {"netagent_history": str(PACKED_FORMAT)}
NEWEST = """
SELECT coalesce(max(start_ns), 0) FROM read_parquet($files) WHERE start_ns <= $now_ns
"""
WINDOWS = """
SELECT coalesce(sum(windows), 0) FROM (
    SELECT DISTINCT start_ns, windows FROM read_parquet($files))
"""


@dataclass(slots=True)
class Counts:
    """Numbers of files since the start."""

    written: int = 0
    damaged: int = 0
    """Files of minutes that could not be read when their hour was made."""


class Tiers:
    """The history of one analyzer, for the thread that writes it."""

    def __init__(self, database: str, keep: History) -> None:
        self._folder, self._keep = Path(database + HISTORY), keep
        self._sizes: dict[tuple[Tier, What], dict[int, int]] = _nothing()
        """Bytes by start."""
        self._packs: dict[tuple[Tier, What], dict[int, int]] = _nothing()
        """The same of packs."""
        self._put_off: dict[Piece, int] = {}
        """Until when packs that could not be made are not tried again, as the start of a minute."""
        self._damaged: set[Piece] = set()
        """What could not be read."""
        self._opened: Parquet | None = None
        self.counts = Counts()

    def begin(self, now_ns: int) -> int:
        """Look at what there is; return the instant until which minutes were written.

        Of a clock that was ahead there may be later ones than `now_ns`; they do not count. Raises
        OSError where the folder cannot be read.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for half in self._folder.glob(f"*/*/*{HALF}"):  # of a kill
            half.unlink(missing_ok=True)
        self._sizes, self._packs = _nothing(), _nothing()
        for piece, size in pieces_in(self._folder):
            self._beside(piece)[piece.start_ns] = size
        minutes = [each for each in self._all(Tier.MINUTE) if each.start_ns <= now_ns]
        newest = max(minutes, key=lambda each: each.newest_ns, default=None)
        return 0 if newest is None else self._written_ns(newest, now_ns) + MINUTE_NS

    def _written_ns(self, piece: Piece, now_ns: int) -> int:
        """Return the start of the newest minute in a file that is not after `now_ns`."""
        if not piece.packed:
            return piece.start_ns
        try:
            values = {"files": names_of([self._folder / piece.path]), "now_ns": now_ns}
            ((start_ns,),) = self._parquet.rows(NEWEST, values)
        except RemoteProtocolError:  # it is damaged
            return min(piece.newest_ns, now_ns - now_ns % MINUTE_NS)
        return int(start_ns)

    def put(self, block: Block) -> None:
        """Write a minute, and the hours that it shows to be over; delete what is too much.

        Raises CapabilityMissing where the disk refuses; what was written before it stays.
        """
        try:
            for what, table in ((What.PAIRS, block.pairs), (What.COMPONENTS, block.components)):
                self._write_minute(block, what, table)
                for start_ns in self._due(what, block.start_ns):
                    self._merge(start_ns, what)
            self._pack_one(block.start_ns)
        finally:
            self._trim(block.start_ns)

    def interrupt(self) -> None:
        """Let a merge under way in another thread end now."""
        if self._opened is not None:
            self._opened.interrupt()

    @property
    def _parquet(self) -> Parquet:
        if self._opened is None:
            self._opened = Parquet(self._folder / "spill")
        return self._opened

    def _beside(self, piece: Piece) -> dict[int, int]:
        """Return the bytes of all that are of its kind, by start."""
        return (self._packs if piece.packed else self._sizes)[piece.tier, piece.what]

    def _pieces(self, tier: Tier, *, packed: bool = False) -> list[Piece]:
        sizes = self._packs if packed else self._sizes
        return [Piece(tier, start, what, packed) for what in What for start in sizes[tier, what]]

    def _readable(self, tier: Tier, what: What) -> list[Piece]:
        """Return the pieces that can be read, and packs, in the order of time."""
        pieces = {Piece(tier, start, what) for start in self._sizes[tier, what]}
        packs = {Piece(tier, start, what, packed=True) for start in self._packs[tier, what]}
        return sorted((pieces | packs) - self._damaged)

    def _write_minute(self, block: Block, what: What, table: Table) -> None:
        values = {"start_ns": block.start_ns, "names": list(table.names)}
        columns = {**table.keys, **table.columns}
        piece = Piece(Tier.MINUTE, block.start_ns, what)
        many = len(table) > PART_ROWS
        self._write(piece, WRITE[what], values | {"windows": block.windows}, columns, many=many)
        if len(table.spread):
            piece = Piece(Tier.MINUTE, block.start_ns, TRIPS[what])
            self._write(piece, WRITE[piece.what], values, _entries(table), many=many)

    def _write(
        self,
        piece: Piece,
        query: str,
        values: Values,
        columns: Columns | None = None,
        *,
        many: bool = False,
    ) -> None:
        """Write a piece; `many` is whether it has more rows than PART_ROWS."""
        path = self._folder / piece.path
        tables = NO_TABLES if columns is None else {"columns": columns}
        labels = PACKED_LABELS if piece.packed else LABELS
        rows = MANY_GROUP_ROWS if piece.packed or many else GROUP_ROWS
        size = self._parquet.write(path, query, values, tables, labels, rows)
        self._beside(piece)[piece.start_ns] = size
        self.counts.written += 1

    def _due(self, what: What, written_ns: int) -> list[int]:
        minutes, hours = (self._readable(tier, what) for tier in (Tier.MINUTE, Tier.HOUR))
        made = (each.newest_ns for each in hours)
        return due((each.start_ns for each in minutes), made, written_ns)

    def _merge(self, start_ns: int, what: What) -> None:
        """Make an hour of those of its minutes that can be read."""
        self._of_whole(start_ns, TRIPS[what], self._merge_trips)
        self._of_whole(start_ns, what, self._merge_all)

    def _of_whole(
        self, start_ns: int, what: What, merge: Callable[[int, What, list[str]], None]
    ) -> None:
        paths = self._minutes(start_ns, what)
        try:
            if paths:
                merge(start_ns, what, names_of(paths))
        except RemoteProtocolError:
            whole = [path for path in paths if self._is_whole(path)]
            if whole:
                merge(start_ns, what, names_of(whole))

    def _merge_trips(self, start_ns: int, what: What, files: list[str]) -> None:
        values = {"start_ns": start_ns, "files": files}
        self._write_hour(Piece(Tier.HOUR, start_ns, what), MERGE_TRIPS[what], values)

    def _merge_all(self, start_ns: int, what: What, files: list[str]) -> None:
        ((windows,),) = self._parquet.rows(WINDOWS, {"files": files})
        values: dict[str, Any] = {"start_ns": start_ns, "windows": int(windows), "files": files}
        query = MERGE_UNKNOWN[what]
        trips = Piece(Tier.HOUR, start_ns, TRIPS[what])
        if start_ns in self._sizes[Tier.HOUR, trips.what]:
            values |= {"trips": names_of([self._folder / trips.path]), **SPREADING}
            query = MERGE[what]
        self._write_hour(Piece(Tier.HOUR, start_ns, what), query, values)

    def _write_hour(self, piece: Piece, query: str, values: dict[str, Any]) -> None:
        """Write an hour; where it has many rows, a range of names after the other."""
        newest = {"files": values["files"][-1:]}
        found = ranges(self._parquet.rows(counted(piece.what), newest))
        if len(found) == 1:
            self._write(piece, query, {**values, **ALL})
            return
        path = self._folder / piece.path
        parts = [path.with_name(f"{path.name}.{number}{HALF}") for number in range(len(found))]
        try:
            for part, within in zip(parts, found, strict=True):
                self._parquet.write(part, query, {**values, **within})
            self._write(piece, IN_TURN, {"files": names_of(parts)}, many=True)
        finally:
            for part in parts:
                part.unlink(missing_ok=True)

    def _minutes(self, start_ns: int, what: What) -> list[Path]:
        """Return the minutes of an hour: its pack, or each."""
        pack = Piece(Tier.MINUTE, start_ns, what, packed=True)
        known = [each for each in self._readable(Tier.MINUTE, what) if each.pack == pack]
        packed = [each for each in known if each.packed]
        return [self._folder / each.path for each in packed or known]

    # --- packs ----------------------------------------------------------------------------------

    def _pack_one(self, written_ns: int) -> None:
        """Make the newest pack that is due. Where the disk refuses, pieces stay, and are read."""
        pieces = {each for tier in Tier for each in self._pieces(tier)} - self._damaged
        packs = [each for tier in Tier for each in self._pieces(tier, packed=True)]
        for pack in packable(pieces, packs, written_ns):
            if self._put_off.get(pack, 0) > written_ns:
                continue
            try:
                self._pack(pack)
            except CapabilityMissing as error:
                self._put_off[pack] = written_ns + AGAIN_S * SECOND
                log.warning("history_not_packed", file=str(pack.path), error=str(error))
            return

    def _pack(self, pack: Piece) -> None:
        """Put pieces together; those that cannot be read stay where they are, and are named."""
        pieces = [
            each
            for each in self._readable(pack.tier, pack.what)
            if each.pack == pack and not each.packed
        ]
        try:
            self._write_pack(pack, pieces)
        except RemoteProtocolError:
            pieces = [each for each in pieces if self._is_whole(self._folder / each.path)]
            if pack in self._readable(pack.tier, pack.what):
                self._is_whole(self._folder / pack.path)
            if pieces:
                self._write_pack(pack, pieces)
        for each in pieces:
            self._drop(each)

    def _write_pack(self, pack: Piece, pieces: list[Piece]) -> None:
        files = names_of([self._folder / each.path for each in pieces])
        if pack not in self._readable(pack.tier, pack.what):
            self._write(pack, PACK[pack.what], {"files": files})
            return
        values = {
            "files": files, "packed": names_of([self._folder / pack.path]),
            "starts": [each.start_ns for each in pieces],
        }  # fmt: skip
        self._write(pack, PACK_AGAIN[pack.what], values)

    def _is_whole(self, path: Path) -> bool:
        if self._parquet.is_whole(path):
            return True
        piece = Piece.of(path.relative_to(self._folder))
        self._damaged |= {piece} if piece is not None else set()
        self.counts.damaged += 1
        log.warning("history_damaged", file=str(path))
        return False

    def _trim(self, newest_ns: int) -> None:
        keep = self._keep
        before_ns = newest_ns - SPREAD_S * SECOND
        for piece in self._all(Tier.MINUTE):
            if piece.what in TRIPS.values() and piece.newest_ns < before_ns:
                self._drop(piece)
        for tier, most, age_s in (
            (Tier.MINUTE, keep.minute_bytes, keep.minute_age_s),
            (Tier.HOUR, keep.hour_bytes, keep.hour_age_s),
        ):
            pieces: dict[int, list[Piece]] = {}  # a pack goes with the newest that it has
            for each in self._all(tier):
                pieces.setdefault(each.newest_ns, []).append(each)
            sizes = {
                at_ns: sum(self._beside(each)[each.start_ns] for each in some)
                for at_ns, some in pieces.items()
            }
            before_ns = newest_ns - age_s * SECOND
            for at_ns in excess(sizes, max_bytes=most, before_ns=before_ns):
                for each in pieces[at_ns]:
                    self._drop(each)

    def _all(self, tier: Tier) -> list[Piece]:
        return [*self._pieces(tier), *self._pieces(tier, packed=True)]

    def _drop(self, piece: Piece) -> None:
        self._damaged.discard(piece)
        self._put_off.pop(piece, None)
        if self._beside(piece).pop(piece.start_ns, None) is not None:
            path = self._folder / piece.path
            path.unlink(missing_ok=True)
            remove_if_empty(path.parent)


def _entries(table: Table) -> Columns:
    """Return the histograms of a table, one of their entries a row."""
    spread = table.spread
    keys = {name: places[spread.place] for name, places in table.keys.items()}
    return keys | {"place": spread.place, "bucket": spread.bucket, "many": spread.count}


def _nothing() -> dict[tuple[Tier, What], dict[int, int]]:
    return {(tier, what): {} for tier in Tier for what in What}
