# SPDX-License-Identifier: Apache-2.0
"""How well `localize` ranks silent drops in fat-trees, beside baselines: `make eval-localize`."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from analyzer.commands.localize import METHODS, answer
from analyzer.localize.tomography.flowfile import Imported, Row, observed
from analyzer.simulate.fattree import FatTree, Flow, Silent

FLOWS = {8: 2_000, 12: 5_000, 16: 10_000}
"""Ports of a switch -> flows. Chosen: some dozens for each link between switches."""


@dataclass(frozen=True, slots=True)
class Score:
    """One tree, one method."""

    top: float
    """Share of the bad links among as many of the first ranked."""
    worst_rank: int
    """Rank of the bad link that is ranked last; 0 where one is not ranked."""
    exact: bool
    """Whether exactly the bad links are blamed."""
    seconds: float


def row(flow: Flow, *, known: bool) -> Row:
    """Return a flow as a file has it."""
    ways = (flow.ways[flow.taken],) if known else flow.ways
    path = ";".join(map("|".join, ways))
    return Row(flow.source, flow.target, path, flow.sent, flow.lost)


def drawn(k: int, bad: int, known: float, seed: int) -> tuple[Imported, set[str]]:
    """Return the flows of one tree, and its bad links."""
    tree, rng = FatTree(k, Silent(bad), seed=seed), Random(seed)
    rows = (row(each, known=rng.random() < known) for each in tree.flows(FLOWS[k]))
    return observed(enumerate(rows, start=1)), {f"{a}->{b}" for a, b in tree.bad}


def score(imported: Imported, truth: set[str], method: str) -> Score:
    """Rank by one method."""
    began_s = time.monotonic()
    suspects = answer(imported, METHODS[method]).suspects
    took_s = time.monotonic() - began_s
    order = [each.ranked.component for each in suspects]
    blamed = {each.ranked.component for each in suspects if each.ranked.blamed}
    top = len(truth & set(order[: len(truth)])) / len(truth)
    ranks = [order.index(each) + 1 if each in order else 0 for each in truth]
    return Score(top, 0 if 0 in ranks else max(ranks), blamed == truth, took_s)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row per setting and method; with --json, a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ports", type=int, nargs="+", default=sorted(FLOWS), metavar="K")
    parser.add_argument("--bad", type=int, nargs="+", default=[1, 3, 6], metavar="N")
    parser.add_argument("--known", type=float, nargs="+", default=[1.0, 0.3], metavar="SHARE")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if not args.json:
        print("ports  bad  paths known  method      of the bad in top  exact  worst rank  seconds")
    for k, known, bad in product(args.ports, args.known, args.bad):
        scores: dict[str, list[Score]] = {method: [] for method in METHODS}
        for seed in range(args.seeds):
            imported, truth = drawn(k, bad, known, seed)
            for method, each in scores.items():
                each.append(score(imported, truth, method))
        for method, each in scores.items():
            line = summed(each)
            if args.json:
                setting = {"ports": k, "bad": bad, "known": known, "method": method}
                print(json.dumps(setting | line), flush=True)
            else:
                print(
                    f"{k:5}  {bad:3}  {known:11.0%}  {method:10}  {line['top']:17.1%}  "
                    f"{line['exact']:5.0%}  {line['worst_rank']:10.0f}  {line['seconds']:7.2f}",
                    flush=True,
                )
    return 0


def summed(scores: Sequence[Score]) -> dict[str, float]:
    """Return means over trees; of the worst rank, the median of those that ranked all."""
    ranks = sorted(each.worst_rank for each in scores if each.worst_rank)
    return {
        "trees": len(scores),
        "top": sum(each.top for each in scores) / len(scores),
        "exact": sum(each.exact for each in scores) / len(scores),
        "worst_rank": ranks[len(ranks) // 2] if ranks else 0,
        "seconds": sum(each.seconds for each in scores) / len(scores),
    }


if __name__ == "__main__":
    sys.exit(main())
