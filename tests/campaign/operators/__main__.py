# SPDX-License-Identifier: Apache-2.0
"""Run the campaign over operators' logs: `python -m tests.campaign.operators --help`."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from tests.campaign.operators.episode import JUDGING, SHAPES, Outcome, episode, outcome
from tests.campaign.operators.report import plain, table

EPILOG = """\
examples:
  python -m tests.campaign.operators
  python -m tests.campaign.operators --ranks 2048 --episodes 1000 --output build/operators.jsonl
  python -m tests.campaign.operators --score build/operators.jsonl

exit status: 0
"""


def main() -> int:
    """Run episodes and print what they come to, as a table and as JSON lines."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign.operators", description=__doc__, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--ranks", type=int, default=256, choices=sorted(SHAPES))
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=JUDGING)
    parser.add_argument("--output", type=Path, help="append each outcome as a JSON line")
    parser.add_argument("--score", type=Path, help="count what a file has; run nothing")
    asked = parser.parse_args()
    if asked.score:
        outcomes = [_read(line) for line in asked.score.read_text().splitlines()]
    else:
        outcomes = _run(asked)
    figures = list(plain(outcomes))
    for each in figures:
        print(json.dumps(each))
    print(
        f"\n{len(outcomes)} episodes, at most {max(each.seconds for each in outcomes):.1f} s each"
    )
    print("\n".join(table(figures)))
    return 0


def _run(asked: argparse.Namespace) -> list[Outcome]:
    done = []
    if asked.output and asked.output.exists():
        done = [_read(line) for line in asked.output.read_text().splitlines()]
    known = {each.seed for each in done}
    for seed in range(asked.seed, asked.seed + asked.episodes):
        if seed in known:
            continue
        made = outcome(episode(seed, asked.ranks))
        done.append(made)
        if asked.output:
            with asked.output.open("a") as out:
                out.write(json.dumps(asdict(made)) + "\n")
        if len(done) % 20 == 0:
            print(f"{len(done)} episodes", file=sys.stderr)
    return done


def _read(line: str) -> Outcome:
    values = json.loads(line)
    return Outcome(**values | {"faults": tuple(values["faults"])})


if __name__ == "__main__":
    sys.exit(main())
