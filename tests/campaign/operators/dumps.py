# SPDX-License-Identifier: Apache-2.0
"""Who holds up a job that stands still, from dumps of every kind and version.

`python -m tests.campaign.operators.dumps` writes folders as PyTorch 2.2 to 2.6 does, asks
`netagent-analyzer operators FOLDER --json`, and prints by kind how often exactly those were named.
"""

import argparse
import contextlib
import io
import json
import pickle
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.cli import main as analyzer
from tests.analyzer.operators.sources.jobs import SHAPES, Job, Op, Still

VERSIONS = ("2.2", "2.3", "2.4", "2.5", "2.6")
"""Of PyTorch."""
_NAMES = ("nccl_trace_rank_{}", "_dump_{}", "comm_lib_trace_rank_{}")
KINDS = (
    "a rank never came", "a rank is one behind", "another operation", "another size", "left out",
    "the network", "a dead rank", "an earlier group", "a peer of a pipeline", "cut rings",
    "different moments", "at work",
)  # fmt: skip


_PIPED = "a peer of a pipeline"
_DIFFERENT = ("another operation", "another size", "left out")


@dataclass(frozen=True, slots=True)
class Case:
    """A folder's dumps, and who is to blame."""

    kind: str
    dumps: Mapping[int, Any]
    truth: frozenset[int]
    network: bool = False


def case(seed: int, kind: str) -> Case:
    """Return the dumps of a seed, of PyTorch 2.6, and the truth."""
    rng = random.Random(seed)
    shape = rng.choice([each for each in SHAPES if kind != _PIPED or each[1] > 1])
    job = Job(*shape, steps=rng.choice([3, 6]), ahead=rng.choice([1, 2, 4, 9]))
    if kind == "the network":
        return _network(rng, job)
    if kind == "at work":
        return _at_work(rng, job)
    rank = rng.randrange(job.world)
    if kind in _DIFFERENT:
        _differs(rng, job, rank, kind)
    else:
        job.cpu_stops[rank] = _stop(rng, job, rank, kind)
    ring = rng.choice([8, 12, 20]) if kind == "cut rings" else 2000
    still = job.run()
    dumps = _dumps(still, ring=ring, timing=rng.random() < 0.3)
    if kind == "a dead rank":
        del dumps[rank]
    if kind == "different moments":
        others = [each for each in dumps if each != rank]
        for each in rng.sample(others, min(len(others), rng.choice([1, 1, 2]))):
            early = job.run(max(still.rounds - rng.choice([1, 2, 3, 5]), 1))
            dumps[each] = early.dump(each, timing=False, ring=ring, config=True)
    return Case(kind, dumps, frozenset({rank}))


def _stop(rng: random.Random, job: Job, rank: int, kind: str) -> int:
    """Return the place in a rank's program that it never issues."""
    program = job.programs[rank]
    half = len(program) // 2
    if kind == "a rank is one behind":
        return max(n for n in range(len(program)) if job.is_large(program[n]))
    if kind == "an earlier group":
        return next(
            n
            for n in range(rng.randrange(half, len(program)), -1, -1)
            if (program[n].peer < 0 and len(job.groups[program[n].group]) < job.world) or n == 0
        )
    if kind == _PIPED:
        return rng.choice([n for n in range(half, len(program)) if program[n].peer >= 0])
    return rng.randrange(half, len(program))


def _differs(rng: random.Random, job: Job, rank: int, kind: str) -> None:
    program = job.programs[rank]
    at = rng.choice([n for n in range(len(program)) if job.is_large(program[n])])
    op = program[at]
    if kind == "left out":
        del program[at]
    elif kind == "another size":
        program[at] = Op(op.name, op.group, op.size * 3)
    else:
        program[at] = Op("broadcast", op.group, op.size)


def _at_work(rng: random.Random, job: Job) -> Case:
    """Return dumps of a job at work, which were asked for one after the other."""
    middle = rng.randrange(5, max(job.run().rounds - 5, 6))
    dumps = {
        rank: job.run(middle + rng.randrange(4)).dump(rank, timing=False, ring=2000, config=True)
        for rank in range(job.world)
    }
    return Case("at work", dumps, frozenset())


