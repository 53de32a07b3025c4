# SPDX-License-Identifier: Apache-2.0
"""What is costly to find out about a kernel, kept on disk: its layout, programs compiled for it."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER = Path("/var/cache/netagent")
MAX_FILES = 8
"""Kept in one folder; the oldest give way."""

MAX_BYTES = 1 << 20


def get(folder: Path, name: str) -> Any:
    """Return the data kept as `name`; None where there is none that this user wrote."""
    path = _path(folder, name)
    with suppress(OSError, ValueError):
        status = path.stat()
        if status.st_size <= MAX_BYTES and status.st_uid == os.geteuid():
            return json.loads(path.read_bytes())
    return None


def put(folder: Path, name: str, data: object) -> None:
    """Keep `data`; a disk that refuses costs the next run some seconds."""
    path = _path(folder, name)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(data, separators=(",", ":")), encoding="ascii")
        fresh.replace(path)
        kept = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime)
        for old in kept[:-MAX_FILES]:
            old.unlink()


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"
