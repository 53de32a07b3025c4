# SPDX-License-Identifier: Apache-2.0
"""Names of the files that history is kept in, and which of them are due or too many. Pure.

``minute/2026-11-26/0415.pairs.parquet`` is the minute from 04:15 UTC by pair; an hour is
``hour/2026-11-26/04.components.parquet``. Once an hour is over, its minutes are put together in one
file, ``minute/2026-11-26/04.pairs.parquet``, and the hours of a day in ``day.pairs.parquet``: a
question about a month opens a file for each day, not for each hour.
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
PACKED_FORMAT = 3
"""Version of a file with several minutes or hours: the columns of 2, and rows in the order of their
names, and of time."""


class Tier(StrEnum):
    """How long the time is that one row stands for."""

    MINUTE = "minute"
    HOUR = "hour"

    @property
    def width_ns(self) -> int:
        """Nanoseconds of it."""
        return (60 if self is Tier.MINUTE else 3600) * SECOND

    @property
    def packed_ns(self) -> int:
        """Nanoseconds of which the rows are put together in one file, once they are over."""
        return (3600 if self is Tier.MINUTE else 86_400) * SECOND


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

FORMS: Mapping[tuple[Tier, bool], str] = {
    (Tier.MINUTE, False): "%H%M", (Tier.MINUTE, True): "%H",
    (Tier.HOUR, False): "%H", (Tier.HOUR, True): "day",
}  # fmt: skip
"""Names by tier, and by whether several are put together."""


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """What one file holds."""

    tier: Tier
    start_ns: int
    what: What
    packed: bool = False
    """Whether it has all minutes of an hour, or all hours of a day."""

    @property
    def width_ns(self) -> int:
        """Nanoseconds that it is of."""
        return self.tier.packed_ns if self.packed else self.tier.width_ns

    @property
    def until_ns(self) -> int:
        """When it ends."""
        return self.start_ns + self.width_ns

    @property
    def newest_ns(self) -> int:
        """Start of the newest minute or hour that it may have."""
        return self.until_ns - self.tier.width_ns

    @property
    def pack(self) -> "Piece":
        """What this is put together in."""
        start_ns = self.start_ns - self.start_ns % self.tier.packed_ns
        return Piece(self.tier, start_ns, self.what, packed=True)

    @property
    def path(self) -> PurePath:
        """Where it is, in the folder of the history."""
        at = datetime.fromtimestamp(self.start_ns // SECOND, UTC)
        name = f"{at.strftime(FORMS[self.tier, self.packed])}.{self.what}{SUFFIX}"
        return PurePath(self.tier) / at.strftime("%Y-%m-%d") / name

    @classmethod
    def of(cls, path: PurePath) -> "Piece | None":
        """Return what a file of this path holds; None if it is none of ours."""
        found = (cls._of(path, packed=packed) for packed in (False, True))
        return next((each for each in found if each is not None and each.path == path), None)

    @classmethod
    def _of(cls, path: PurePath, *, packed: bool) -> "Piece | None":
        try:
            tier, day, name = path.parts
            time, what, _ = name.split(".")
            form = f"%Y-%m-%d {FORMS[Tier(tier), packed]}"
            at = datetime.strptime(f"{day} {time}", form).replace(tzinfo=UTC)
            return cls(Tier(tier), int(at.timestamp()) * SECOND, What(what), packed)
        except (KeyError, ValueError):
            return None


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


def packable(pieces: Iterable[Piece], packs: Iterable[Piece], written_ns: int) -> list[Piece]:
    """Return the packs that are to be made of pieces, newest first.

    That are those that are over once the minute that begins at `written_ns` is written, and those
    that there are, and of which a piece came after they were made, as when a clock was set back.
    """
    known = set(packs)
    found = {each.pack for each in pieces}
    due = (each for each in found if each in known or each.until_ns <= written_ns)
    return sorted(due, key=lambda each: (-each.start_ns, each.tier, each.what))
