# SPDX-License-Identifier: Apache-2.0
"""Reads minutes and hours: which components lost most, and how much of a time was judged.

Of what is long ago there are hours; of the rest, which is no whole hour yet, minutes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.history.files import HISTORY, Piece, Tier, What, hour_of
from analyzer.store.listing import (
    Files,
    damaged,
    pieces_between,
    readable,
    relisted,
    whole_pieces,
)
from analyzer.store.parquet import Parquet, names_of
from analyzer.store.rows import known
from netagent.model.errors import RemoteProtocolError

LEAST_SENT = 1_000
"""Probes of a component below which its share is not told. Chosen: of fewer, one loss is a lot."""

LAST_NS = 1 << 62
"""Later than any."""

QUERY = f"""
SELECT component, sum(sent)::BIGINT, sum(lost)::BIGINT, max(rtt_p99_ns)
FROM {known("$files")}
WHERE start_ns >= $since_ns AND start_ns < $until_ns
    AND component >= $kind || ' ' AND component < $kind || '!'
GROUP BY component HAVING sum(lost) > 0 AND sum(sent) >= $least
ORDER BY sum(lost) / sum(sent) DESC, component LIMIT $limit
"""  # noqa: S608 - names of ours
WINDOWS = """
SELECT coalesce(sum(windows), 0)::BIGINT FROM (
    SELECT max(windows) AS windows FROM read_parquet($files, union_by_name = true)
    WHERE start_ns >= $since_ns AND start_ns < $until_ns GROUP BY start_ns)
"""
OLDEST = "SELECT min(start_ns) FROM read_parquet($files)"


@dataclass(frozen=True, slots=True)
class Lossy:
    """A component that lost probes."""

    component: str
    sent: int
    lost: int
    rtt_p99_ns: int | None = None
    """The longest that an hour has, or a minute of those that are in none; None: not known."""


@dataclass(frozen=True, slots=True)
class Worst:
    """The components that lost the largest share, and how many windows were judged."""

    lossy: tuple[Lossy, ...] = ()
    windows: int = 0
    damaged: int = 0
    """Files that could not be read."""


def first_ns(database: str) -> int | None:
    """Return when the oldest minute or hour began of which anything is kept; None: nothing is.

    Of an hour whose minutes are kept too, the first of them. Raises CapabilityMissing.
    """
    return relisted(lambda is_last: _first_ns(Path(database + HISTORY), is_last=is_last))


def _first_ns(folder: Path, *, is_last: bool) -> int | None:
    starts = dict[Tier, int]()
    for tier in Tier:
        oldest = next(pieces_between(folder, tier, 0, LAST_NS), None)
        if oldest is not None:
            known_ns = _oldest_row_ns(folder, oldest, is_last=is_last) if oldest.packed else None
            starts[tier] = oldest.start_ns if known_ns is None else known_ns
    minute_ns = starts.get(Tier.MINUTE)
    if minute_ns is not None and hour_of(minute_ns) == starts.get(Tier.HOUR):
        return minute_ns  # nothing was judged in that hour before it
    return min(starts.values(), default=None)


def _oldest_row_ns(folder: Path, pack: Piece, *, is_last: bool) -> int | None:
    path = folder / pack.path
    with Parquet(folder / "spill-of-questions") as parquet:
        try:
            ((start_ns,),) = parquet.rows(OLDEST, {"files": names_of([path])})
        except RemoteProtocolError:
            readable(parquet, [path], is_last=is_last)
            return None
    return None if start_ns is None else int(start_ns)


def worst(
    database: str,
    kind: str,
    since_ns: int,
    until_ns: int,
    limit: int,
    *,
    settled_ns: int | None = None,
) -> Worst:
    """Return at most `limit` components of a kind that lost most. Raises CapabilityMissing.

    Windows are counted until `settled_ns`, since the newest minutes are not written yet.
    """
    asked = {
        "kind": kind, "since_ns": since_ns, "until_ns": until_ns, "limit": limit,
        "least": LEAST_SENT, "settled_ns": until_ns if settled_ns is None else settled_ns,
    }  # fmt: skip
    return relisted(lambda is_last: _worst(Path(database + HISTORY), asked, is_last=is_last))


def _worst(folder: Path, asked: dict[str, Any], *, is_last: bool) -> Worst:
    files = _files(folder, asked["since_ns"], asked["until_ns"])
    if not files.paths:
        return Worst()
    with Parquet(folder / "spill-of-questions") as parquet:
        left = damaged(parquet, files)
        try:
            return _read(parquet, files.paths, asked, left)
        except RemoteProtocolError:
            whole = readable(parquet, files.paths, is_last=is_last)
            if len(whole) == len(files.paths):
                raise
            return _read(parquet, whole, asked, left + len(files.paths) - len(whole))


def _files(folder: Path, since_ns: int, until_ns: int) -> Files:
    """Return hours, and the minutes that are in none of them."""
    (hours, left), (minutes, others) = (
        _counting(folder, tier, since_ns, until_ns) for tier in (Tier.HOUR, Tier.MINUTE)
    )
    known = set(hours)

    def is_merged(start_ns: int) -> bool:
        """Return whether the hour that begins then is counted as one."""
        hour = Piece(Tier.HOUR, start_ns, What.COMPONENTS)
        # The first hour may begin before the time that is asked for.
        return start_ns >= since_ns and (hour in known or hour.pack in known)

    count = [
        *(each for each in hours if each.packed or each.start_ns >= since_ns),
        *(each for each in minutes if not is_merged(hour_of(each.start_ns))),
    ]
    return Files(*(tuple(folder / each.path for each in some) for some in (count, left + others)))


def _counting(
    folder: Path, tier: Tier, since_ns: int, until_ns: int
) -> tuple[list[Piece], list[Piece]]:
    found = pieces_between(folder, tier, since_ns, until_ns)
    return whole_pieces([each for each in found if each.what is What.COMPONENTS])


def _read(parquet: Parquet, paths: Sequence[Path], asked: dict[str, Any], left: int) -> Worst:
    if not paths:
        return Worst(damaged=left)
    values = asked | {"files": names_of(paths)}
    settled_ns = values.pop("settled_ns")
    rows = parquet.rows(QUERY, values)
    times = {"files": values["files"], "since_ns": values["since_ns"], "until_ns": settled_ns}
    ((windows,),) = parquet.rows(WINDOWS, times)
    return Worst(tuple(Lossy(*row) for row in rows), int(windows), left)
