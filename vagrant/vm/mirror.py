# SPDX-License-Identifier: Apache-2.0
"""The mirror and the settings of this machine's apt, which an image is built from."""

import shutil
import subprocess
from dataclasses import dataclass

from vagrant.vm.errors import VmError

SETTINGS = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries")
"""What of apt's configuration a build takes over: proxies, and how strict it is about dates."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """Where Debian's archives are."""

    debian: str
    security: str


def mirror() -> Mirror:
    """Return the mirror that this machine's apt uses; raise `VmError` if it uses none."""
    if shutil.which("apt-get") is None:
        raise VmError("this machine has no apt", "build images on Debian, or use the Vagrantfile")
    listed = _output("apt-get", "indextargets", "--format", "$(REPO_URI)")
    return chosen(listed.split())


def chosen(uris: list[str]) -> Mirror:
    """Return the mirror among the repositories `uris`, which may name others too."""
    trimmed = [uri.rstrip("/") for uri in uris]
    debian = [uri for uri in trimmed if uri.endswith("/debian")]
    security = [uri for uri in trimmed if uri.endswith("/debian-security")]
    if not debian:
        raise VmError(
            "apt knows no Debian mirror", "build images on Debian, or use the Vagrantfile"
        )
    return Mirror(debian[0], security[0] if security else f"{debian[0]}-security")


def host_settings() -> list[str]:
    """Return the lines of this machine's apt configuration that say how to reach its mirror."""
    return [line for line in _output("apt-config", "dump").splitlines()
            if line.startswith(SETTINGS)]  # fmt: skip


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
