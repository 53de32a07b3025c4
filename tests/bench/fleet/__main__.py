# SPDX-License-Identifier: Apache-2.0
"""`.venv/bin/python -m tests.bench.fleet RNICS`: a real `serve` under a simulated fleet."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analyzer.simulate.agents import WIDTH_NS
from analyzer.simulate.failures import TYPES
from tests.bench.fleet.hosts import NS, RAILS, Load
from tests.bench.fleet.run import Kills, run, told
from tests.bench.fleet.trouble import Machine, Trouble

EPILOG = """
examples:
  .venv/bin/python -m tests.bench.fleet 2048
  .venv/bin/python -m tests.bench.fleet 2048 --types 1,1,1,1,1,1,1,1
  .venv/bin/python -m tests.bench.fleet 8192 --healthy 120 --types ''
  .venv/bin/python -m tests.bench.fleet 2048 --healthy 60 --kill serve,judge
  .venv/bin/python -m tests.bench.fleet 2048 --kill serve,judge --kills 100
  .venv/bin/python -m tests.bench.fleet 256 --clock-steps=180,0,-180,0 --types 2
  .venv/bin/python -m tests.bench.fleet 256 --disk-iops 5 --types 2
  .venv/bin/python -m tests.bench.fleet 256 --disk-full 20 --every 30 --types 2
  .venv/bin/python -m tests.bench.fleet 2048 --healthy 120 --hostile

exit status 1: something else was named, something was not, fewer were killed
than --kills says, a window was not taken, or one that was acknowledged is not
on disk
"""


def main() -> int:
    """Run once; print one JSON line."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m tests.bench.fleet",
        description="Drive a real serve in real time with a simulated fleet.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rnics", type=int, help=f"multiple of {RAILS}")
    parser.add_argument("--types", type=_types, default=(1,), metavar="N,...",
                        help="what fails, rows of Table 1 (default: 1, a lossy link)")  # fmt: skip
    parser.add_argument("--healthy", type=int, default=12, metavar="WINDOWS",
                        help="of 5 s each, before that (default: 12)")  # fmt: skip
    parser.add_argument("--failing", type=int, default=8, metavar="WINDOWS", help="(default: 8)")
    parser.add_argument("--stall", type=int, default=0, metavar="WINDOWS",
                        help="come in one burst, half way through health")  # fmt: skip
    parser.add_argument("--kill", type=lambda text: tuple(text.split(",")), default=(),
                        metavar="WHOM,...", help="of serve and judge, in turn")  # fmt: skip
    parser.add_argument("--kills", type=int, metavar="N",
                        help="end after so many, before anything fails; health lasts "
                        "as long (default: kill until the last window)")  # fmt: skip
    parser.add_argument("--every", type=float, default=12.0, metavar="SECONDS",
                        help="between two kills, steps of the clock, or times "
                        "without room on the disk (default: 12)")  # fmt: skip
    parser.add_argument("--clock-steps", type=_numbers, default=(), metavar="SECONDS,...",
                        help="by which the server's wall clock is off, in turn, each "
                        "for --every seconds; negative ones as --clock-steps=-180,0")  # fmt: skip
    parser.add_argument("--disk-ms", type=int, default=0, metavar="MS",
                        help="that each sync of the server's disk takes longer")  # fmt: skip
    parser.add_argument("--disk-iops", type=int, default=0, metavar="N",
                        help="writes a second that the server's disk takes (root)")  # fmt: skip
    parser.add_argument("--disk-full", type=float, default=0.0, metavar="SECONDS",
                        help="for which the server's disk has no room, again and again after "
                        "--every seconds (root)")  # fmt: skip
    parser.add_argument("--hostile", action="store_true",
                        help="strangers and a stolen key attack meanwhile")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.rnics % RAILS or options.rnics < 2 * RAILS:
        parser.error(f"RNICS is a multiple of {RAILS}, and {2 * RAILS} or more")
    if not set(options.kill) <= {"serve", "judge"}:
        parser.error("--kill takes serve and judge")
    trouble = Trouble(
        options.clock_steps, options.every, options.disk_ms, options.disk_iops, options.disk_full
    )
    if trouble.remedy is not None:
        parser.error(trouble.remedy)
    if options.kills is not None and (options.kills < 1 or not options.kill):
        parser.error("--kills is a number of kills, of those that --kill names")
    kills = Kills(options.kill, options.every, options.kills)
    healthy = max(options.healthy, kills.windows(options.seed))
    load = Load(
        options.rnics, options.seed, options.types, healthy, min(12, healthy),
        options.failing, options.stall,
    )  # fmt: skip
    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:6.1f} s  {text}", file=sys.stderr, flush=True)

    say(f"{load.hosts} hosts, {load.windows * WIDTH_NS // NS} s")
    with tempfile.TemporaryDirectory() as folder, Machine(Path(folder), trouble) as machine:
        outcome = run(load, Path(folder), kills, say, machine, attacked=options.hostile)
        shown = told(outcome)
    print(json.dumps({"bench": "fleet", **shown}), flush=True)
    return int(_is_amiss(shown, kills.times or 0))


def _is_amiss(shown: Mapping[str, Any], kills: int) -> bool:
    """Return whether a run with so many kills showed what it must not."""
    is_wrong = shown["others"] or None in shown["named_s"].values()
    is_short = shown["lost"] or shown["undelivered"] or shown["killed"] < kills
    return bool(is_wrong or is_short)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _types(text: str) -> tuple[int, ...]:
    found = tuple(int(each) for each in text.split(",") if each)
    if not set(found) <= set(TYPES):
        raise argparse.ArgumentTypeError(f"types are {min(TYPES)} to {max(TYPES)}")
    return found


if __name__ == "__main__":
    sys.exit(main())
