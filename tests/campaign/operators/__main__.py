# SPDX-License-Identifier: Apache-2.0
"""Run the campaign over operators' logs: `python -m tests.campaign.operators --help`."""

import argparse
import json
import lzma
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

from analyzer.simulate.operators.faults import Fault
from tests.campaign.journal import version
from tests.campaign.operators.episode import JUDGING, SHAPES, Outcome, episode, outcome
from tests.campaign.operators.report import plain, table

EPILOG = """\
examples:
  python -m tests.campaign.operators
  python -m tests.campaign.operators --ranks 2048 --episodes 1000 --output build/operators.jsonl
  python -m tests.campaign.operators --score docs/campaign-operators.jsonl.xz

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
    parser.add_argument("--fault", type=Fault, help="this one alone, such as 'slow host'")
    parser.add_argument("--score", type=Path, help="run nothing; count what a file has (also .xz)")
    asked = parser.parse_args()
    if asked.score:
        body = asked.score.read_bytes()
        body = lzma.decompress(body) if asked.score.suffix == ".xz" else body
        outcomes = [_read(line) for line in body.decode().splitlines()]
    else:
        outcomes = _run(asked)
    of_size = {
        size: [each for each in outcomes if each.ranks == size]
        for size in sorted({each.ranks for each in outcomes})
    }
    figures = {size: list(plain(some)) for size, some in of_size.items()}
    for size, told in figures.items():
        for figure in told:
            print(json.dumps({"ranks": size} | figure))
    for size, some in of_size.items():
        most_s = max(each.seconds for each in some)
        print(f"\n{size} ranks, {len(some)} episodes, at most {most_s:.1f} s each")
        print("\n".join(table(figures[size])))
    versions = Counter(each.version for each in outcomes)
    print(f"\nversions: {', '.join(f'{n} by {name}' for name, n in sorted(versions.items()))}")
    return 0


def _run(asked: argparse.Namespace) -> list[Outcome]:
    done = []
    if asked.output and asked.output.exists():
        done = [_read(line) for line in asked.output.read_text().splitlines()]
    known = {each.seed for each in done}
    for seed in range(asked.seed, asked.seed + asked.episodes):
        if seed in known:
            continue
        made = replace(outcome(episode(seed, asked.ranks, asked.fault)), version=version())
        done.append(made)
        if asked.output:
            with asked.output.open("a") as out:
                out.write(json.dumps(asdict(made)) + "\n")
        if len(done) % 20 == 0:
            print(f"{len(done)} episodes", file=sys.stderr)
    return done


def _read(line: str) -> Outcome:
    values = json.loads(line)
    lists = {name: tuple(values[name]) for name in ("faults", "named") if name in values}
    return Outcome(**values | lists)


if __name__ == "__main__":
    sys.exit(main())
