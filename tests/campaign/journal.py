# SPDX-License-Identifier: Apache-2.0
"""The file of a campaign: its options in the first line, then an episode in each.

A run that was killed leaves a line that is not whole; it counts as not written.
"""

import json
import lzma
import subprocess
from dataclasses import asdict
from functools import cache
from pathlib import Path

import msgspec

from netagent import __version__
from tests.campaign.episode import Outcome
from tests.campaign.options import Options


class JournalError(Exception):
    """The file is none of this campaign's."""


class Journal:
    """Episodes as they end, in a file."""

    def __init__(self, path: Path, options: Options, *, resume: bool = False) -> None:
        """Begin a file anew, or go on with one. Raises JournalError if its options differ."""
        self.outcomes: list[Outcome] = []
        """Those that are in the file already."""
        if path.suffix == ".xz":
            raise JournalError(f"{path}: a campaign goes on with a plain file; unpack it")
        if resume and path.exists():
            before, self.outcomes, whole = _read(path)
            if unlike := options.unlike(before):
                raise JournalError(f"{path} has other options: {'; '.join(unlike)}")
            self._file = path.open("r+")
            self._file.seek(whole)
            self._file.truncate()
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")
        self._write({"options": asdict(options)})

    def add(self, outcome: Outcome) -> None:
        """Write an episode."""
        self._write(asdict(outcome))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, plain: dict[str, object]) -> None:
        self._file.write(json.dumps(plain) + "\n")
        self._file.flush()


def read(path: Path) -> tuple[Options, list[Outcome]]:
    """Return the options and the episodes of a file, which may be packed by xz.

    Raises JournalError if it is none.
    """
    options, outcomes, _ = _read(path)
    return options, outcomes


def _read(path: Path) -> tuple[Options, list[Outcome], int]:
    """Return options, episodes, and how many bytes are whole lines."""
    try:
        body = path.read_bytes()
        if path.suffix == ".xz":
            body = lzma.decompress(body)
        whole = body.rfind(b"\n") + 1
        first, *others = body[:whole].splitlines() or [b""]
        options = msgspec.convert(msgspec.json.decode(first)["options"], Options)
        outcomes = [msgspec.json.decode(line, type=Outcome) for line in others]
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    except (KeyError, TypeError, lzma.LZMAError, msgspec.MsgspecError) as error:
        raise JournalError(f"{path} is no campaign's output: {error}") from None
    return options, outcomes, whole


@cache
def version() -> str:
    """Return the commit at hand, or netagent's version where there is no repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or __version__
