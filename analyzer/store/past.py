# SPDX-License-Identifier: Apache-2.0
"""Reads minutes and hours: rows of a component or of pairs, in the order of time, page by page.

Files are read some at a time, until a page is full. One that is damaged is left out and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyzer.history.files import HISTORY, Tier, What
from analyzer.store.listing import damaged, files_between, readable, relisted
from analyzer.store.parquet import Parquet, names_of
from analyzer.store.rows import COLUMNS, KEYS, known, selected
from netagent.model.errors import RemoteProtocolError

FILES = 60
"""Files read at once. Chosen: an hour of minutes, which takes some tens of milliseconds."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows of a component, or of pairs with these ends."""

    tier: Tier
    since_ns: int
    until_ns: int
    """What begins before it, and ends after `since_ns`."""
    component: str | None = None
    source: str | None = None
    target: str | None = None
    endpoint: str | None = None
    """Either end."""

    @property
    def what(self) -> What:
        """Which files have it."""
        return What.PAIRS if self.component is None else What.COMPONENTS

    @property
    def first_ns(self) -> int:
        """Start of the first minute, or hour, of which a part is wanted."""
        return self.since_ns - self.since_ns % self.tier.width_ns

    @property
    def named(self) -> dict[str, str]:
        """What is named, by the names of parameters in `conditions`."""
        names = ("component", "source", "target", "endpoint")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def conditions(self) -> list[str]:
        """For which rows they hold is wanted; no two hold for one."""
        within = "start_ns >= $since_ns AND start_ns < $until_ns"
        both = [f"{name} = ${name}" for name in self.named if name != "endpoint"]
        ends = ["source = $endpoint", "target = $endpoint AND source <> $endpoint"]
        return [
            " AND ".join([within, *both, *each])
            for each in ([[end] for end in ends] if self.endpoint is not None else [[]])
        ]


@dataclass(frozen=True, slots=True)
class Place:
    """How far a page went: `rows` rows of what begins at `start_ns`."""

    start_ns: int
    rows: int

    def __str__(self) -> str:
        return f"{self.start_ns}.{self.rows}"

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Return the place that `str()` wrote as `text`; ValueError if it is none."""
        start, _, rows = text.partition(".")
        if not (start.isdecimal() and rows.isdecimal()):
            raise ValueError(f"{text!r} is no place in a history")
        return cls(int(start), int(rows))


@dataclass(slots=True)
class Page:
    """Some rows, each by the names of COLUMNS."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    following: Place | None = None
    """Where the next page begins; None where there is none."""
    damaged: int = 0
    """Files that could not be read."""


def page(database: str, wanted: Wanted, after: Place | None, limit: int) -> Page:
    """Return at most `limit` rows that come after a place. Raises CapabilityMissing."""
    begin = after or Place(0, 0)
    return relisted(lambda is_last: _page(database, wanted, begin, limit, is_last=is_last))


def _page(database: str, wanted: Wanted, begin: Place, limit: int, *, is_last: bool) -> Page:
    folder, found = Path(database + HISTORY), Page()
    since_ns = max(wanted.first_ns, begin.start_ns)
    files = files_between(folder, wanted.tier, wanted.what, since_ns, wanted.until_ns)
    if not files.paths:
        return found
    with Parquet(folder / "spill-of-questions") as parquet:
        for first in range(0, len(files.paths), FILES):
            paths = files.paths[first : first + FILES]
            reading = _Reading(parquet, wanted, begin, limit, is_last)
            reading.add(paths, found)
            if len(found.rows) > limit:
                found.rows.pop()
                found.following = _place(found.rows, begin)
                break
        found.damaged += damaged(parquet, files)
    return found


@dataclass(frozen=True, slots=True)
class _Reading:
    """A question, once files are listed."""

    parquet: Parquet
    wanted: Wanted
    begin: Place
    limit: int
    is_last: bool

    def add(self, paths: Sequence[Path], found: Page) -> None:
        """Add rows of some files, one more than the page has at most. Raises Moved."""
        wanted = self.wanted
        values: dict[str, Any] = wanted.named | {
            "files": names_of(paths), "until_ns": wanted.until_ns,
            "since_ns": max(wanted.first_ns, self.begin.start_ns),
            "limit": self.limit + 1 - len(found.rows),
            "skip": self.begin.rows if not found.rows else 0,
        }  # fmt: skip
        try:
            rows = self.parquet.rows(_query(wanted), values)
        except RemoteProtocolError:
            whole = readable(self.parquet, paths, is_last=self.is_last)
            if len(whole) == len(paths):
                raise
            found.damaged += len(paths) - len(whole)
            if whole:
                self.add(whole, found)
            return
        columns = COLUMNS[wanted.what]
        found.rows += [dict(zip(columns, row, strict=True)) for row in rows]


def _query(wanted: Wanted) -> str:
    columns = ", ".join(COLUMNS[wanted.what])
    table = selected(known("$files"), wanted.conditions)
    return f"""
SELECT {columns} FROM {table} ORDER BY start_ns, {KEYS[wanted.what]} LIMIT $limit OFFSET $skip
"""  # noqa: S608 - names of ours


def _place(rows: Sequence[dict[str, Any]], begin: Place) -> Place:
    start_ns = rows[-1]["start_ns"]
    count = sum(row["start_ns"] == start_ns for row in rows)
    return Place(start_ns, count + (begin.rows if start_ns == begin.start_ns else 0))
