# SPDX-License-Identifier: Apache-2.0
"""What a backup holds: a list of its files, and whether they are all there, as they were."""

import hashlib
import re
from pathlib import Path

import msgspec

from analyzer.history.files import HISTORY, SUFFIX, Tier, What
from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import ContentType, decode

MANIFEST = "manifest.json"
DATABASE = "netagent.duckdb"
"""Name of the database in a backup; the other files are named after it, as beside a database."""
SUMMARIES = ".summaries"
"""Suffix of the folder with the payloads, beside the database."""
KEPT = (".baselines", ".routes")
"""Suffixes of the judge's files, beside the database."""
LINKED = (DATABASE + SUMMARIES, DATABASE + HISTORY)
"""Folders whose files never change but at their end: a link to one is a copy of it."""
NAME = re.compile(
    rf"{re.escape(DATABASE)}({'|'.join(map(re.escape, KEPT))}|{SUMMARIES}/[0-9]+\.segment|"
    rf"{HISTORY}/({'|'.join(Tier)})/[0-9-]+/([0-9]+|day)\.({'|'.join(What)}){re.escape(SUFFIX)})?"
)
"""Form of a file's name in a backup: nothing else is put in place."""


class Damaged(RemoteProtocolError):
    """A backup is not what was made."""


class File(msgspec.Struct, frozen=True):
    """A file of a backup."""

    name: str
    bytes: int
    sha256: str | None = None
    """None for payloads, each of which has its own checksum, and for history: each backup would
    read gigabytes of it anew, and a file that is damaged is left out of answers."""


class Manifest(msgspec.Struct, frozen=True):
    """A backup."""

    netagent: str
    """Version of who made it."""
    schema: int
    """Version of the tables in its database."""
    made_ns: int
    """When, in Unix nanoseconds: all that was acknowledged before is in it."""
    made: str
    """The same, for people."""
    summaries: int
    files: tuple[File, ...]

    @property
    def bytes(self) -> int:
        """Return the bytes of all files."""
        return sum(each.bytes for each in self.files)


def read(folder: Path) -> Manifest:
    """Return what is in a backup. Raises Damaged."""
    try:
        body = (folder / MANIFEST).read_bytes()
        # A hundred bytes a file: what a host may send at once is less than two months of minutes.
        return decode(body, Manifest, ContentType.JSON, max_bytes=len(body))
    except OSError as error:
        raise Damaged(f"{folder} is no backup: {MANIFEST}: {error.strerror}") from error
    except RemoteProtocolError as error:
        raise Damaged(f"{folder / MANIFEST} cannot be read: {error}") from error


def verified(folder: Path) -> Manifest:
    """Return what is in a backup, all of whose files are as they were. Raises Damaged."""
    manifest = read(folder)
    if DATABASE not in {each.name for each in manifest.files}:
        raise Damaged(f"{folder} has no database")
    for each in manifest.files:
        if (why := _fault(folder, each)) is not None:
            raise Damaged(f"{folder / each.name} {why}")
    return manifest


def _fault(folder: Path, of: File) -> str | None:
    if not NAME.fullmatch(of.name):
        return "has no place in a backup"
    path = folder / of.name
    try:
        size = path.stat().st_size
        if size != of.bytes:
            return f"has {size} bytes, and had {of.bytes}"
        if of.sha256 is not None and digest(path) != of.sha256:
            return "is not what was copied: its checksum differs"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


def digest(path: Path) -> str:
    """Return the SHA-256 of a file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
