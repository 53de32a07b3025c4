# SPDX-License-Identifier: Apache-2.0
"""A lab for an hour in which tasks come and go: what its processes hold must stay flat.

Every minute or so all containers are started and left alone for some seconds. Only then is read
what is held, three times, of which the least counts: readings of one state can be compared, and
nothing of what comes and goes with containers or questions has to be allowed for. The first half
hour, or half of a shorter run, is a warm-up: the judge learns.

Of memory and files the slope counts, by Theil and Sen, and fails where even the lower end of its
interval is beyond the limit. What is counted may be no more in the last third of the readings than
in the first, but for the few that a pool of threads starts late.
"""

import json
import math
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.lab import holdings
from tests.lab.demo import Observer, Say
from tests.lab.health import Health, keep
from tests.lab.health import Report as Seen
from tests.lab.holdings import FOLDER, Key, Reading
from tests.lab.lab import Lab
from tests.lab.shape import Shape, Transport
from tests.lab.trends import Slope, theil_sen

CHANGES_S, CHANGES_SHARE = 60.0, 0.05
"""Seconds for which tasks come and go between two rests, and the share of the run, if that is less.
Chosen: an hour has some thirty rests, half of them after the warm-up."""
UP_WITHIN_S = 120.0
"""Seconds that all endpoints have to be up. Chosen: an emulated guest takes one minute."""
CALM_S = 10.0
"""Seconds before the first reading of a rest: two windows."""
READINGS, APART_S = 3, 2.5
"""Readings in one rest, and seconds from one to the next."""
WARM_UP_S = 1800.0
"""Seconds in which the judge learns."""
LEAST = 3
"""Rests after the warm-up without which there is nothing to compare."""
SPAN_S = 1200.0
"""Seconds without which a slope per day says nothing. Chosen: an hour's run has half an hour."""
COUNTS: Mapping[str, int] = {"descriptors": 2, "threads": 2, "processes": 1, "queue_pairs": 0}
"""How many more there may be in the last third than in the first. Chosen: a pool starts a thread,
and a client connects, only when all others are busy; an agent has one process for questions, which
ends a minute after the last."""
DAY_S = 86_400.0
AGENT_MB_DAY, ANALYZER_MB_DAY, FILE_MB_DAY = 24.0, 48.0, 10.0
"""Most megabytes a day of an agent or its helper, of the analyzer or its judge, and of files that
are written anew in place. Chosen: one megabyte an hour is what an hour's interval can tell from
none; the analyzer holds an index of a day's windows, which grows as long; such a file has a tenth
of a megabyte."""
GROWING = ("database", "summaries", "history", "recording", "log")
"""Parts of the analyzer's folder that grow until retention, or a ring's size, ends it; a log, until
who keeps logs does."""
OUTPUT = Path("build/soak.jsonl")
"""Where each reading is written at once."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What was held at one rest."""

    at_s: float
    """Seconds since the start."""
    reading: Reading


@dataclass(frozen=True, slots=True)
class Held:
    """What one part held of one kind after the warm-up."""

    part: str
    kind: str
    first: float
    """Median of the first third of its readings; NaN without any."""
    last: float
    slope: Slope | None
    """Megabytes per day; None for what is counted."""
    verdict: str
    """`flat`, what it is excused by, or in capitals what is wrong with it."""

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.verdict.isupper()

    def line(self) -> str:
        """Return it for people."""
        s = self.slope
        rate = f"{s.middle:+.1f} [{s.least:+.1f}, {s.most:+.1f}]" if s else ""
        return (
            f"{self.part:50} {self.kind:11} {self.first:>8.1f} {self.last:>8.1f}  {rate:24} "
            f"{self.verdict}"
        )


def limit_mb_day(part: str) -> float | None:
    """Return how much a part may grow; None where it grows by design."""
    if part.startswith(FOLDER):
        grows = part == FOLDER or part.removeprefix(f"{FOLDER}: ") in GROWING
        return None if grows else FILE_MB_DAY
    return ANALYZER_MB_DAY if part.startswith("analyzer/") else AGENT_MB_DAY


def judged(rests: Sequence[Rest], expected: Collection[Key]) -> list[Held]:
    """Return what became of each part and kind that was expected or seen after the warm-up."""
    warm_s = min(WARM_UP_S, rests[-1].at_s / 2) if rests else 0.0
    kept = [rest for rest in rests if rest.at_s >= warm_s]
    series: dict[Key, list[tuple[float, float]]] = defaultdict(list)
    for rest in kept:
        for key, value in rest.reading.held.items():
            if value is not None:
                series[key].append((rest.at_s, value))
    keys = sorted({*series, *expected})
    wanted = max(len(kept), LEAST)
    return [_held(key, series[key], wanted if key in expected else None) for key in keys]


