# SPDX-License-Identifier: Apache-2.0
"""Makes a copy of all that is stored, while it is written.

Theory of operation. Between two checkpoints DuckDB writes to its log only: the file of the database
stays as it is. So the writer's thread makes a checkpoint, puts the next one off, and goes on; the
file is copied meanwhile. Payloads are in files that are only appended to, so a link to each is a
copy of it; what is stored from then on goes to a new one. Minutes and hours of history are written
once, under another name, and never changed: they are linked, too.

The file is copied by another process. DuckDB locks it by fcntl(2), and such a lock is gone as soon
as any descriptor of the file is closed in the process that holds it: a second analyzer could then
open it, too.
"""

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb

import netagent
from analyzer.history.files import HISTORY, Piece, Tier
from analyzer.store.connecting import connected
from analyzer.store.manifest import (
    DATABASE,
    KEPT,
    LINKED,
    MANIFEST,
    SUMMARIES,
    Damaged,
    File,
    Manifest,
    digest,
    read,
)
from analyzer.store.opening import SCHEMA
from analyzer.store.segments import Segments
from analyzer.store.space import Room
from analyzer.store.windows import segments_of
from netagent.model.errors import CapabilityMissing
from netagent.wire.codec import ContentType, encode

BACKUPS = ".backups"
"""Suffix of the folder with the backups, beside the database."""
HALF = ".half"
"""Suffix of one that is being made, or deleted."""
BACKUPS_KEPT = 3
"""Newest backups kept. Chosen: the one before an update, and two to choose from; each keeps from
being freed what was stored when it was made."""
NO_LINKS = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK}
"""What a disk says that knows no links, or not from there."""

CHECKING_LIMIT = "128MB"
"""Most memory with which a copy is opened. Chosen: beside the analyzer it takes little."""

Copy = Callable[[Path, Path], None]
"""Copies a file. Raises OSError."""


@dataclass(frozen=True)
class Frozen:
    """The database at an instant, which its file holds until it is thawed."""

    connection: duckdb.DuckDBPyConnection
    """Who froze it; a database that had to be opened again is as it was no more."""
    made_ns: int
    summaries: int
    segments: frozenset[int]


def freeze(connection: duckdb.DuckDBPyConnection, segments: Segments, now_ns: int) -> Frozen:
    """Bring all that is committed into the file, and write to the log only from then on."""
    segments.turn()
    connection.execute("CHECKPOINT")
    row = connection.execute("SELECT count(*) FROM windows").fetchone()
    frozen = Frozen(connection, now_ns, row[0] if row else 0, frozenset(segments_of(connection)))
    connection.execute("SET checkpoint_threshold = '1TB'")  # last: else nobody would thaw it
    return frozen


def thaw(connection: duckdb.DuckDBPyConnection, frozen: Frozen) -> None:
    """Let the log be moved into the file again. Raises CapabilityMissing where it was already."""
    if connection is not frozen.connection:
        raise CapabilityMissing("a backup", "the database was opened again meanwhile: try again")
    connection.execute("RESET checkpoint_threshold")


def begin(database: Path, name: str) -> Path:
    """Make the folder for a backup, with the judge's files and the history in it; return it.

    What these know was stored before them, so they are copied first. Raises OSError, and
    CapabilityMissing where there is no room.
    """
    folder = _folder(database)
    folder.mkdir(mode=0o700, exist_ok=True)
    for left in folder.glob(f"*{HALF}"):
        shutil.rmtree(left)
    if (folder / name).exists():
        raise CapabilityMissing("a backup", f"{folder / name} exists: choose another name")
    half = folder / (name + HALF)
    half.mkdir(mode=0o700)
    try:
        _refuse_without_room(database, half)
        for suffix in KEPT:
            if beside(database, suffix).exists():
                shutil.copy2(beside(database, suffix), half / (DATABASE + suffix))
        _link_history(beside(database, HISTORY), half / (DATABASE + HISTORY))
    except BaseException:
        shutil.rmtree(half)
        raise
    return half


def write(database: Path, half: Path, frozen: Frozen, copy: Copy) -> Manifest:
    """Copy the database and link payloads; return what is in the backup. Raises OSError."""
    copy(database, half / DATABASE)
    (half / DATABASE).chmod(0o600)
    links = half / (DATABASE + SUMMARIES)
    links.mkdir(mode=0o700)
    for number in sorted(frozen.segments):
        source = Segments(beside(database, SUMMARIES)).path(number)
        if source.exists():  # else it was lost before, as the log says
            link(source, links / source.name)
    _check(half / DATABASE, frozen)
    made = datetime.fromtimestamp(frozen.made_ns / 1e9, UTC).isoformat(timespec="seconds")
    manifest = Manifest(
        netagent=netagent.__version__,
        schema=SCHEMA,
        made_ns=frozen.made_ns,
        made=made,
        summaries=frozen.summaries,
        files=tuple(_described(half)),
    )
    (half / MANIFEST).write_bytes(encode(manifest, ContentType.JSON))
    return manifest


