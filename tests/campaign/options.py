# SPDX-License-Identifier: Apache-2.0
"""What a campaign is told: which fabric, which episodes, and how to run and tell them."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from analyzer.simulate.agents import Noise
from analyzer.simulate.clos import Shape
from analyzer.simulate.failures import TABLE, TYPES

EPILOG = """\
examples:
  python -m tests.campaign
  python -m tests.campaign --hosts 256 --episodes 2000 --jobs 2 --output build/full.jsonl --resume
  python -m tests.campaign --types 1 --same 8 --episodes 60
  python -m tests.campaign --untraced --types 1,2,3,4 --most 1
  python -m tests.campaign --episodes 0 --healthy 100 --loss 0.0005
  python -m tests.campaign --score build/full.jsonl

exit status: 0; 1 if a window could not be judged, 2 if options make no sense
"""
JUDGING = range(1_000_000, 2_000_000), range(9_000_000, sys.maxsize)
"""Seeds that judge. Thresholds were tuned on those below, and rules follow from those between; one
followed from the first million that judge, too (docs/campaign.md)."""
LOSS = 1e-5
"""Probability that a probe is lost for no reason, unless told. Chosen: some strays in each minute
of 256 RNICs; fabrics that forward well lose less, and a host's stack now and then drops one."""

PODS = 4
"""Pods of a fabric of three tiers, of two segments each. Chosen: links of one core can be told from
each other."""


def judges(seed: int) -> bool:
    """Return whether no rule and no threshold was made of episodes such as this seed's."""
    return any(seed in each for each in JUDGING)


@dataclass(frozen=True)
class Options:
    """All that decides what comes out of the episodes."""

    hosts: int = 32
    tiers: int = 2
    episodes: int = 190
    healthy: int = 20
    most: int = 3
    same: int = 0
    types: str = ""
    windows: int = 10
    warm: int = 60
    seed: int = JUDGING[0].start
    untraced: bool = False
    loss: float = LOSS
    bursts: bool = False
    rehash: bool = False
    spray: bool = False
    churn: float = 0.0
    rotate: int = 0

    @property
    def rnics(self) -> int:
        """Return the number of RNICs."""
        return self.shape.rnics

    @property
    def shape(self) -> Shape:
        """Return the fabric's shape."""
        segment, spines = (32, 16) if self.hosts >= 256 else (8, 4)
        if self.tiers == 3:
            # Of two pods, all that crosses a core would cross both of its links.
            return Shape(
                self.hosts, hosts_per_segment=max(1, self.hosts // (2 * PODS)), spines=4,
                segments_per_pod=2, cores_per_group=4,
            )  # fmt: skip
        return Shape(self.hosts, hosts_per_segment=segment, spines=spines)

    @property
    def noise(self) -> Noise:
        """Return what a healthy fabric shows."""
        return Noise(loss=self.loss)

    @property
    def among(self) -> tuple[int, ...]:
        """Return the types that failures are drawn from."""
        return tuple(int(n) for n in self.types.split(",")) if self.types else TABLE

    def unlike(self, other: "Options") -> list[str]:
        """Return the options that differ, as "NAME: OTHER there, OURS here"."""
        ours, theirs = asdict(self), asdict(other)
        return [
            f"{name}: {theirs[name]!r} there, {ours[name]!r} here"
            for name in ours
            if ours[name] != theirs[name]
        ]


@dataclass(frozen=True)
class Manner:
    """How episodes are run, and where what comes out goes."""

    jobs: int = 2
    output: Path | None = None
    resume: bool = False
    score: Path | None = None
    figure: Path | None = None
    json: bool = False


def read(arguments: list[str] | None = None) -> tuple[Options, Manner]:
    """Return what the command line says; exits with 2 where it makes no sense."""
    parser = _parser()
    args = vars(parser.parse_args(arguments))
    options = Options(**{each.name: args[each.name] for each in fields(Options)})
    manner = Manner(**{each.name: args[each.name] for each in fields(Manner)})
    problem = _problem(options, manner)
    if problem:
        parser.error(problem)
    return options, manner


def _problem(options: Options, manner: Manner) -> str | None:
    try:
        unknown = [str(n) for n in options.among if n not in TYPES]
    except ValueError:
        return f"--types {options.types}: numbers, as 1,2,4"
    if unknown:
        return f"--types: no type {', '.join(unknown)}"
    segment = options.shape.hosts_per_segment
    if options.hosts < 2 * segment or options.hosts % segment:
        return f"--hosts: a multiple of {segment}, twice at least: one segment has no links"
    if manner.resume and manner.output is None:
        return "--resume needs --output FILE, which has what ran already"
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign", description="Run the campaign, or print its score.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    what = parser.add_argument_group("what is simulated")
    new = Options()

    def number(
        name: str,
        help_: str,
        kind: type = int,
        choices: Sequence[int] | None = None,
        metavar: str | None = None,
    ) -> None:
        default = getattr(new, name)
        what.add_argument(
            f"--{name}", type=kind, default=default, choices=choices, metavar=metavar,
            help=f"{help_} (default: {default})",
        )  # fmt: skip

    number("hosts", "hosts of 8 RNICs")
    number("tiers", "of switches", choices=(2, 3))
    number("episodes", "with failures")
    number("healthy", "without any")
    number("most", "failures at once, one to so many")
    number("same", "failures at once, always as many; 0: as --most says", metavar="N")
    what.add_argument(
        "--types",
        default=new.types,
        help="rows of Table 1, as 1,2,4; from 20 on: no fault of a path",
    )
    number("windows", "of 5 s per episode")
    number("warm", "windows before")
    number("seed", "of the first episode")
    what.add_argument("--untraced", action="store_true", help="no outer header is seen")
    number("loss", "probability that a probe is lost for no reason", float, metavar="P")
    what.add_argument("--bursts", action="store_true", help="tasks' own bursts queue")
    what.add_argument(
        "--rehash", action="store_true", help="routers avoid dead links after 1 to 10 s"
    )
    what.add_argument("--spray", action="store_true", help="each packet takes a way of its own")
    number("churn", "containers that start each minute, for each 40,000 RNICs", float, metavar="N")
    number("rotate", "windows until an RNIC exchanges a source port; 0: never", metavar="N")
    how = parser.add_argument_group("how")
    how.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    how.add_argument(
        "--output", type=Path, metavar="FILE", help="a JSON line of each episode goes there"
    )
    how.add_argument(
        "--resume", action="store_true", help="run only what the output file does not have yet"
    )
    how.add_argument(
        "--score",
        type=Path,
        metavar="FILE",
        help="run nothing; score an earlier run's output file (also .xz)",
    )
    how.add_argument(
        "--figure", type=Path, metavar="FILE", help="an SVG goes there: confusion, reliability"
    )
    how.add_argument("--json", action="store_true", help="print the score as JSON")
    return parser
