# SPDX-License-Identifier: Apache-2.0
"""What reductions took in recorded logs: `python -m tests.analyzer.operators.recorded_times`."""

import csv
import gzip
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, median

FOLDER = Path(__file__).with_name("recorded")
LOGS = ("lossy-uplink.before", "lossy-uplink", "slow-uplink.before", "slow-uplink")
GRADIENTS = "131072"
"""Bytes of the larger reductions."""


def gradients_ms(name: str) -> Mapping[str, list[float]]:
    """Return what the shortest that anybody measured of each large reduction took, by group."""
    least: dict[tuple[str, str], float] = {}
    with gzip.open(FOLDER / f"{name}.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["kind"] == "collective" and row["bytes"] == GRADIENTS and row["end_us"]:
                key = row["group"], row["sequence"]
                took = (int(row["end_us"]) - int(row["start_us"])) / 1000
                least[key] = min(took, least.get(key, took))
    found: dict[str, list[float]] = defaultdict(list)
    for (group, _), took in sorted(least.items()):
        found[group].append(took)
    return found


def main() -> int:
    """Print medians and means by log and group."""
    for name in LOGS:
        by_group = gradients_ms(name).items()
        said = (f"{group} {median(ms):.0f} ({mean(ms):.0f})" for group, ms in by_group)
        print(f"{name:20} median (mean) of ms: {', '.join(said)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
