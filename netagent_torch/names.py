# SPDX-License-Identifier: Apache-2.0
"""What a job and its groups are called: the same on all ranks."""

import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

_ODD = re.compile(r"[^A-Za-z0-9_.:/-]+")
MOST_TEXT = 64
"""Most characters of a name. Chosen: longer than those of torchrun and Slurm."""


def job_of(environment: Mapping[str, str]) -> str:
    """Return a name that all ranks of a job have in common; "job" where nothing says one."""
    for key in ("NETAGENT_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        value = environment.get(key, "")
        if value and value != "none":  # torchrun's own default
            return tidy(value)
    address, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    return tidy(f"{address}:{port}") if address and port else "job"


def tidy(text: str) -> str:
    """Return text without what no name needs."""
    return _ODD.sub("-", text)[:MOST_TEXT]


def group_name(number: str, members: Sequence[int], world: int) -> str:
    """Return a name of a group, of which torch has a number (a text) that all ranks share."""
    if len(members) == world:
        place = "world"
    elif len(members) <= 8:
        place = "-".join(map(str, members))
    else:
        digest = zlib.crc32(",".join(map(str, members)).encode())
        place = f"{members[0]}..{members[-1]}~{digest:08x}"
    return tidy(f"{number}:{place}") if number else tidy(place)


def netns() -> int:
    """Return the inode of this process's network namespace; 0 where it cannot be read."""
    try:
        return Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return 0