def _held(key: Key, points: Sequence[tuple[float, float]], wanted: int | None) -> Held:
    part, kind = key
    values = [value for _, value in points]
    third = max(1, len(values) // 3)
    first, last = (median(some or [float("nan")]) for some in (values[:third], values[-third:]))
    counted = kind in COUNTS
    slope = None if counted else theil_sen([(at_s / DAY_S, mb) for at_s, mb in points])
    if len(values) < (wanted or LEAST):
        verdict = f"READ {len(values)} TIMES" if wanted else "seldom there"
    elif counted:
        verdict = "flat" if last <= first + COUNTS[kind] else "GREW"
    else:
        verdict = _of_slope(slope, limit_mb_day(part), points[-1][0] - points[0][0])
    return Held(part, kind, first, last, slope, verdict)


def _of_slope(slope: Slope | None, limit: float | None, span_s: float) -> str:
    if limit is None:
        return "grows by design"
    if slope is None or span_s < SPAN_S:
        return "TOO SHORT A RUN"
    return "GREW" if slope.least > limit else "flat"


def restarted(rests: Sequence[Rest]) -> Iterator[str]:
    """Yield the parts that were started again: what they had leaked went with them."""
    pids: dict[str, set[int]] = defaultdict(set)
    for rest in rests:
        for part, seen in rest.reading.pids.items():
            pids[part] |= seen
    for part, seen in sorted(pids.items()):
        if len(seen) > 1:
            yield f"{part} was started {len(seen)} times"


@dataclass(slots=True)
class Report:
    """What was seen."""

    health: Seen
    rests: list[Rest] = field(default_factory=list)
    expected: Collection[Key] = ()

    @property
    def held(self) -> list[Held]:
        """What each part held."""
        return judged(self.rests, self.expected)

    @property
    def good(self) -> bool:
        """Whether all was there and flat, nothing was started again, and nobody was named."""
        held = self.held
        alive = self.health.good and not any(restarted(self.rests))
        return alive and bool(held) and all(each.good for each in held)

    def lines(self) -> list[str]:
        """Return all of it, for people."""
        head = f"{'part':50} {'kind':11} {'first':>8} {'last':>8}  {'MB/day [95 %]':24} verdict"
        rows = [each.line() for each in self.held]
        failed = [f"FAILED: {each}" for each in restarted(self.rests)]
        return [*self.health.lines(), f"rests: {len(self.rests)}", head, *rows, *failed]

    def values(self) -> dict[str, Any]:
        """Return all of it, for programs."""
        rows = [
            {
                "part": h.part, "kind": h.kind, "first": _known(h.first), "last": _known(h.last),
                "mb_per_day": [h.slope.least, h.slope.middle, h.slope.most] if h.slope else None,
                "verdict": h.verdict,
            }
            for h in self.held
        ]  # fmt: skip
        return {"good": self.good, "rests": len(self.rests), "held": rows}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value  # JSON has no NaN


class Soak(Health):
    """Changes a lab, watches, and reads what its processes hold whenever all is at rest."""

    def __init__(
        self, lab: Lab, observer: Observer, say: Say, *, seed: int, minutes: float
    ) -> None:
        super().__init__(lab, observer, say, seed=seed)
        self.rests: list[Rest] = []
        self._minutes = minutes
        self._changes_s = min(CHANGES_S, CHANGES_SHARE * 60 * minutes)
        self._began_s = time.monotonic()
        self._due_s = self._began_s
        OUTPUT.parent.mkdir(parents=True, exist_ok=True)
        OUTPUT.write_text("")

    def _change(self) -> None:
        if time.monotonic() < self._due_s:
            super()._change()
            return
        self._rest()
        self._due_s = time.monotonic() + self._changes_s

    def _run(self, minutes: float) -> None:
        super()._run(minutes)
        self._rest()

    def _rest(self) -> None:
        """Let all containers run, wait until all is up and calm, and read."""
        self._start_all()
        state = self._lab.state()
        wanted = len(state.containers) * state.shape.rails
        up = self._observer.wait(lambda: self._all_up(wanted), timeout_s=UP_WITHIN_S)
        at_s = time.monotonic() - self._began_s
        if not up:
            self.report.failures[f"not all endpoints were up after {UP_WITHIN_S:.0f} s"] += 1
            return
        self._watch(CALM_S)
        readings = []
        for _ in range(READINGS):
            self._watch(APART_S)
            readings.append(holdings.read(self._lab))
        self.rests.append(Rest(at_s, holdings.least(readings)))
        with OUTPUT.open("a") as file:
            file.write(json.dumps(plain(self.rests[-1])) + "\n")
        self._say(f"rest {len(self.rests)} at {at_s / 60:.1f} of {self._minutes:g} min: read")

    def _all_up(self, wanted: int) -> bool:
        self._look()
        return self._observer.endpoints_up() == wanted


def plain(rest: Rest) -> dict[str, Any]:
    """Return the JSON form."""
    held = {f"{part} {kind}": value for (part, kind), value in rest.reading.held.items()}
    pids = {part: sorted(seen) for part, seen in rest.reading.pids.items()}
    return {"at_s": rest.at_s, "held": held, "pids": pids}


def run(
    lab: Lab, say: Say, *, minutes: float, seed: int, transport: Transport, hosts: int
) -> Report:
    """Run on a fresh lab, which is taken down after; return what was seen."""
    shape = Shape(hosts=hosts, transport=transport)
    lab.up(shape)
    try:
        with lab.services().client() as client:
            soak = Soak(lab, Observer(client), say, seed=seed, minutes=minutes)
            soak.run(minutes)
            if not soak.report.good:
                keep(client, "soak", say)
    finally:
        lab.down()
    return Report(soak.report, soak.rests, holdings.expected(shape))
