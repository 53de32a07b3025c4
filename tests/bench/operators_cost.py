# SPDX-License-Identifier: Apache-2.0
"""What recording costs a job: CPU of hooks, of an operation, and time of a step.

Hooks alone around methods that do nothing: what is ours. An operation, with and without them in
turn, by a group of one rank over gloo: what of an all-reduce of some bytes is ours, caches that
others emptied meanwhile included. A step on the lab's job, eight ranks over loopback, started with
and without in turn; its steps mostly sleep, as GPUs would work. Needs Debian's python3-torch.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROUNDS, OPERATIONS = 40, 1000
JOBS, STEPS = 3, 25
RANKS = 8

ALONE = f"""
import json, os, sys, tempfile, time, torch, torch.distributed as dist, netagent_torch
torch.set_num_threads(1)
meeting = tempfile.mktemp()
dist.init_process_group("gloo", init_method="file://" + meeting, rank=0, world_size=1)
values = torch.ones(4)
def spent():
    began = time.thread_time_ns()
    for _ in range({OPERATIONS}):
        dist.all_reduce(values)
    return (time.thread_time_ns() - began) / {OPERATIONS}
def recorded():
    netagent_torch.start({{"NETAGENT_OPERATORS": sys.argv[1]}})
    try:
        return spent()
    finally:
        netagent_torch.stop()
spent(), recorded()
pairs = [(spent(), recorded()) for _ in range({ROUNDS})]
print(json.dumps(pairs))
"""


HOOKS = f"""
import json, sys, time, torch
from pathlib import Path
from netagent_torch.recorder import Recorder
from netagent_torch.ring import Ring
class Nothing:
    def allreduce(self, tensors, options):
        return self
    def wait(self):
        return True
recorder, group = Recorder(Ring(Path(sys.argv[1]) / "hooks.ring")), Nothing()
recorder._groups[id(group)] = (0, {{-1: 0}}, (0, 1))
issue, wait = recorder._collective(Nothing.allreduce, 0, 0), recorder._waiting(Nothing.wait)
tensor = torch.ones(4)
def spent(issue, wait):
    began = time.thread_time_ns()
    for _ in range({OPERATIONS}):
        wait(issue(group, [tensor], None))
    return (time.thread_time_ns() - began) / {OPERATIONS}
pairs = [(spent(Nothing.allreduce, Nothing.wait), spent(issue, wait)) for _ in range({ROUNDS})]
print(json.dumps(pairs))
"""


def run() -> Iterator[dict[str, object]]:
    """Yield a row for an operation, and one for a step of the real job."""
    # Rings are in memory where jobs run: on a disk, what is written is tracked page by page.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder in it
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield _hooks(Path(name))
        yield _operation(Path(name))
        yield _steps(Path(name))


def _pairs(script: str, folder: Path) -> list[tuple[float, float]]:
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], check=True, capture_output=True, text=True
    )
    found: list[tuple[float, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _hooks(folder: Path) -> dict[str, object]:
    """Measure hooks alone; of rounds the median, and the least, which other work delayed least."""
    more = [on - off for off, on in _pairs(HOOKS, folder)]
    return {
        "what": "hooks around an all_reduce that does nothing, CPU of its thread",
        "recording_us": round(statistics.median(more) / 1e3, 2),
        "recording_least_us": round(min(more) / 1e3, 2),
        "pairs": len(more),
        "target_us": 2,
    }


def _operation(folder: Path) -> dict[str, object]:
    pairs = _pairs(ALONE, folder)
    more = [on - off for off, on in pairs]
    return {
        "what": "all_reduce of one rank, CPU of its thread",
        "without_us": round(statistics.median(off for off, _ in pairs) / 1e3, 2),
        "with_us": round(statistics.median(on for _, on in pairs) / 1e3, 2),
        "recording_us": round(statistics.median(more) / 1e3, 2),
        "recording_quartiles_us": [
            round(each / 1e3, 2) for each in statistics.quantiles(more, n=4)[::2]
        ],
        "pairs": len(pairs),
        "target_us": 2,
    }


def _steps(folder: Path) -> dict[str, object]:
    took: dict[bool, list[float]] = {True: [], False: []}
    for number in range(JOBS):
        for recording in (False, True) if number % 2 == 0 else (True, False):
            took[recording] += _job(folder / f"{number}-{recording}", recording=recording)
    return {
        "what": "step of the lab's job, 8 ranks over loopback",
        "without_ms": round(1e3 * statistics.median(took[False]), 1),
        "with_ms": round(1e3 * statistics.median(took[True]), 1),
        "steps": len(took[True]),
    }


def _job(folder: Path, *, recording: bool) -> list[float]:
    """Return how long each step took rank 0, without the first ones."""
    folder.mkdir()
    given = {
        **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
        "NETAGENT_OPERATORS": str(folder), "NETAGENT_TORCH": str(int(recording)),
    }  # fmt: skip
    size = ("--hidden", "64", "--tokens", "32", "--forward-s", "0.02", "--pause-s", "0")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.lab.train", "--folder", str(folder), "--rank", str(rank),
             "--steps", str(STEPS), *size],
            env=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    said = [rank.communicate(timeout=300)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit("operators-cost: the job failed; is python3-torch installed?")
    lines = [line for line in said[0].splitlines() if line.startswith("step ")]
    return [float(line.split()[2]) for line in lines[5:]]
