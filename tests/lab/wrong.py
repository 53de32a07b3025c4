# SPDX-License-Identifier: Apache-2.0
"""What the lab has its training job do wrong, as the job itself reads it."""

import json
from dataclasses import dataclass
from pathlib import Path

NOTE = "wrong.json"
"""What is wrong with the job: {"kind": ..., "rank": ..., "factor": ..., "seconds": ...}."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong with this rank, from the step on in which it is read."""

    factor: float = 1.0
    """By which its GPU is slower."""
    loads_s: float = 0.0
    """Seconds by which its data loader is late."""
    skips: bool = False
    """Whether it leaves out one collective."""
    collects_s: float = 0.0
    """Seconds for which it collects garbage in this step."""

    @classmethod
    def read(cls, folder: Path, rank: int, stage: int, step: int) -> "Wrong":
        """Return what the note says of a rank."""
        try:
            note = json.loads((folder / NOTE).read_text())
        except (FileNotFoundError, ValueError):  # none, or being written
            return cls()
        kind, mine = note["kind"], note.get("rank") == rank
        if kind == "imbalance" and note["stage"] == stage:
            return cls(factor=note["factor"])
        if kind == "garbage" and step % 3 == rank % 3:
            return cls(collects_s=note["seconds"])
        if kind == "slow-rank" and mine:
            return cls(factor=note["factor"])
        if kind == "slow-loader" and mine:
            return cls(loads_s=note["seconds"])
        return cls(skips=kind == "skipped" and mine)