def finish(half: Path) -> Path:
    """Give a backup its name, once it is on disk; return its folder. Raises OSError."""
    for path in [*half.rglob("*"), half]:
        if path.is_dir() or path.stat().st_nlink == 1:  # a link is to what is on disk already
            sync(path)
    whole = half.with_name(half.name.removesuffix(HALF))
    half.rename(whole)
    sync(whole.parent)
    return whole


def known(database: Path) -> list[Path]:
    """Return the backups that there are, the oldest first."""
    found = []
    for path in _folder(database).glob("*/"):
        with contextlib.suppress(Damaged):  # else it is somebody else's folder
            if not path.name.endswith(HALF):
                found.append((read(path).made_ns, path))
    return [path for _, path in sorted(found)]


def drop(backup: Path) -> None:
    """Delete a backup; one that is half deleted is none any more. Raises OSError."""
    half = backup.rename(backup.with_name(backup.name + HALF))
    shutil.rmtree(half)


def named(made_ns: int) -> str:
    """Return the name of a backup that was given none: when it is made, UTC."""
    return datetime.fromtimestamp(made_ns / 1e9, UTC).strftime("%Y%m%dT%H%M%SZ")


def copied(source: Path, to: Path) -> None:
    """Copy a file by another process. Raises OSError."""
    command = ["cp", "--reflink=auto", "--", str(source), str(to)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(errno.EIO, done.stderr.strip() or f"cp: exit status {done.returncode}")


def link(source: Path, to: Path) -> None:
    """Link a file of a folder in LINKED; copy it where that is not possible. Raises OSError."""
    try:
        os.link(source, to)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        shutil.copy2(source, to)


def sync(path: Path) -> None:
    """Bring a file or a folder to the disk. Raises OSError."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _link_history(history: Path, to: Path) -> None:
    """Link minutes and hours; what is deleted meanwhile is left out. Raises OSError."""
    if not history.is_dir():
        return
    to.mkdir(mode=0o700)
    for path in _pieces(history):
        linked = to / path.relative_to(history)
        linked.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # it became too old
            link(path, linked)


def _pieces(history: Path) -> Iterator[Path]:
    """Yield the files of a history; what is being written has another name yet."""
    for day in sorted(each for tier in Tier for each in (history / tier).glob("*")):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # all of it became too old
            for path in sorted(day.iterdir()):
                if Piece.of(path.relative_to(history)) is not None:
                    yield path


def _refuse_without_room(database: Path, half: Path) -> None:
    needed = sum(_size(beside(database, suffix)) for suffix in ("", *KEPT))
    payloads = beside(database, SUMMARIES)
    if not _knows_links(payloads, half):
        needed += sum(map(_size, payloads.glob("*")))
        needed += sum(map(_size, _pieces(beside(database, HISTORY))))
    room = Room.of(half)
    if needed + room.reserve > room.free:
        raise CapabilityMissing(
            "a backup",
            f"it takes {needed >> 20} MiB, and of {room.free >> 20} MiB that are free under "
            f"{half.parent} {room.reserve >> 20} stay so: free some",
        )


def _knows_links(payloads: Path, half: Path) -> bool:
    source = next(payloads.glob("*"), None)
    if source is None:
        return True
    tried = half / source.name
    try:
        os.link(source, tried)
    except OSError:
        return False
    tried.unlink()
    return True


def _check(copy: Path, frozen: Frozen) -> None:
    """Open the copy, once. Raises OSError where it does not hold what was stored."""
    try:
        with connected(
            str(copy), read_only=True, memory_limit=CHECKING_LIMIT, threads=1
        ) as connection:
            found = connection.execute("SELECT count(*) FROM windows").fetchone()
    except duckdb.Error as error:
        raise OSError(errno.EIO, f"the copy cannot be opened: {error}") from error
    if found != (frozen.summaries,):
        raise OSError(
            errno.EIO, f"the copy has {found and found[0]} summaries, not {frozen.summaries}"
        )


def _described(half: Path) -> Iterable[File]:
    for path in sorted(each for each in half.rglob("*") if each.is_file()):
        name = str(path.relative_to(half))
        yield File(name, _size(path), None if name.startswith(LINKED) else digest(path))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _folder(database: Path) -> Path:
    return beside(database, BACKUPS)


def beside(database: Path, suffix: str) -> Path:
    """Return what lies beside a database under its name and a suffix."""
    return database.with_name(database.name + suffix)
