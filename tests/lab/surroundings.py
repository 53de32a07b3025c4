# SPDX-License-Identifier: Apache-2.0
"""What is done to the analyzer's surroundings: nobody's fault, and nobody may be accused."""

from contextlib import suppress
from pathlib import Path

from tests.lab import namespaces
from tests.lab.commands import run
from tests.lab.errors import LabError
from tests.lab.fabric import management_port
from tests.lab.rim import Action, Rim
from tests.lab.shape import INITIAL_NAMESPACE
from tests.lab.state import Fault

DISK_BYTES = 1 << 30
"""Bytes of the analyzer's disk: days of a lab's summaries. Memory is used as it is filled."""
CHUNK = bytes(1 << 20)


def mount_disk(directory: Path) -> None:
    """Give the analyzer a disk of its own, which can be filled without filling the machine's."""
    directory.mkdir(exist_ok=True)
    size = f"size={DISK_BYTES}"
    run("mount", "-t", "tmpfs", "-o", size, "netagent-lab", str(directory))


def unmount_disk(directory: Path) -> None:
    """Take the analyzer's disk away, if it has one."""
    if directory.is_mount():
        run("umount", "--lazy", str(directory))


def _fill(rim: Rim, _fault: Fault) -> None:
    with _ballast(rim).open("wb") as file, suppress(OSError):  # full: that is what is wanted
        while True:
            file.write(CHUNK)
            file.flush()


def _free(rim: Rim, _fault: Fault) -> None:
    _ballast(rim).unlink(missing_ok=True)


def _ballast(rim: Rim) -> Path:
    disk = rim.directory / "analyzer"
    if not disk.is_mount():
        raise LabError("the analyzer has no disk of its own", "run: down, then up")
    return disk / "ballast"


def _cut_off(rim: Rim, _fault: Fault) -> None:
    _set_management(rim, "down")


def _join(rim: Rim, _fault: Fault) -> None:
    _set_management(rim, "up")


def _set_management(rim: Rim, state: str) -> None:
    for host in rim.shape.host_names:
        namespaces.set_link(INITIAL_NAMESPACE, management_port(host), state)


ACTIONS: dict[str, tuple[Action, Action]] = {
    "analyzer-disk-full": (_fill, _free),
    "management-down": (_cut_off, _join),
}
