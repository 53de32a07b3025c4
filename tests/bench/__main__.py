# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.bench [NAME ...]`: run benchmarks, one JSON line each."""

import argparse
import json
import platform
import sys
from collections.abc import Callable

from tests.bench import agent_cost, ingest

BENCHES: dict[str, Callable[[], list[dict[str, object]]]] = {
    "ingest": ingest.run,
    "agent-cost": agent_cost.run,
}


def main() -> int:
    """Run what is asked for; return 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Run benchmarks; one JSON line per result on stdout.",
        epilog="example: python -m tests.bench ingest",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}")
    names = parser.parse_args().names or list(BENCHES)
    unknown = set(names) - BENCHES.keys()
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    machine = {"python": platform.python_version(), "kernel": platform.release()}
    for name in names:
        for row in BENCHES[name]():
            print(json.dumps({"bench": name, **row, **machine}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
