# SPDX-License-Identifier: Apache-2.0
"""Reads the folder in which endpoints are declared; what others could have written is refused."""

import os
import stat
from pathlib import Path

from netagent.adapters.host.files import entries
from netagent.host.declared import MAX_BYTES, MAX_FILES
from netagent.host.facts import DeclaredFile

_SUFFIX = ".json"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH

_Mark = tuple[int, ...]
"""What changes whenever a file does: device, inode, times, size, owner, mode."""


class DeclaredFolder:
    """The files of one folder, read anew only where they changed."""

    def __init__(self, folder: str, *, owner: int = 0) -> None:
        self._folder = folder
        self._owner = owner
        """User whose files are believed."""
        self._marks: dict[str, _Mark] = {}
        self.files: tuple[DeclaredFile, ...] = ()
        """As of the last look; sorted by name."""

    def look(self) -> bool:
        """Look at the folder, and return whether anything changed. Takes microseconds a file."""
        before, self._marks = self._marks, {}
        kept = {file.name: file for file in self.files}
        problem = self._refused()
        if problem:
            found = [DeclaredFile(self._folder, problem=problem)]
        else:
            paths = [path for path in entries(Path(self._folder)) if path.suffix == _SUFFIX]
            read = (self._file(p, kept.get(p.name), before.get(p.name)) for p in paths[:MAX_FILES])
            found = [file for file in read if file is not None]
            if len(paths) > MAX_FILES:
                text = f"has {len(paths)} files, and {MAX_FILES} are read"
                found.append(DeclaredFile(self._folder, problem=text))
        changed, self.files = tuple(found) != self.files, tuple(found)
        return changed

    def _refused(self) -> str:
        """Return why nothing in the folder is believed; it need not be there."""
        try:
            seen = Path(self._folder).lstat()
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        return "is no folder" if not stat.S_ISDIR(seen.st_mode) else _refusal(seen, self._owner)

    def _file(
        self, path: Path, known: DeclaredFile | None, mark: _Mark | None
    ) -> DeclaredFile | None:
        """Return a file as it is now; None for one that went since the folder was listed."""
        name = path.name
        try:
            # What opens else than a file, such as a pipe, must not hold up the agent.
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            return DeclaredFile(name, problem=f"cannot be read: {error.strerror}")
        try:
            seen = os.fstat(fd)
            now = self._marks[name] = _mark(seen)
            if known is not None and now == mark:
                return known
            regular = stat.S_ISREG(seen.st_mode)
            refusal = _refusal(seen, self._owner) if regular else "is no file"
            if refusal:
                return DeclaredFile(name, problem=refusal)
            return DeclaredFile(name, os.read(fd, MAX_BYTES + 1))
        except OSError as error:
            return DeclaredFile(name, problem=f"cannot be read: {error.strerror}")
        finally:
            os.close(fd)


def _refusal(seen: os.stat_result, owner: int) -> str:
    if seen.st_uid != owner:
        return f"belongs to user {seen.st_uid}, not {owner}"
    return "others than its owner may write it" if seen.st_mode & _OTHERS else ""


def _mark(seen: os.stat_result) -> _Mark:
    times = (seen.st_mtime_ns, seen.st_ctime_ns)
    return (seen.st_dev, seen.st_ino, *times, seen.st_size, seen.st_uid, seen.st_mode)
