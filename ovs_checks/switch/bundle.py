# SPDX-License-Identifier: Apache-2.0
"""All that was asked of one host, in one file: a tar archive of answers and a manifest.

`manifest.json` says which file holds the answer to which command, when it was given, and what was
refused; `ovsdb.json` holds the rows of the database. An archive that was cut off still gives the
answers it holds.
"""

import io
import json
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from netagent.model.errors import NetAgentError, RemoteProtocolError, Unreachable

from .assemble import Row, Source

FORMAT = 1
"""Version of the layout of bundles; others are refused. Chosen: the first."""
MANIFEST, ROWS = "manifest.json", "ovsdb.json"
MAX_BYTES = 1 << 30
"""Bytes of all files of an archive, unpacked. Chosen: a large host's answers fit, and an archive
bomb does not."""

MAX_FILES = 1_000_000
"""Files of an archive. Chosen: far more than a sosreport has; each costs memory even if it is
empty."""
_CUT_OFF = (EOFError, OSError, tarfile.TarError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one command printed."""

    command: str
    """The command line, as one would type it."""

    wall_ns: int
    """Nanoseconds since the Unix epoch."""

    text: str


@dataclass(frozen=True)
class Bundle:
    """What one host answered; a `Source` like the host itself."""

    host: str
    wall_ns: int
    """When the first question was asked, in nanoseconds since the Unix epoch."""

    tables: Mapping[str, list[Row]] = field(default_factory=dict)
    answers: tuple[Answer, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    """(command, reason) of questions that got no answer."""

    def rows(self) -> Mapping[str, list[Row]]:
        """Return the rows of OVSDB."""
        if not self.tables:
            raise Unreachable("bundle", f"{ROWS} is missing")
        return self.tables

    def command(self, name: str, *arguments: str) -> str:
        """Return what a command of `ovs-appctl` printed."""
        return self.told(" ".join(("ovs-appctl", name, *arguments)))

    def ofctl(self, command: str, bridge: str) -> str:
        """Return what `ovs-ofctl COMMAND BRIDGE` printed."""
        return self.told(f"ovs-ofctl {command} {bridge}")

    def told(self, command: str) -> str:
        """Return the first answer to a command; raises Unreachable if there is none."""
        first = next(iter(self.samples(command)), None)
        if first is None:
            refused = dict(self.refused).get(command)
            raise Unreachable("bundle", refused or f"not in the bundle: {command}")
        return first.text

    def samples(self, command: str) -> list[Answer]:
        """Return all answers to a command, in the order they were given."""
        return [answer for answer in self.answers if answer.command == command]


class Recorder:
    """A source that asks another, and keeps what it answers."""

    def __init__(self, source: Source, host: str, clock: Callable[[], int]) -> None:
        self._source, self._host, self._clock = source, host, clock
        self._wall_ns = clock()
        self._tables: Mapping[str, list[Row]] = {}
        self._answers: list[Answer] = []
        self._refused: dict[str, str] = {}

    def rows(self) -> Mapping[str, list[Row]]:
        """Ask for the rows of OVSDB."""
        self._tables = self._source.rows()
        return self._tables

    def command(self, name: str, *arguments: str) -> str:
        """Ask for what a command of `ovs-appctl` prints."""
        said = " ".join(("ovs-appctl", name, *arguments))
        return self.keep(said, lambda: self._source.command(name, *arguments))

    def ofctl(self, command: str, bridge: str) -> str:
        """Ask for what `ovs-ofctl COMMAND BRIDGE` prints."""
        return self.keep(
            f"ovs-ofctl {command} {bridge}", lambda: self._source.ofctl(command, bridge)
        )

    def keep(self, command: str, ask: Callable[[], str]) -> str:
        """Return the answer of `ask`, kept as that to `command`; what it raises is kept too."""
        try:
            text = ask()
        except NetAgentError as e:
            self._refused[command] = str(e)
            raise
        self._answers.append(Answer(command, self._clock(), text))
        return text

    def bundle(self) -> Bundle:
        """Return all that was answered."""
        refused = tuple(self._refused.items())
        return Bundle(self._host, self._wall_ns, self._tables, tuple(self._answers), refused)


# --- as a file -----------------------------------------------------------------------------------


def pack(bundle: Bundle, *, version: str) -> bytes:
    """Return the archive; `version` is that of the program that makes it."""
    names = [_file_name(n, answer.command) for n, answer in enumerate(bundle.answers)]
    manifest = {
        "format": FORMAT,
        "made_by": f"netagent {version}",
        "host": bundle.host,
        "wall_ns": bundle.wall_ns,
        "answers": [
            {"command": answer.command, "file": name, "wall_ns": answer.wall_ns}
            for name, answer in zip(names, bundle.answers, strict=True)
        ],
        "refused": [{"command": command, "reason": reason} for command, reason in bundle.refused],
    }
    texts = [
        (MANIFEST, json.dumps(manifest, indent=1)),
        (ROWS, json.dumps(bundle.tables, indent=1)),
        *((name, answer.text) for name, answer in zip(names, bundle.answers, strict=True)),
    ]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        for name, text in texts:
            data = text.encode(errors="replace")
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(data), bundle.wall_ns // 10**9, 0o600
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _file_name(number: int, command: str) -> str:
    return f"answers/{number:04}-{mangled(command)}"


def mangled(command: str) -> str:
    """Return a command line as a file name, as `sos report` makes them."""
    return re.sub(r"[^\w.-]+", "_", command.replace("/", ".")).strip(" ._-")[:200]


def unpack(files: Mapping[str, str]) -> Bundle:
    """Return the bundle whose archive holds `files`, by name.

    Raises
    ------
    RemoteProtocolError
        If they are no bundle. A file that is missing is a question without an answer.
    """
    try:
        said = json.loads(files[MANIFEST])
        if said["format"] != FORMAT:
            raise RemoteProtocolError(f"bundle of format {said['format']!r}; {FORMAT} is known")
        listed = [(one["command"], one["file"], int(one["wall_ns"])) for one in said["answers"]]
        refused = [(str(one["command"]), str(one["reason"])) for one in said["refused"]]
        held = tuple(Answer(str(c), ns, files[name]) for c, name, ns in listed if name in files)
        refused += [
            (str(command), "cut off from the bundle")
            for command, name, _ in listed
            if name not in files
        ]
        tables = json.loads(files[ROWS]) if ROWS in files else {}
        return Bundle(str(said["host"]), int(said["wall_ns"]), tables, held, tuple(refused))
    except KeyError as e:
        raise RemoteProtocolError(f"no bundle: {e} is missing") from e
    except (TypeError, ValueError, RecursionError) as e:
        raise RemoteProtocolError(f"no bundle: {e!r}"[:200]) from e


def read_archive(archive: BinaryIO, wanted: Callable[[str], bool]) -> dict[str, str]:
    """Return the wanted files of a tar archive, compressed in whatever way, by name.

    What a damaged archive holds up to the damage is returned.

    Raises
    ------
    RemoteProtocolError
        If it is no archive at all, or holds more than `MAX_BYTES` or `MAX_FILES`.
    """
    found: dict[str, str] = {}
    size = 0
    try:
        with tarfile.open(fileobj=archive, mode="r|*") as members:
            for count, member in enumerate(members):
                if not (member.isfile() and wanted(member.name)):
                    continue
                size += member.size
                if count >= MAX_FILES or size > MAX_BYTES:
                    raise RemoteProtocolError(f"an archive of over {MAX_BYTES} bytes")
                data = members.extractfile(member)
                if data is not None:
                    found[member.name] = data.read().decode(errors="replace")
    except _CUT_OFF as e:
        if not found:
            raise RemoteProtocolError(f"no archive: {e}") from e
    return found
