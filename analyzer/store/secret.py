# SPDX-License-Identifier: Apache-2.0
"""The secret that keys of groups are made of: a file that its owner alone reads."""

import contextlib
import os
import secrets
from pathlib import Path

import structlog

SECRET_BYTES = 32
"""Bytes of it. Chosen: as many as BLAKE2b's keys of groups are worth twice over."""

log = structlog.get_logger()


def kept_secret(path: Path) -> bytes:
    """Return the secret in the file at `path`, which is made where there is none.

    One that is damaged is replaced. Where the disk refuses, it is another one after each start:
    probes have other seals then until all agents have heard of it, and are answered all the same.
    """
    with contextlib.suppress(OSError):
        known = path.read_bytes()
        if len(known) == SECRET_BYTES:
            return known
    made = secrets.token_bytes(SECRET_BYTES)
    fresh = path.with_suffix(".new")
    try:
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(made)
        fresh.replace(path)
    except OSError as error:
        log.warning("secret_not_kept", path=str(path), error=str(error))
    return made
