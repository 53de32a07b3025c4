# SPDX-License-Identifier: Apache-2.0
"""Reads minutes and hours: rows of a component or of pairs, in the order of time, page by page.

Files are read some at a time, until a page is full. One that is damaged, or was deleted meanwhile,
is left out and counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from analyzer.history.files import HISTORY, Tier, What
from analyzer.history.spread import SHARES
from analyzer.store.parquet import Parquet, names_of
from analyzer.store.rows import known
from analyzer.store.tiers import pieces_between
from netagent.model.errors import RemoteProtocolError

log = structlog.get_logger()

FILES = 60
"""Files read at once. Chosen: an hour of minutes, which takes some tens of milliseconds."""

COLUMNS: Mapping[What, tuple[str, ...]] = {
    What.PAIRS: (
        "start_ns", "windows", "source", "target", "sent", "lost", "refused", "rtt_count",
        "rtt_min_ns", "rtt_mean_ns", "rtt_max_ns", *SHARES,
    ),
    What.COMPONENTS: (
        "start_ns", "windows", "component", "sent", "lost", "refused", "rtt_count", "rtt_mean_ns",
        *SHARES,
    ),
}  # fmt: skip
OF_PAIRS = """start_ns >= $since_ns
    AND ($source::VARCHAR IS NULL OR source = $source)
    AND ($target::VARCHAR IS NULL OR target = $target)
    AND ($endpoint::VARCHAR IS NULL OR source = $endpoint OR target = $endpoint)"""
QUERIES: Mapping[What, str] = {
    What.PAIRS: f"""
SELECT {", ".join(COLUMNS[What.PAIRS])} FROM {known("$files")} WHERE {OF_PAIRS}
ORDER BY start_ns, source, target LIMIT $limit OFFSET $skip
""",  # noqa: S608 - names of ours
    What.COMPONENTS: f"""
SELECT {", ".join(COLUMNS[What.COMPONENTS])} FROM {known("$files")}
WHERE start_ns >= $since_ns AND component = $component
ORDER BY start_ns LIMIT $limit OFFSET $skip
""",  # noqa: S608 - likewise
}


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
    folder, found = Path(database + HISTORY), Page()
    begin = after or Place(0, 0)
    since_ns = max(wanted.since_ns, begin.start_ns)
    pieces = pieces_between(folder, wanted.tier, since_ns, wanted.until_ns)
    paths = [folder / piece.path for piece in pieces if piece.what is wanted.what]
    if not paths:
        return found
    with Parquet(folder / "spill-of-questions") as parquet:
        for first in range(0, len(paths), FILES):
            _read(parquet, paths[first : first + FILES], wanted, begin, limit, found)
            if len(found.rows) > limit:
                found.rows.pop()
                found.following = _place(found.rows, begin)
                break
    return found


def _read(
    parquet: Parquet, paths: Sequence[Path], wanted: Wanted, begin: Place, limit: int, found: Page
) -> None:
    """Add rows of some files, one more than the page has at most."""
    skip = begin.rows if not found.rows else 0
    values = {
        "files": names_of(paths), "since_ns": begin.start_ns,
        "limit": limit + 1 - len(found.rows), "skip": skip,
    }  # fmt: skip
    names = ("component",) if wanted.what is What.COMPONENTS else ("source", "target", "endpoint")
    values |= {name: getattr(wanted, name) for name in names}
    try:
        rows = parquet.rows(QUERIES[wanted.what], values)
    except RemoteProtocolError:
        whole = [path for path in paths if parquet.is_whole(path)]
        if len(whole) == len(paths):
            raise
        found.damaged += len(paths) - len(whole)
        log.warning("history_damaged", files=sorted(str(p) for p in {*paths} - {*whole}))
        if whole:
            _read(parquet, whole, wanted, begin, limit, found)
        return
    columns = COLUMNS[wanted.what]
    found.rows += [dict(zip(columns, row, strict=True)) for row in rows]


def _place(rows: Sequence[dict[str, Any]], begin: Place) -> Place:
    start_ns = rows[-1]["start_ns"]
    count = sum(row["start_ns"] == start_ns for row in rows)
    return Place(start_ns, count + (begin.rows if start_ns == begin.start_ns else 0))
