# SPDX-License-Identifier: Apache-2.0
"""Puts a backup in place of a database that nobody has open.

All is made ready under another name, in a folder whose presence keeps an analyzer from starting.
What was there before is renamed, never deleted; then each part is renamed to its place, the
database last. After a kill at any point the same restore can be run again; what was there may then
lie under two names.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from analyzer.history.files import HISTORY
from analyzer.store.backup import beside, link, sync
from analyzer.store.manifest import DATABASE, KEPT, LINKED, SUMMARIES, Manifest, verified
from analyzer.store.opening import RESTORING, SCHEMA
from netagent.model.errors import ConfigError

PARTS = (SUMMARIES, HISTORY, *KEPT, "")
"""Suffixes of what a database consists of, in the order in which it is put in place."""
LOG = ".wal"
"""Suffix of DuckDB's log, which belongs to the database that was there before."""


@dataclass(frozen=True)
class Restored:
    """What became of a restore."""

    manifest: Manifest
    database: Path
    replaced: Path | None
    """Where the database lies now that was there before."""


def restore(folder: Path, database: Path, *, replace: bool, now_ns: int) -> Restored:
    """Put the backup in `folder` in place.

    Raises Damaged where it is not what was made, and ConfigError where it cannot be put there.
    """
    manifest = verified(folder)
    if manifest.schema > SCHEMA:
        why = f"has schema {manifest.schema}, this version speaks {SCHEMA}; update netagent first"
        raise ConfigError(str(folder), why)
    there = [suffix for suffix in ("", LOG, *PARTS[:-1]) if beside(database, suffix).exists()]
    if there and not replace and not beside(database, RESTORING).exists():
        why = "is there already; --replace moves it aside, or choose another database file"
        raise ConfigError(str(beside(database, there[0])), why)
    try:
        with _locked(database):
            staging = _staged(folder, manifest, database)
            replaced = _moved_aside(database, there, now_ns) if there else None
            _put_in_place(staging, database)
    except OSError as error:
        raise ConfigError(str(database), f"cannot be restored: {error}; run it again") from error
    return Restored(manifest, database, replaced)


@contextlib.contextmanager
def _locked(database: Path) -> Iterator[None]:
    """Hold what DuckDB holds of a file that is open; an analyzer that starts is refused."""
    if not database.exists():
        yield
        return
    with database.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            why = "is in use by another process; stop that one first"
            raise ConfigError(str(database), why) from None
        yield


def _staged(folder: Path, manifest: Manifest, database: Path) -> Path:
    """Return a folder, on the database's disk, with all that is to be put in place."""
    staging = beside(database, RESTORING)
    if staging.exists():
        shutil.rmtree(staging)
    (staging / (DATABASE + SUMMARIES)).mkdir(mode=0o700, parents=True)
    for each in manifest.files:
        _make_folders((staging / each.name).parent)
        if each.name.startswith(LINKED):
            link(folder / each.name, staging / each.name)
        else:  # it will be written to
            shutil.copy2(folder / each.name, staging / each.name)
    for path in staging.rglob("*"):
        _own_as(folder / path.relative_to(staging), path)
        if path.is_dir() or DATABASE + HISTORY not in path.parts:
            sync(path)
    if (staging / (DATABASE + HISTORY)).exists():
        os.sync()  # a hundred thousand files, one by one, take minutes
    sync(staging)
    return staging


def _make_folders(folder: Path) -> None:
    """Make a folder and those above it, for its owner alone."""
    if not folder.exists():
        _make_folders(folder.parent)
        folder.mkdir(mode=0o700)


def _own_as(source: Path, to: Path) -> None:
    """Give a file to whoever owns its source: root restores, and somebody else serves."""
    of = source.stat()
    with contextlib.suppress(PermissionError):  # then who restores serves as well
        os.chown(to, of.st_uid, of.st_gid)


def _moved_aside(database: Path, there: list[str], now_ns: int) -> Path:
    when = datetime.fromtimestamp(now_ns / 1e9, UTC).strftime("%Y%m%dT%H%M%SZ")
    to = beside(database, f".replaced-{when}")
    if to.exists():
        raise ConfigError(str(to), "is there already; run this again")
    for suffix in there:
        beside(database, suffix).rename(beside(to, suffix))
    return to


def _put_in_place(staging: Path, database: Path) -> None:
    for suffix in PARTS:
        if (staging / (DATABASE + suffix)).exists():
            (staging / (DATABASE + suffix)).rename(beside(database, suffix))
    sync(database.parent)
    staging.rmdir()
    sync(database.parent)
