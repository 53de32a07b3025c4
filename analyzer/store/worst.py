# SPDX-License-Identifier: Apache-2.0
"""Reads minutes and hours: which components lost most, and how much of a time was judged.

Of what is long ago there are hours; of the rest, which is no whole hour yet, minutes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from analyzer.history.files import HISTORY, Piece, Tier, What
from analyzer.store.parquet import Parquet, names_of
from analyzer.store.rows import known
from analyzer.store.tiers import pieces_between
from netagent.model.errors import RemoteProtocolError

log = structlog.get_logger()

LEAST_SENT = 1_000
"""Probes of a component below which its share is not told. Chosen: of fewer, one loss is a lot."""

LAST_NS = 1 << 62
"""Later than any."""

QUERY = f"""
SELECT component, sum(sent)::BIGINT, sum(lost)::BIGINT, max(rtt_p99_ns)
FROM {known("$files")}
WHERE start_ns >= $since_ns AND start_ns < $until_ns AND starts_with(component, $kind || ' ')
GROUP BY component HAVING sum(lost) > 0 AND sum(sent) >= $least
ORDER BY sum(lost) / sum(sent) DESC, component LIMIT $limit
"""  # noqa: S608 - names of ours
WINDOWS = """
SELECT coalesce(sum(windows), 0)::BIGINT FROM (
    SELECT max(windows) AS windows FROM read_parquet($files, union_by_name = true)
    WHERE start_ns >= $since_ns AND start_ns < $until_ns GROUP BY start_ns)
"""


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
    """Return when the oldest minute or hour began of which anything is kept; None: nothing is."""
    folder = Path(database + HISTORY)
    oldest = (next(pieces_between(folder, tier, 0, LAST_NS), None) for tier in Tier)
    return min((each.start_ns for each in oldest if each is not None), default=None)


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
    folder = Path(database + HISTORY)
    paths = [folder / piece.path for piece in _pieces(folder, since_ns, until_ns)]
    if not paths:
        return Worst()
    asked = {
        "kind": kind, "since_ns": since_ns, "until_ns": until_ns, "limit": limit,
        "least": LEAST_SENT, "settled_ns": until_ns if settled_ns is None else settled_ns,
    }  # fmt: skip
    with Parquet(folder / "spill-of-questions") as parquet:
        try:
            return _read(parquet, paths, asked, 0)
        except RemoteProtocolError:
            whole = [path for path in paths if parquet.is_whole(path)]
            damaged = sorted(str(path) for path in {*paths} - {*whole})
            if not damaged:
                raise
            log.warning("history_damaged", files=damaged)
            return _read(parquet, whole, asked, len(damaged))


def _pieces(folder: Path, since_ns: int, until_ns: int) -> list[Piece]:
    """Return hours, and the minutes that are in none of them."""
    hours, minutes = (
        [p for p in pieces_between(folder, tier, since_ns, until_ns) if p.what is What.COMPONENTS]
        for tier in (Tier.HOUR, Tier.MINUTE)
    )
    width_ns = Tier.HOUR.width_ns
    # The first hour may begin before the time that is asked for.
    merged = {each.start_ns for each in hours if each.start_ns >= since_ns}
    return [
        *(each for each in hours if each.start_ns in merged),
        *(each for each in minutes if each.start_ns - each.start_ns % width_ns not in merged),
    ]


def _read(parquet: Parquet, paths: Sequence[Path], asked: dict[str, Any], damaged: int) -> Worst:
    if not paths:
        return Worst(damaged=damaged)
    values = asked | {"files": names_of(paths)}
    settled_ns = values.pop("settled_ns")
    rows = parquet.rows(QUERY, values)
    times = {"files": values["files"], "since_ns": values["since_ns"], "until_ns": settled_ns}
    ((windows,),) = parquet.rows(WINDOWS, times)
    return Worst(tuple(Lossy(*row) for row in rows), int(windows), damaged)
