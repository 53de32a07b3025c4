# SPDX-License-Identifier: Apache-2.0
"""The page's own files, read once: what is not among them at the start is not served."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from analyzer.runbooks.pages import PAGES
from analyzer.server.page.prose import runbook

FOLDER = Path(__file__).parents[2] / "page"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Suffix -> media type of what is served."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*(\.[a-z0-9]+)+")


@dataclass(frozen=True, slots=True)
class File:
    """A file as it is served."""

    body: bytes
    media_type: str
    tag: str
    """Changes with the body (ETag)."""


def files(folder: Path = FOLDER) -> Mapping[str, File]:
    """Return the files of the page by name."""
    paths = (path for path in sorted(folder.glob("*")) if path.is_file())
    return {
        path.name: _file(path)
        for path in paths
        if path.suffix in TYPES and _NAME.fullmatch(path.name)
    }


def runbooks(folder: str) -> Mapping[str, File]:
    """Return the runbooks that are on this machine's disk, as HTML, by ``runbooks/NAME.md``."""
    paths = {name: Path(folder, f"{name}.md") for name in PAGES}
    return {
        f"runbooks/{name}.md": _as_file(
            runbook(path.read_text("utf-8", "replace"), name), TYPES[".html"]
        )
        for name, path in paths.items()
        if path.is_file()
    }


def _file(path: Path) -> File:
    return _as_file(path.read_bytes(), TYPES[path.suffix])


def _as_file(body: bytes, media_type: str) -> File:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return File(body, media_type, tag)
