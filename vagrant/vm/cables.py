# SPDX-License-Identifier: Apache-2.0
"""Cables between guests: where the two ends of each find one another."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vagrant.vm.errors import VmError
from vagrant.vm.qemu import Cable

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


def folder() -> Path:
    """Return this user's folder of cable ends; a socket's whole path has 107 bytes at most."""
    return Path(tempfile.gettempdir(), f"netagent-vm-cables-{os.geteuid()}")


@contextmanager
def plugged(name: str, index: int) -> Iterator[Cable]:
    """Yield end `index` of the cable `name`; its socket is gone afterwards.

    The guests may be started in any order: what is sent before the other end is there is lost, as
    on a real cable.
    """
    if not _NAME.fullmatch(name):
        raise VmError(f"{name!r} names no cable", "use a-z, 0-9 and -, 32 characters at most")
    if index not in {0, 1}:
        raise VmError("a cable has the ends 0 and 1", "give --index 0 or --index 1")
    ends = folder()
    ends.mkdir(mode=0o700, exist_ok=True)
    here, there = (ends / f"{name}.{each}" for each in (index, 1 - index))
    try:
        yield Cable(here, there, index)
    finally:
        here.unlink(missing_ok=True)
        with suppress(OSError):  # the other end is still plugged in
            ends.rmdir()
