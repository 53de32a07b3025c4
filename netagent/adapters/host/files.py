# SPDX-License-Identifier: Apache-2.0
"""Reads files of sysfs and procfs: what is missing, unreadable or empty is an absent value."""

import os
from contextlib import suppress
from pathlib import Path


def read_text(path: str) -> str:
    """Return the text of a file of one page at most; "" where it cannot be read."""
    with suppress(UnicodeDecodeError):
        return read_bytes(path).decode("ascii").strip()
    return ""


def read_bytes(path: str) -> bytes:
    """Return the first page of a file; nothing where it cannot be read."""
    # A fraction of the time of Path.read_bytes, for hundreds of files a second.
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 4096)
        finally:
            os.close(fd)
    return b""


def number(path: str) -> int | None:
    """Return the decimal number that a file holds; None for anything else."""
    text = read_text(path)  # "N/A (no PMA)" where the port has none
    return int(text) if text.isdecimal() else None


def link_at(path: Path) -> Path | None:
    """Return what a symbolic link holds, None where it is none."""
    # Not resolved further: Python would do that by names, which a mount without a place has not.
    with suppress(OSError):
        return path.readlink()
    return None


def entries(folder: Path) -> list[Path]:
    """Return what is in a folder, sorted; nothing where it cannot be read."""
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []
