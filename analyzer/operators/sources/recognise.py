# SPDX-License-Identifier: Apache-2.0
"""Files of a job as one log, whatever wrote them."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from analyzer.operators import rings
from analyzer.operators.log import Log
from analyzer.operators.plausible import of_members
from analyzer.operators.sources import dump, flight_recorder, inspector, pickles, ras
from netagent.model.errors import RemoteProtocolError
from netagent_torch import form

GZIP = b"\x1f\x8b"
SHOWN = 3
"""Most files that a sentence names. Chosen: enough to know what they are."""


@dataclass(slots=True)
class Files:
    """Takes files one after the other, and gives one log of them."""

    _dumps: dict[str, dump.Dump] = field(default_factory=dict)
    _records: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    _statuses: dict[str, ras.Status] = field(default_factory=dict)
    _rings: dict[str, bytes] = field(default_factory=dict)
    _strange: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, content: bytes) -> None:
        """Take a file; one that cannot be read is named in the log's notes."""
        try:
            self._add(name, unpacked(content))
        except RemoteProtocolError as error:
            self._strange[name] = str(error)

    def _add(self, name: str, content: bytes) -> None:
        if content.startswith(form.MAGIC):
            self._rings[name] = content
        elif inspector.is_inspector(content):
            self._records[name] = inspector.records(content)
        elif ras.is_text(content):
            self._statuses[name] = ras.status_of_text(content)
        else:
            value = dump.decoded(content)
            if ras.is_status(value):
                self._statuses[name] = ras.status_of(value)
            else:
                self._dumps[name] = dump.dump_of(value, pickled=pickles.is_pickle(content))

    def log(self, *, now_ns: int | None = None) -> Log:
        """Return the log of all files. Raises RemoteProtocolError where there is none of them.

        Of several sources the one of most files is read. `now_ns`: when rings were read, if that is
        known (Unix).
        """
        sources: list[tuple[Mapping[str, Any], Callable[[Any], Log]]] = [
            (self._dumps, flight_recorder.log),
            (self._records, inspector.log),
            (self._statuses, ras.log),
            (self._rings, partial(_of_rings, now_ns=now_ns)),
        ]
        files, read = max(sources, key=lambda each: len(each[0]))
        if not files:
            raise RemoteProtocolError(self._nothing())
        made = of_members(read(files))
        return replace(made, notes=(*made.notes, *self._notes(files, sources)))

    def _nothing(self) -> str:
        if not self._strange:
            return "no file in it"
        name, reason = next(iter(self._strange.items()))
        several = len(self._strange) > 1
        which = f"{len(self._strange)} files, none" if several else "a file, not"
        return f"{which} of a format that is known (see --help); {name}: {reason}"

    def _notes(
        self,
        files: Mapping[str, Any],
        sources: list[tuple[Mapping[str, Any], Callable[[Any], Log]]],
    ) -> list[str]:
        notes = []
        others = [name for each, _ in sources if each is not files for name in each]
        if others:
            notes.append(f"{len(others)} files of other sources were left out: {some(others)}")
        return notes + left_out(self._strange)


def _of_rings(files: Mapping[str, bytes], now_ns: int | None) -> Log:
    try:
        return rings.log(files, now_ns=now_ns)
    except ValueError as error:
        raise RemoteProtocolError(str(error)) from error


def left_out(strange: Mapping[str, str]) -> list[str]:
    """Return notes of files that were not read: why, by name."""
    notes = [f"{name} was left out: {why}" for name, why in list(strange.items())[:SHOWN]]
    more = len(strange) - SHOWN
    return [*notes, f"{more} more files were left out"] if more > 0 else notes


def some(names: Sequence[str]) -> str:
    """Return the first of some names, and how many there are beside them."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def read(files: Mapping[str, bytes]) -> Log:
    """Return the log in files: content by name. Raises RemoteProtocolError where there is none."""
    taken = Files()
    for name, content in files.items():
        taken.add(name, content)
    return taken.log()


def unpacked(content: bytes) -> bytes:
    """Return content without its gzip. Raises RemoteProtocolError for damage and what is large."""
    if not content.startswith(GZIP):
        return content
    engine = zlib.decompressobj(wbits=31)
    try:
        whole = engine.decompress(content, dump.MAX_BYTES + 1)
    except zlib.error as error:
        raise RemoteProtocolError(f"gzip: {error}") from error
    if len(whole) > dump.MAX_BYTES:
        raise RemoteProtocolError(f"more than {dump.MAX_BYTES} bytes without its gzip")
    if not engine.eof:
        raise RemoteProtocolError("gzip: it ends too early")
    return whole
