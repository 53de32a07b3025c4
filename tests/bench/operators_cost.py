# SPDX-License-Identifier: Apache-2.0
"""What recording costs a job: CPU of hooks, of probes, of an operation, and time of a step.

Hooks alone around methods that do nothing: what is ours. An operation, with and without them in
turn, by a group of one rank over gloo: what of an all-reduce of some bytes is ours, caches that
others emptied meanwhile included. Probes of the same functions that the worker of uprobes watches,
on and off in turn: a reduction of one rank, by CPU of its process, since gloo has threads; what two
ranks send to each other, by CPU of the thread that does; and what the worker takes to read that. A
step on the lab's job, eight ranks over loopback, started with and without in turn; its steps mostly
sleep, as GPUs would work. Needs Debian's python3-torch.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bpf import operators
from bpf.kernel.uprobes import Place, Uprobes
from bpf.trace import collectives

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


PROBED_ROUNDS, PROBED_OPERATIONS = 15, 100
"""What the operations of a round hit has to fit into a CPU's buffer; to probe takes a second."""
PROBED = f"""
import os, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
rank = int(sys.argv[2])
meeting = "file://" + sys.argv[1] + "/meeting"
dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
alone = [dist.new_group([each]) for each in range(2)][rank]
values = torch.ones(4)
def transfer():
    if rank:
        dist.recv(values, 0)
        dist.send(values, 0)
    else:
        dist.send(values, 1)
        dist.recv(values, 1)
run = {{"transfer": transfer, "all_reduce": lambda: dist.all_reduce(values, group=alone)}}
clocks = {{"transfer": time.thread_time_ns, "all_reduce": time.process_time_ns}}
print("ready", flush=True)
for line in sys.stdin:
    what = line.strip()
    began = clocks[what]()
    for _ in range({PROBED_OPERATIONS}):
        run[what]()
    print((clocks[what]() - began) / {PROBED_OPERATIONS}, flush=True)
"""


def run() -> Iterator[dict[str, object]]:
    """Yield a row for an operation, and one for a step of the real job."""
    # Rings are in memory where jobs run: on a disk, what is written is tracked page by page.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder in it
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield _hooks(Path(name))
        yield _operation(Path(name))
        yield from _probed(Path(name))
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


def _probed(folder: Path) -> Iterator[dict[str, object]]:
    """Measure what probes cost two ranks, and who reads what they see."""
    machine = platform.machine()
    words = {each.symbol: collectives.arguments(each, machine) for each in collectives.FUNCTIONS}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROBED, str(folder), str(rank)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        for each in ranks:
            if each.stdout is None or each.stdout.readline() != "ready\n":
                raise SystemExit("operators-cost: the job failed; is python3-torch installed?")
        with ExitStack() as files:
            places = operators._places(operators._libraries(), {}, files)
            for what in ("all_reduce", "transfer"):
                yield _probed_row(
                    what, [_pair(ranks, what, places, words) for _ in range(PROBED_ROUNDS)]
                )
    finally:
        for each in ranks:
            each.kill()
            each.wait()


def _pair(
    ranks: list["subprocess.Popen[str]"], what: str, places: list[Place], words: dict[str, str]
) -> tuple[float, float, float, float]:
    """Return CPU of an operation without and with probes; the reader's; and hits of each (ns)."""
    off = _round(ranks, what)
    with Uprobes(places, words) as probes:
        on = _round(ranks, what)
        began = time.process_time_ns()
        hits = probes.take(time.monotonic_ns())
        collectives.Pairing().take(hits)
        read = time.process_time_ns() - began
        if probes.lost:
            raise SystemExit("operators-cost: probes shed some of what they saw")
    each = PROBED_OPERATIONS * len(ranks)
    return off, on, read / each, len(hits) / each


def _round(ranks: list["subprocess.Popen[str]"], what: str) -> float:
    for each in ranks:
        if each.stdin is not None:
            each.stdin.write(f"{what}\n")
            each.stdin.flush()
    return statistics.mean(float(each.stdout.readline()) for each in ranks if each.stdout)


def _probed_row(what: str, found: list[tuple[float, float, float, float]]) -> dict[str, object]:
    more = [on - off for off, on, _, _ in found]
    named = {
        "all_reduce": "all_reduce of one rank, probed, CPU of its process",
        "transfer": "a send and a receive, probed, CPU of their thread",
    }
    return {
        "what": named[what],
        "without_us": round(statistics.median(off for off, *_ in found) / 1e3, 2),
        "with_us": round(statistics.median(on for _, on, *_ in found) / 1e3, 2),
        "recording_us": round(statistics.median(more) / 1e3, 2),
        "recording_quartiles_us": [
            round(each / 1e3, 2) for each in statistics.quantiles(more, n=4)[::2]
        ],
        "reading_us": round(statistics.median(read for *_, read, _ in found) / 1e3, 2),
        "hits": round(statistics.median(hits for *_, hits in found), 1),
        "pairs": len(found),
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
