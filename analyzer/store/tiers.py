# SPDX-License-Identifier: Apache-2.0
"""The folder with minutes and hours: each minute is written, hours are merged, the oldest go.

An hour is made of the files of its minutes, once a later one is written. So nothing of it is in
memory, and a restart loses nothing of it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from analyzer.config import History
from analyzer.history.blocks import Block, Table
from analyzer.history.files import FORMAT, HISTORY, TRIPS, Piece, Tier, What, due, excess
from analyzer.store.parquet import HALF, NO_TABLES, Columns, Parquet, Values, names_of
from analyzer.store.rows import MERGE, MERGE_TRIPS, MERGE_UNKNOWN, SPREADING, WRITE
from netagent.model.errors import RemoteProtocolError

log = structlog.get_logger()

SECOND = 10**9
SPREAD_S = 86_400
"""Seconds for which histograms of minutes are kept. Chosen: their quantiles stay, and the hours'
histograms; they take more than all the rest of a minute, and add up tasks of the last day."""
LABELS = {"netagent_history": str(FORMAT)}
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
        self._sizes = _nothing()
        for piece, size in pieces_in(self._folder):
            self._sizes[piece.tier, piece.what][piece.start_ns] = size
        minutes = (start for what in What for start in self._sizes[Tier.MINUTE, what])
        known = [each for each in minutes if each <= now_ns]
        return max(known, default=-Tier.MINUTE.width_ns) + Tier.MINUTE.width_ns

    def put(self, block: Block) -> None:
        """Write a minute, and the hours that it shows to be over; delete what is too much.

        Raises CapabilityMissing where the disk refuses; what was written before it stays.
        """
        try:
            for what, table in ((What.PAIRS, block.pairs), (What.COMPONENTS, block.components)):
                self._write_minute(block, what, table)
                for start_ns in self._due(what, block.start_ns):
                    self._merge(start_ns, what)
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

    def _starts(self, tier: Tier, what: What) -> set[int]:
        """Return the starts of what can be read."""
        damaged = {p.start_ns for p in self._damaged if p.tier is tier and p.what is what}
        return self._sizes[tier, what].keys() - damaged

    def _write_minute(self, block: Block, what: What, table: Table) -> None:
        values = {"start_ns": block.start_ns, "names": list(table.names)}
        columns = {**table.keys, **table.columns}
        piece = Piece(Tier.MINUTE, block.start_ns, what)
        self._write(piece, WRITE[what], values | {"windows": block.windows}, columns)
        if len(table.spread):
            piece = Piece(Tier.MINUTE, block.start_ns, TRIPS[what])
            self._write(piece, WRITE[piece.what], values, _entries(table))

    def _write(
        self, piece: Piece, query: str, values: Values, columns: Columns | None = None
    ) -> None:
        path = self._folder / piece.path
        tables = NO_TABLES if columns is None else {"columns": columns}
        size = self._parquet.write(path, query, values, tables, LABELS)
        self._sizes[piece.tier, piece.what][piece.start_ns] = size
        self.counts.written += 1

    def _due(self, what: What, written_ns: int) -> list[int]:
        hours = self._starts(Tier.HOUR, what)
        return due(self._starts(Tier.MINUTE, what), hours, written_ns)

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
        self._write(Piece(Tier.HOUR, start_ns, what), MERGE_TRIPS[what], values)

    def _merge_all(self, start_ns: int, what: What, files: list[str]) -> None:
        ((windows,),) = self._parquet.rows(WINDOWS, {"files": files})
        values: dict[str, Any] = {"start_ns": start_ns, "windows": int(windows), "files": files}
        query = MERGE_UNKNOWN[what]
        trips = Piece(Tier.HOUR, start_ns, TRIPS[what])
        if start_ns in self._sizes[Tier.HOUR, trips.what]:
            values |= {"trips": names_of([self._folder / trips.path]), **SPREADING}
            query = MERGE[what]
        self._write(Piece(Tier.HOUR, start_ns, what), query, values)

    def _minutes(self, start_ns: int, what: What) -> list[Path]:
        until_ns = start_ns + Tier.HOUR.width_ns
        mine = self._starts(Tier.MINUTE, what)
        starts = sorted(each for each in mine if start_ns <= each < until_ns)
        return [self._folder / Piece(Tier.MINUTE, each, what).path for each in starts]

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
        for what in TRIPS.values():
            before_ns = newest_ns - SPREAD_S * SECOND
            for start_ns in [each for each in self._sizes[Tier.MINUTE, what] if each < before_ns]:
                self._drop(Piece(Tier.MINUTE, start_ns, what))
        for tier, most, age_s in (
            (Tier.MINUTE, keep.minute_bytes, keep.minute_age_s),
            (Tier.HOUR, keep.hour_bytes, keep.hour_age_s),
        ):
            sizes: dict[int, int] = {}
            for what in What:
                for start_ns, size in self._sizes[tier, what].items():
                    sizes[start_ns] = sizes.get(start_ns, 0) + size
            before_ns = newest_ns - age_s * SECOND
            for start_ns in excess(sizes, max_bytes=most, before_ns=before_ns):
                for what in What:
                    self._drop(Piece(tier, start_ns, what))

    def _drop(self, piece: Piece) -> None:
        self._damaged.discard(piece)
        if self._sizes[piece.tier, piece.what].pop(piece.start_ns, None) is not None:
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


def pieces_in(folder: Path) -> Iterator[tuple[Piece, int]]:
    """Yield what a folder of a history holds, with its bytes."""
    for path in folder.glob("*/*/*"):
        piece = Piece.of(path.relative_to(folder))
        if piece is not None:
            yield piece, path.stat().st_size


def pieces_between(folder: Path, tier: Tier, since_ns: int, until_ns: int) -> Iterator[Piece]:
    """Yield what a folder has of a tier that ends after `since_ns` and begins before `until_ns`.

    It is in the order of time.
    """
    first_ns = since_ns - since_ns % tier.width_ns
    first, last = (Piece(tier, at_ns, What.PAIRS).path.parts[1] for at_ns in (first_ns, until_ns))
    for day in sorted(folder.glob(f"{tier}/*")):
        for path in sorted(day.iterdir()) if first <= day.name <= last else ():
            piece = Piece.of(path.relative_to(folder))
            if piece is not None and first_ns <= piece.start_ns < until_ns:
                yield piece


def remove_if_empty(folder: Path) -> None:
    """Delete the folder of a day of which nothing is left."""
    if not any(folder.iterdir()):
        folder.rmdir()
