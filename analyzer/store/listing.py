# SPDX-License-Identifier: Apache-2.0
"""The files of a history: which there are, and reading them while they are put together.

A pack has the rows of pieces that are deleted once it is there. So where there is a pack, pieces of
its time do not count; and where a file went while it was read, all are listed again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import structlog

from analyzer.history.files import Piece, Tier, What
from analyzer.store.parquet import Parquet

log = structlog.get_logger()

LOOKS = 3
"""How often files are listed for a question. Chosen: they are put together once an hour."""

Answer = TypeVar("Answer")


class Moved(Exception):
    """A file is where it was no more."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files with some rows of a kind."""

    paths: tuple[Path, ...]
    """In the order of time."""
    beside: tuple[Path, ...] = ()
    """Those of which a pack has the rows: about to be deleted, or damaged."""


def pieces_in(folder: Path) -> Iterator[tuple[Piece, int]]:
    """Yield what a folder of a history holds, with its bytes."""
    for path in folder.glob("*/*/*"):
        piece = Piece.of(path.relative_to(folder))
        if piece is not None:
            yield piece, path.stat().st_size


def pieces_between(folder: Path, tier: Tier, since_ns: int, until_ns: int) -> Iterator[Piece]:
    """Yield what a folder has of a tier that ends after `since_ns` and begins before `until_ns`.

    It is in the order of time, a pack before the pieces of its time. It may have rows of before and
    after.
    """
    first, last = (Piece(tier, at, What.PAIRS).path.parts[1] for at in (since_ns, until_ns))
    for day in sorted(folder.glob(f"{tier}/*")):
        for path in sorted(day.iterdir()) if first <= day.name <= last else ():
            piece = Piece.of(path.relative_to(folder))
            if piece is not None and piece.until_ns > since_ns and piece.start_ns < until_ns:
                yield piece


def whole_pieces(found: Sequence[Piece]) -> tuple[list[Piece], list[Piece]]:
    """Return those that count, and those of which a pack among them has the rows."""
    packs = {each for each in found if each.packed}
    count, beside = list[Piece](), list[Piece]()
    for each in found:
        (beside if not each.packed and each.pack in packs else count).append(each)
    return count, beside


def files_between(folder: Path, tier: Tier, what: What, since_ns: int, until_ns: int) -> Files:
    """Return the files with what there is of a kind between two instants."""
    found = [each for each in pieces_between(folder, tier, since_ns, until_ns) if each.what is what]
    return Files(*(tuple(folder / each.path for each in some) for some in whole_pieces(found)))


def relisted(read: Callable[[bool], Answer]) -> Answer:
    """Return what `read` does; it lists files, and is called again where it raises Moved.

    It is told whether this is the last time, when it may not.
    """
    for _ in range(LOOKS - 1):
        try:
            return read(False)
        except Moved:
            continue
    return read(True)


def readable(parquet: Parquet, paths: Sequence[Path], *, is_last: bool) -> list[Path]:
    """Return those of `paths` that can be read, and log others.

    Raises Moved where one is gone, unless it is the last time.
    """
    whole = [path for path in paths if parquet.is_whole(path)]
    if not is_last and not all(path.exists() for path in paths):
        raise Moved
    if len(whole) < len(paths):
        log.warning("history_damaged", files=sorted(str(path) for path in {*paths} - {*whole}))
    return whole


def damaged(parquet: Parquet, files: Files) -> int:
    """Return how many files lie beside a pack because they cannot be read."""
    left = [path for path in files.beside if path.exists()]
    return sum(path.exists() and not parquet.is_whole(path) for path in left)


def remove_if_empty(folder: Path) -> None:
    """Delete the folder of a day of which nothing is left."""
    if not any(folder.iterdir()):
        folder.rmdir()
