# SPDX-License-Identifier: Apache-2.0
"""Run the campaign: `python -m tests.campaign --help`."""

import argparse
import gc
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from analyzer.simulate.agents import Noise
from analyzer.simulate.clos import Shape
from analyzer.simulate.failures import TABLE
from tests.campaign.episode import Cluster, Outcome, episode, types_of
from tests.campaign.figures import draw
from tests.campaign.report import lines, plain
from tests.campaign.score import score

EPILOG = """\
examples:
  python -m tests.campaign
  python -m tests.campaign --hosts 256 --episodes 2000 --jobs 2
  python -m tests.campaign --types 1,2,4 --most 1 --episodes 60
  python -m tests.campaign --untraced --types 1,2,3,4
  python -m tests.campaign --episodes 0 --healthy 100 --loss 0.0005

exit status: 0; 1 if a window could not be judged
"""
JUDGED = 1_000_000
"""Seeds from here on judge; thresholds may be tuned on those below."""

_cluster: Cluster | None = None


def _shape(hosts: int, tiers: int) -> Shape:
    segment = 32 if hosts >= 256 else 8
    spines = 16 if hosts >= 256 else 4
    if tiers == 3:
        return Shape(
            hosts=hosts, hosts_per_segment=segment, spines=4, segments_per_pod=2, cores_per_group=4
        )
    return Shape(hosts=hosts, hosts_per_segment=segment, spines=spines)


def _one(task: tuple[int, tuple[int, ...], int]) -> Outcome:
    seed, numbers, windows = task
    assert _cluster is not None
    return episode(_cluster, seed, numbers, windows=windows)


def _outcomes(tasks: list[tuple[int, tuple[int, ...], int]], jobs: int) -> Iterator[Outcome]:
    # Each episode begins from the same warmed state: a process forked for it alone.
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(_one, tasks)


def main() -> int:
    """Run the campaign; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign", description=__doc__, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--hosts", type=int, default=32, help="hosts of 8 RNICs (default: 32)")
    parser.add_argument("--tiers", type=int, default=2, choices=(2, 3), help="of switches")
    parser.add_argument("--episodes", type=int, default=190, help="with failures (default: 190)")
    parser.add_argument("--healthy", type=int, default=20, help="without any (default: 20)")
    parser.add_argument("--most", type=int, default=3, help="failures at once (default: 3)")
    parser.add_argument(
        "--types", default="", help="rows of Table 1, as 1,2,4; 20 and 21 are no faults"
    )
    parser.add_argument("--windows", type=int, default=10, help="of 5 s per episode (default: 10)")
    parser.add_argument("--warm", type=int, default=60, help="windows before (default: 60)")
    parser.add_argument("--seed", type=int, default=JUDGED, help="of the first episode")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--untraced", action="store_true", help="no outer header is seen")
    parser.add_argument(
        "--loss", type=float, default=0.0, metavar="P", help="of any probe, for no reason"
    )
    parser.add_argument("--output", type=Path, help="a JSON line of each episode goes there")
    parser.add_argument("--figure", type=Path, help="an SVG goes there: confusion, reliability")
    parser.add_argument("--json", action="store_true", help="print the score as JSON")
    args = parser.parse_args()
    global _cluster  # noqa: PLW0603 - what forked processes share
    began_s = time.monotonic()
    _cluster = Cluster(
        _shape(args.hosts, args.tiers),
        seed=args.seed,
        traced=not args.untraced,
        noise=Noise(loss=args.loss),
    )
    _cluster.warm(args.warm)
    print(f"warmed in {time.monotonic() - began_s:.0f} s", file=sys.stderr)
    gc.collect()
    gc.freeze()  # what children share stays shared
    among = tuple(int(n) for n in args.types.split(",")) if args.types else TABLE
    tasks = [
        (args.seed + n, types_of(args.seed + n, most=args.most, among=among), args.windows)
        for n in range(args.episodes)
    ]
    tasks += [(args.seed + args.episodes + n, (), args.windows) for n in range(args.healthy)]
    outcomes: list[Outcome] = []
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
    file = args.output.open("w") if args.output else None
    for n, outcome in enumerate(_outcomes(tasks, args.jobs), start=1):
        outcomes.append(outcome)
        if file:
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
        if n % 20 == 0 or n == len(tasks):
            rate = (time.monotonic() - began_s) / n
            print(f"{n} of {len(tasks)} episodes, {rate:.1f} s each", file=sys.stderr)
    if file:
        file.close()
    outcomes.sort(key=lambda each: each.seed)
    result = score(outcomes)
    if args.figure:
        draw(args.figure, result)
    if args.json:
        print(json.dumps(plain(result, outcomes, rnics=args.hosts * 8), indent=2))
    else:
        print("\n".join(lines(result, outcomes, rnics=args.hosts * 8)))
    return 1 if result.broken else 0


if __name__ == "__main__":
    sys.exit(main())
