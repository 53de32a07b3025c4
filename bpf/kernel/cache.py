# SPDX-License-Identifier: Apache-2.0
"""What is costly to find out about a kernel, kept on disk: its layout, programs compiled for it."""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER = Path("/var/cache/netagent")
MAX_FILES = 8
"""Most files in one folder; the oldest are deleted. Chosen: a few kernels and sets of programs."""

MAX_BYTES = 1 << 20
"""Most bytes in one file. Chosen: far above a layout or a set of programs; bounds what a damaged
file costs."""
_OTHERS_MAY_WRITE = 0o022
"""Mode bits with which group or others may write: S_IWGRP | S_IWOTH."""


def get(folder: Path, name: str) -> Any:
    """Return the data kept as `name`; None where it is not whole, or others could write it."""
    with suppress(OSError, ValueError, RecursionError):
        if _is_ours(folder.lstat()):
            digest, _, body = _read(_path(folder, name)).partition(b"\n")
            if digest == _digest(body):
                return json.loads(body)
    return None


def put(folder: Path, name: str, data: object) -> None:
    """Keep `data`, if it is not too large; a disk that refuses costs the next run some seconds."""
    body = json.dumps(data, separators=(",", ":")).encode("ascii")
    content = _digest(body) + b"\n" + body
    if len(content) > MAX_BYTES:
        return
    fresh = _path(folder, name).with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            fresh.write_bytes(content)
            fresh.replace(_path(folder, name))
        finally:
            fresh.unlink(missing_ok=True)
        kept = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime)
        for old in kept[:-MAX_FILES]:
            old.unlink()


def _read(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        if not _is_ours(os.fstat(file.fileno())):
            return b""
        return file.read(MAX_BYTES + 1)


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_MAY_WRITE


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode("ascii")


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"
