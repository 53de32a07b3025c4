# SPDX-License-Identifier: Apache-2.0
"""`.venv/bin/python -m tests.bench [NAME ...]`: run benchmarks, one JSON line each."""

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterable

from tests.analyzer.controllers.central import OVSDB
from tests.bench import (
    agent_attacked,
    agent_churn,
    agent_cost,
    backing_up,
    bpf,
    flows,
    history,
    ingest,
    intent,
    joining,
    judging,
    month,
    operators,
    operators_cost,
    rdma,
    receiving,
    scale,
    scrape,
    skeleton,
    tiers,
    views,
)
from tests.conftest import KERNEL, RDMA

BENCHES: dict[str, Callable[[], Iterable[dict[str, object]]]] = {
    "ingest": ingest.run,
    "intent": intent.run,
    "joining": joining.run,
    "judging": judging.run,
    "operators": operators.run_all,
    "receiving": receiving.run,
    "scale": scale.run,
    "scrape": scrape.run,
    "backup": backing_up.run,
    "history": history.run,
    "month": month.run,
    "tiers": tiers.run,
    "views": views.run,
    "agent-cost": agent_cost.run,
    "agent-cost-rdma": agent_cost.run_rdma,
    "agent-attacked": agent_attacked.run,
    "agent-churn": agent_churn.run,
    "skeleton": skeleton.run,
    "flows": flows.run,
    "operators-cost": operators_cost.run,
    "rdma": rdma.run,
    "bpf": bpf.run,
}
NEEDS = {"intent": OVSDB, "rdma": RDMA, "agent-cost-rdma": RDMA, "bpf": KERNEL}


def main() -> int:
    """Run what is asked for; return 1 where that cannot run here. Without names, run what can."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m tests.bench",
        description="Run benchmarks; one JSON line per result on stdout.",
        epilog="example: .venv/bin/python -m tests.bench ingest (half a minute; all of them take\n"
        "minutes, and flows needs root); exit status 1: it cannot run here",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}")
    asked = parser.parse_args().names
    names = asked or list(BENCHES)
    unknown = set(names) - BENCHES.keys()
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    machine = {"python": platform.python_version(), "kernel": platform.release()}
    lacking = {name: NEEDS[name] for name in names if name in NEEDS and not NEEDS[name].present()}
    for name in names:
        if name in lacking:
            print(f"{name}: not here; {lacking[name].remedy}", file=sys.stderr)
            continue
        for row in BENCHES[name]():
            print(json.dumps({"bench": name, **row, **machine}), flush=True)
    return int(bool(lacking) and bool(asked))


if __name__ == "__main__":
    sys.exit(main())
