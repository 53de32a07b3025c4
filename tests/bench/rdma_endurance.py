# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.bench.rdma_endurance --probes N`: nothing grows, and nothing is left behind.

Probes over a cable between two Soft-RoCE devices, then compares resident memory with what it was
after a warm-up, in the process that probes and in the one that answers, and what the kernel holds
with what it held before. Prints one JSON line, with the memory after each tenth: a leak goes on, a
step does not. Returns 1 where something grew or was left.
"""

import argparse
import ctypes
import json
import sys
import time
from pathlib import Path

from netagent.probing.session import ProbeMeasured, ProbeReplied
from netagent.probing.transport import Outcome
from tests.conftest import RDMA
from tests.rdma.pair import FLOWS, Duet, cabled, duet, eventually, resources

IN_FLIGHT = 32
WARM_UP = 20_000
LIMIT_KB = 1024
SIZES = (64, 500, 1024)
_PR_SET_THP_DISABLE = 41


def rss_kb(pid: int | str) -> int:
    """Return the resident memory of a process, in KiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = (row for row in status.splitlines() if row.startswith("VmRSS"))
    return int(line.split()[1])


def endure(pair: Duet, count: int) -> tuple[int, int]:
    """Send `count` probes, some always under way; return (answered, not answered)."""
    sent = answered = failed = 0
    while answered + failed < count:
        while sent < count and sent - answered - failed < IN_FLIGHT:
            outcome = pair.send(sent % FLOWS, size=SIZES[sent % len(SIZES)]).outcome
            sent += outcome is not Outcome.PENDING
        pair.pump()
        for event in pair.happened:
            if not isinstance(event, ProbeMeasured):
                answered += isinstance(event, ProbeReplied)
                failed += not isinstance(event, ProbeReplied)
        pair.happened.clear()
        pair.told.clear()
    return answered, failed


def _processes(pair: Duet) -> dict[str, int | str]:
    return {"prober": "self", "responder": pair.responders.pid or 0}


def measure(probes: int, warm_up: int = WARM_UP) -> dict[str, object]:
    """Return what came of `probes` probes; raises RuntimeError where something was left."""
    # khugepaged fills up huge pages when it likes, which is no growth of ours. Children inherit it.
    ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
    with cabled(3) as sides:
        before = resources(sides)
        with duet(sides) as pair:
            endure(pair, warm_up)
            first = {name: rss_kb(pid) for name, pid in _processes(pair).items()}
            began_s = time.monotonic()
            answered, failed, grown = 0, 0, {name: [0] for name in first}
            for tenth in range(1, 11):
                some = endure(pair, probes * tenth // 10 - answered - failed)
                answered, failed = answered + some[0], failed + some[1]
                for name, pid in _processes(pair).items():
                    grown[name].append(rss_kb(pid) - first[name])
            seconds = time.monotonic() - began_s
        eventually(lambda: resources(sides) == before, "the clean-up")
    return {
        "probes": probes,
        "answered": answered,
        "not_answered": failed,
        "probes_per_s": round(probes / seconds),
        "rss_kb": {name: first[name] + by_tenth[-1] for name, by_tenth in grown.items()},
        "growth_kb": {name: by_tenth[-1] for name, by_tenth in grown.items()},
        "growth_kb_by_tenth": grown,
        "limit_kb": LIMIT_KB,
        "left_in_the_kernel": 0,
    }


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rdma_endurance")
    parser.add_argument("--probes", type=int, default=1_000_000, help="(default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="(default: %(default)s)")
    arguments = parser.parse_args()
    if not RDMA.present():
        print(f"rdma: {RDMA.remedy}", file=sys.stderr)
        return 1
    found = measure(arguments.probes, arguments.warm_up)
    print(json.dumps(found), flush=True)
    growth, answered = found["growth_kb"], found["answered"]
    grew = not isinstance(growth, dict) or max(growth.values()) >= LIMIT_KB
    # An emulated guest may stand still for longer than a probe waits.
    return int(grew or not isinstance(answered, int) or answered < 0.999 * arguments.probes)


if __name__ == "__main__":
    sys.exit(main())
