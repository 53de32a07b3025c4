# SPDX-License-Identifier: Apache-2.0
"""Reads Open vSwitch's state from an archive of `sos report`."""

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import PurePosixPath

from netagent.model.errors import Unreachable

from .assemble import Row
from .bundle import Answer, mangled
from .database_log import rows_of
from .rows import TABLES

_FOLDERS = ("openvswitch", "networking", "host", "kernel")
_DATABASES = tuple(
    f"{folder}/openvswitch/conf.db" for folder in ("etc", "usr/local/etc", "var/lib")
)
_REFUSALS = ("ovs-ofctl: ", "ovs-appctl: ", "ovs-dpctl: ", "sh: ", "timeout: ")
_LOGGED = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z\|")
_OTHERWISE = {
    "ovs-appctl version": ("ovs-ofctl -t 5 --version",),
    "ovs-appctl tnl/neigh/show": ("ovs-appctl tnl/arp/show",),
}


def wanted(name: str) -> bool:
    """Tell whether a file of an archive is one of those that are read here."""
    within = _within(name)
    parts = PurePosixPath(within).parts
    asked = parts[:1] == ("sos_commands",) and len(parts) == 3 and parts[1] in _FOLDERS
    return asked or within in {*_DATABASES, "hostname", "etc/hostname"}


def _within(name: str) -> str:
    """Return the path of a file within the host, without the archive's own folder."""
    parts = PurePosixPath(name).parts
    starts = {"sos_commands", "etc", "usr", "var", "hostname"}
    return "/".join(parts[next((n for n, part in enumerate(parts[:2]) if part in starts), 0) :])


class Sosreport:
    """A host's answers, found by the names that sos gives files; a `Source`."""

    wall_ns = 0
    """Unknown."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = {_within(name): text for name, text in files.items()}
        self._answers = {
            PurePosixPath(name).name: text
            for name, text in self._files.items()
            if name.startswith("sos_commands/")
        }

    @property
    def host(self) -> str:
        """The host's name."""
        names = ("hostname", "sos_commands/host/hostname", "etc/hostname")
        return next((self._files[name].strip() for name in names if name in self._files), "unknown")

    @cached_property
    def _tables(self) -> Mapping[str, list[Row]]:
        text = next((self._files[name] for name in _DATABASES if name in self._files), None)
        if text is None:
            raise Unreachable("sosreport", "it holds no etc/openvswitch/conf.db")
        return rows_of(text, TABLES)

    def rows(self) -> Mapping[str, list[Row]]:
        """Return the rows of OVSDB that its file keeps."""
        return self._tables

    def command(self, name: str, *arguments: str) -> str:
        """Return what a command of `ovs-appctl` printed."""
        if name == "bridge/dump-flows":
            arguments = ("--offload-stats", *arguments)
        return self.told(" ".join(("ovs-appctl", name, *arguments)))

    def ofctl(self, command: str, bridge: str) -> str:
        """Return what `ovs-ofctl COMMAND BRIDGE` printed, of the newest OpenFlow there is."""
        versions = [*(f"-O OpenFlow1{minor} " for minor in range(5, -1, -1)), ""]
        if command == "show":  # the oldest says more
            versions.reverse()
        said = [f"ovs-ofctl {version}{command} {bridge}" for version in versions]
        for one in said:
            if (text := self._held(one)) is not None:
                return text
        raise Unreachable("sosreport", f"not in it: {said[-1]}")

    def told(self, command: str) -> str:
        """Return the answer to a command; raises Unreachable if there is none."""
        for one in (command, *_OTHERWISE.get(command, ())):
            if (text := self._held(one)) is not None:
                return text
        raise Unreachable("sosreport", f"not in it: {command}")

    def samples(self, command: str) -> list[Answer]:
        """Return the one answer to a command, or none."""
        text = self._held(command)
        return [] if text is None else [Answer(command, self.wall_ns, text)]

    def _held(self, command: str) -> str | None:
        """Return the answer to just this command, unless it was that the command failed."""
        text = self._answers.get(mangled(command))
        if text is None:
            return None
        said = (line for line in text.split("\n") if line.strip() and not _LOGGED.match(line))
        return None if next(said, "").startswith(_REFUSALS) else text
