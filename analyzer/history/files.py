# SPDX-License-Identifier: Apache-2.0
"""Names of the files that history is kept in, and which of them are due or too many. Pure.

``minute/2026-11-26/0415.pairs.parquet`` is the minute from 04:15 UTC by pair; an hour is
``hour/2026-11-26/04.components.parquet``. In the order of their names they are in that of time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import PurePath

SECOND = 10**9
SUFFIX = ".parquet"
HISTORY = ".history"
"""Suffix of the folder, beside the database."""
FORMAT = 2
"""Version of the columns. Of what 1 wrote, which says no version, it is not known how round trips
are spread; all other columns are the same."""


class Tier(StrEnum):
    """How long the time is that one row stands for."""

    MINUTE = "minute"
    HOUR = "hour"

    @property
    def width_ns(self) -> int:
        """Nanoseconds of it."""
        return (60 if self is Tier.MINUTE else 3600) * SECOND


class What(StrEnum):
    """What the rows of a file are of."""

    PAIRS = "pairs"
    COMPONENTS = "components"
    PAIR_TRIPS = "pair_trips"
    COMPONENT_TRIPS = "component_trips"


TRIPS: Mapping[What, What] = {
    What.PAIRS: What.PAIR_TRIPS,
    What.COMPONENTS: What.COMPONENT_TRIPS,
}
"""How the round trips of which are spread."""

FORMS: Mapping[Tier, str] = {Tier.MINUTE: "%H%M", Tier.HOUR: "%H"}


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """What one file holds."""

    tier: Tier
    start_ns: int
    what: What

    @property
    def path(self) -> PurePath:
        """Where it is, in the folder of the history."""
        at = datetime.fromtimestamp(self.start_ns // SECOND, UTC)
        name = f"{at.strftime(FORMS[self.tier])}.{self.what}{SUFFIX}"
        return PurePath(self.tier) / at.strftime("%Y-%m-%d") / name

    @classmethod
    def of(cls, path: PurePath) -> "Piece | None":
        """Return what a file of this path holds; None if it is none of ours."""
        try:
            tier, day, name = path.parts
            time, what, suffix = name.split(".")
            form = f"%Y-%m-%d {FORMS[Tier(tier)]}"
            at = datetime.strptime(f"{day} {time}", form).replace(tzinfo=UTC)
            piece = cls(Tier(tier), int(at.timestamp()) * SECOND, What(what))
        except (KeyError, ValueError):
            return None
        return piece if suffix == SUFFIX[1:] and piece.path == path else None


def hour_of(start_ns: int) -> int:
    """Return the start of the hour that a minute is in."""
    return start_ns - start_ns % Tier.HOUR.width_ns


def due(minutes: Iterable[int], hours: Iterable[int], written_ns: int) -> list[int]:
    """Return the hours that are to be made of minutes, oldest first.

    That are those before the hour of the minute that begins at `written_ns`, and after the newest
    hour there is: an hour that was deleted is not made again of minutes that were not.
    """
    newest = max((each for each in hours if each <= written_ns), default=-1)
    found = {hour_of(each) for each in minutes}
    return sorted(each for each in found if newest < each < hour_of(written_ns))


def excess(sizes: Mapping[int, int], *, max_bytes: int, before_ns: int) -> Sequence[int]:
    """Return the starts of what is to be deleted, oldest first.

    `sizes` are bytes by start. What began before `before_ns` goes, and of the rest the oldest
    until all are `max_bytes` at most; the newest one stays.
    """
    total, gone = sum(sizes.values()), list[int]()
    for start in sorted(sizes)[:-1]:
        if start >= before_ns and total <= max_bytes:
            break
        gone.append(start)
        total -= sizes[start]
    return gone
