# SPDX-License-Identifier: Apache-2.0
"""The rim: bundles and sosreports on disk, packed or not."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from netagent.model.errors import ConfigError, RemoteProtocolError
from ovs_checks.switch.bundle import MANIFEST, MAX_BYTES, MAX_FILES, Bundle, read_archive, unpack
from ovs_checks.switch.sosreport import Sosreport, wanted

Answers = Bundle | Sosreport


def open_answers(path: Path) -> Answers:
    """Read a bundle or a sosreport: an archive, or a folder that it was unpacked to.

    Raises
    ------
    ConfigError
        If there is nothing of the kind.
    """
    try:
        if path.is_dir():
            return _of(dict(_files_of(path)))
        with path.open("rb") as archive:
            return _of(read_archive(archive, _is_read))
    except OSError as e:
        raise ConfigError(str(path), e.strerror or str(e)) from e
    except RemoteProtocolError as e:
        raise ConfigError(str(path), str(e)) from e


def _is_read(name: str) -> bool:
    return _in_bundle(name) or wanted(name)


def _in_bundle(name: str) -> bool:
    return "/" not in name or name.startswith("answers/")


def _files_of(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what is to be read of a folder: name within it, and text."""
    size = 0
    for path in islice(folder.rglob("*"), MAX_FILES):
        name = path.relative_to(folder).as_posix()
        if _is_read(name) and path.is_file():
            size += path.stat().st_size
            if size > MAX_BYTES:
                raise RemoteProtocolError(f"a folder of over {MAX_BYTES} bytes")
            yield name, path.read_text(errors="replace")


def _of(files: dict[str, str]) -> Answers:
    if MANIFEST in files:
        return unpack(files)
    if any(wanted(name) for name in files):
        return Sosreport(files)
    raise RemoteProtocolError(f"neither a bundle nor a sosreport: no {MANIFEST}, no sos_commands")