def _network(rng: random.Random, job: Job) -> Case:
    """Return a job in which one collective of one group ends at nobody."""
    name = rng.choice([each for each, ranks in job.groups.items() if len(ranks) > 1])
    members = job.groups[name]
    first = [n for n, op in enumerate(job.programs[members[0]]) if op.group == name and op.peer < 0]
    nth = rng.randrange(len(first) // 2, len(first))
    for rank in members:
        own = [n for n, op in enumerate(job.programs[rank]) if op.group == name and op.peer < 0]
        job.gpu_stops[rank] = own[nth]
    return Case("the network", _dumps(job.run()), frozenset(members), network=True)


def _dumps(still: Still, *, ring: int = 2000, timing: bool = False) -> dict[int, Any]:
    return {
        rank: still.dump(rank, timing=timing, ring=ring, config=True)
        for rank in range(still.job.world)
    }


def written(value: Any, version: str, *, as_json: bool) -> bytes:
    """Return a dump as a version of PyTorch writes it."""
    entries = [_entry(each, version) for each in value["entries"]]
    if version == "2.2":
        return pickle.dumps(entries, protocol=2)
    number = {"2.3": "1.5", "2.4": "2.3", "2.5": "2.4", "2.6": "2.5"}[version]
    config = {
        name: {"name": name, "desc": each["desc"], "ranks": each["ranks"]}
        for name, each in value["pg_config"].items()
    }
    made: dict[str, Any] = {"version": number, "entries": entries, "pg_config": config}
    if version >= "2.4":
        made["pg_status"] = _status(value["entries"], as_json=as_json)
        made["nccl_comm_state"] = {}
    if not as_json:
        return pickle.dumps(made, protocol=2)
    for each in entries:
        for name in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            each[name] = each[name] or 0
    if not entries:
        del made["entries"]
    return json.dumps(made).encode()


def _status(entries: list[Mapping[str, Any]], *, as_json: bool) -> dict[str, Any]:
    made: dict[str, dict[str, Any]] = {}
    for each in entries:
        if each["is_p2p"]:
            continue
        own = made.setdefault(str(each["pg_id"]), {
            f"last_{name}_collective": -1 for name in ("enqueued", "started", "completed")
        })  # fmt: skip
        own["last_enqueued_collective"] = each["collective_seq_id"]
        if each["state"] == "completed":
            own["last_completed_collective"] = own["last_started_collective"] = each[
                "collective_seq_id"
            ]
    if as_json:
        return {name: {k: str(v) for k, v in own.items()} for name, own in made.items()}
    return made


def _entry(raw: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return an entry as a version has it."""
    made = {**raw, "frames": [{"name": "step", "filename": "train.py", "line": 7}]}
    if version in ("2.2", "2.3"):
        made["seq_id"] = raw["p2p_seq_id" if raw["is_p2p"] else "collective_seq_id"]
        for name in ("collective_seq_id", "p2p_seq_id", "is_p2p", "timeout_ms", "op_id"):
            made.pop(name, None)
    if version == "2.2":
        for name in ("record_id", "process_group", "input_dtypes", "output_dtypes", "retired",
                     "time_discovered_started_ns", "time_discovered_completed_ns",
                     "duration_ms"):  # fmt: skip
            made.pop(name, None)
        made["time_created_us"] = made.pop("time_created_ns") // 1000
    elif version == "2.3":
        made["pg_name"] = made.pop("process_group")[0]
        del made["input_dtypes"], made["output_dtypes"]
    return made


def asked(folder: Path) -> dict[str, Any]:
    """Return what the real command prints of a folder."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        analyzer(["operators", str(folder), "--json"])
    said: dict[str, Any] = json.loads(out.getvalue())
    return said


def tried(each: Case, version: str, *, as_json: bool, name: str) -> dict[str, Any]:
    """Write a case into a folder, and return what is said of it."""
    with tempfile.TemporaryDirectory() as folder:
        for rank, value in each.dumps.items():
            file = Path(folder) / (name.format(rank) + (".json" if as_json else ""))
            file.write_bytes(written(value, version, as_json=as_json))
        return asked(Path(folder))


def main() -> int:
    """Try seeds and print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.operators.dumps")
    parser.add_argument("--episodes", type=int, default=10, help="of each kind and version")
    parser.add_argument("--seed", type=int, default=1_000_000)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for kind in options.kind or KINDS:
        for version in VERSIONS:
            for seed in range(options.seed, options.seed + options.episodes):
                _try(kind, version, seed, counts, verbose=options.verbose)
    for name, (right, extra, unsure, of) in counts.items():
        print(f"{name:32} right {right:4}/{of:<4} cannot tell {unsure:4} extra {extra:3}")
    return 0


def _try(
    kind: str, version: str, seed: int, counts: dict[str, list[int]], *, verbose: bool
) -> None:
    each, rng = case(seed, kind), random.Random(seed)
    as_json = version > "2.2" and rng.random() < 0.5
    said = tried(each, version, as_json=as_json, name=rng.choice(_NAMES))
    named = [frozenset(one["ranks"]) for one in said["culprits"]]
    right = named == ([each.truth] if each.truth else [])
    extra = any(not one <= each.truth for one in named)
    for name in (kind, f"{kind} {'JSON' if as_json else 'pickle'}", f"PyTorch {version}"):
        for at, hit in enumerate((right, extra, said["verdict"] == "insufficient evidence", True)):
            counts[name][at] += hit
    if verbose and not right:
        shown = [sorted(one) for one in named]
        print(
            f"{seed} {kind} {version} {'json' if as_json else 'pickle'}: {said['verdict']}, named "
            f"{shown}, truth {sorted(each.truth)}: {said['summary']}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
