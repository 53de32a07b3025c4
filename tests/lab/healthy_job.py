# SPDX-License-Identifier: Apache-2.0
"""A job that is well, for an hour: nobody may be named, neither its ranks nor the network's parts.

It is the lab's real one, its operators recorded by hooks and collected by agents. It saves,
evaluates and collects garbage as jobs do. At the end a rank computes slowly: a judge that does not
name it has judged nothing before.
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netagent_torch import form
from tests.lab.demo import SETTLE_S, Say
from tests.lab.drill import OUTPUT
from tests.lab.errors import LabError
from tests.lab.health import Health, Report, keep
from tests.lab.lab import Lab
from tests.lab.operators import DP, PP, PROBED, RINGS, TASK, collect
from tests.lab.probing import Probes
from tests.lab.shape import Controller, Transport, driven_by
from tests.lab.training import QUICK, Training, recorded_as
from tests.lab.unhurried import Unhurried
from tests.lab.wrong import NOTE

USUAL: Mapping[str, float] = {
    "save_every": 150, "save_s": 3.0, "full_every": 900, "full_s": 75.0, "evaluate_every": 40,
    "collect_every": 60, "collect_s": 0.15, "timeout_s": 600.0,
}  # fmt: skip
"""What the job does beside training. Chosen: a look at a minute of it has some of each, and an hour
has pauses that are longer than `analyzer.detect.held.STUCK_NS`, which nobody may be blamed for."""
LOOK_S = 20.0
"""Seconds between two looks of the judge of jobs (`analyzer.detect.held.EVERY_NS`)."""
SHARE = 0.5
"""Part of these looks that has to tell how the job is. Chosen: a starved machine looks less often,
and who is in a long checkpoint is not told."""
STILL_S = 180.0
"""Seconds in which rank 0 has to finish a step. Chosen: twice the longest checkpoint, and more."""
NAMED_S = 180.0
"""Seconds in which a slow rank has to be named. Chosen: records of a minute are asked for every
twenty seconds."""
CONTROL = {"kind": "slow-rank", "rank": 3, "factor": 5.0}
CONTROLLED = f"rank {TASK}/3"
UNTOLD = frozenset({"insufficient evidence", "sources disagree"})
"""Verdicts that do not say how a job is."""
MOST_KEPT = 8


@dataclass(slots=True)
class Seen:
    """What was seen of a job."""

    minutes: float
    steps: int = 0
    records: int = 0
    """Operators that hooks recorded."""
    probed: int = 0
    """Calls of gloo that probes saw beside; 0 where this kernel has none, or nobody may."""
    looks: set[int] = field(default_factory=set)
    """When the judge looked, by its clock."""
    verdicts: Counter[str] = field(default_factory=Counter)
    """Verdict -> looks that said it."""
    named: int = 0
    """Looks that named somebody, whether or not that made an incident."""
    iterations: int = 0
    """Most that one look was over."""
    slow_s: float | None = None
    """Seconds in which the rank that was slowed at the end was named."""
    late: tuple[str, ...] = ()
    """What was said of hosts that this machine gave too little CPU, which is so."""
    beside: list[str] = field(default_factory=list)
    """Who else was named in these seconds."""

    @property
    def told(self) -> int:
        """Return how many looks said how the job was."""
        return sum(count for what, count in self.verdicts.items() if what not in UNTOLD)

    @property
    def looked(self) -> bool:
        """Whether the judge looked as often as it has to."""
        return self.told >= SHARE * self.minutes * 60 / LOOK_S

    @property
    def good(self) -> bool:
        """Whether the job ran, was looked at, and its slow rank was named at the end."""
        return self.steps > 0 < self.records and self.looked and self.slow_s is not None

    def take(self, verdict: Mapping[str, Any]) -> bool:
        """Take what a look said; return whether it names somebody."""
        self.looks.add(verdict["at_ns"])
        self.verdicts[verdict["verdict"]] += 1
        self.iterations = max(self.iterations, verdict["iterations"])
        self.named += bool(verdict["culprits"])
        return bool(verdict["culprits"])

    def lines(self) -> list[str]:
        """Return the sums, for people."""
        told = "not named" if self.slow_s is None else f"named after {self.slow_s:.1f} s"
        beside = f", beside {', '.join(self.beside)}" if self.beside else ""
        few = "" if self.looked else " FAILED: too few that told how it is"
        return [
            f"iterations of the job: {self.steps}",
            f"operators that hooks recorded: {self.records}; calls that probes saw: {self.probed}",
            f"looks of the judge at the job: {len(self.looks)}{few}",
            f"iterations that one of them was over, at most: {self.iterations}",
            *(f"  {what}: {count}" for what, count in sorted(self.verdicts.items())),
            f"looks that named somebody: {self.named}",
            f"hosts that this machine gave too little CPU, which is no alarm: {len(self.late)}",
            f"the rank that was slowed at the end: {told}{beside}",
        ]


@dataclass(slots=True)
class Both:
    """What was seen of the network, and of the job."""

    network: Report
    job: Seen

    @property
    def good(self) -> bool:
        """Whether both were well, and the job's slow rank was named at the end."""
        return self.network.quiet and self.job.good

    def lines(self) -> list[str]:
        """Return the sums, for people."""
        failures = self.network.failures.items()
        failed = (f"FAILED: {what} (seen {count} times)" for what, count in failures)
        return [*self.network.sums(), *self.job.lines(), *failed]


class JobHealth(Health):
    """Watches a job, and changes nothing until the end."""

    _observer: Unhurried

    def __init__(
        self, lab: Lab, observer: Unhurried, say: Say, job: Training, *, rings: Path, kept: Path
    ) -> None:
        super().__init__(lab, observer, say, seed=0)
        self._job, self._rings, self._kept = job, rings, kept
        self._stepped_s, self._said = 0.0, ""
        self.seen = Seen(0)

    def _run(self, minutes: float) -> None:
        self._watch(SETTLE_S[Transport.UDP])
        self.seen.minutes, self._stepped_s = minutes, time.monotonic()
        self._watch(60 * minutes)
        self.seen.records = written(self._rings)
        self.seen.probed = written(self._lab.directory / PROBED)
        self.seen.late = tuple(self._observer.late.values())
        for each in self.seen.late:
            self._say(f"no alarm: {each}")

    def _cut(self, _transport: Transport) -> None:
        """Slow a rank down: a judge that does not name it has judged nothing before."""
        self._observer.remember()
        note, began_s = self._job.folder / NOTE, time.monotonic()
        note.write_text(json.dumps(CONTROL))
        try:
            named = self._observer.wait(lambda: CONTROLLED in self._named(), timeout_s=NAMED_S)
            self.seen.slow_s = time.monotonic() - began_s if named else None
            self.seen.beside = sorted(self._named() - {CONTROLLED})
        finally:
            note.unlink()

    def _look(self) -> None:
        before, asked_s = len(self.report.incidents), self._asked_s
        super()._look()
        if len(self.report.incidents) > before:
            self._keep(f"incident-{len(self.report.incidents)}")
        if self._asked_s != asked_s:  # as seldom as the judge is asked for
            self._look_at_job()

    def _look_at_job(self) -> None:
        steps = self._job.steps()
        if steps != self.seen.steps:
            self.seen.steps, self._stepped_s = steps, time.monotonic()
        if not self._job.alive():
            raise LabError("a rank of the job ended", f"its log is in {self._job.folder}")
        if self.seen.minutes and time.monotonic() > self._stepped_s + STILL_S:
            self.report.failures[f"the job did no step for {STILL_S:.0f} s"] += 1
        verdict = self._observer.verdict(TASK)
        if verdict is None or verdict["at_ns"] in self.seen.looks:
            return
        if verdict["verdict"] != self._said:
            self._said = verdict["verdict"]
            self._say(f"step {steps}: {self._said}: {verdict['summary']}")
        if self.seen.take(verdict):
            self._say(json.dumps(verdict))
            self._keep(f"named-{self.seen.named}")

    def _keep(self, name: str) -> None:
        """Keep what ranks recorded until now: rings are overwritten."""
        if len(list(self._kept.glob("*"))) < MOST_KEPT:
            shutil.copytree(self._rings, self._kept / name, dirs_exist_ok=True)


def written(folder: Path) -> int:
    """Return how many records were written into the rings below a folder, in all their time."""
    total = 0
    for path in folder.rglob("*.ring"):
        with suppress(ValueError), path.open("rb") as file:  # one that is being made has no head
            total += form.read_head(file.read(form.HEAD.size)).written
    return total


def run(lab: Lab, say: Say, *, minutes: float, controller: Controller = Controller.NONE) -> Both:
    """Run on a fresh lab, which is taken down after; return what was seen."""
    kept = OUTPUT.with_name("health-job")
    shutil.rmtree(kept, ignore_errors=True)
    lab.up(driven_by(controller), tasks=(), traffic=None)
    try:
        rings = collect(lab)
        lab.start_task(TASK)
        probes = Probes(lab.directory / PROBED, lab.directory / "probes.log")
        try:
            return _watched(lab, say, rings, kept, minutes)
        finally:
            probes.end()
    finally:
        lab.down()


def _watched(lab: Lab, say: Say, rings: str, kept: Path, minutes: float) -> Both:
    state = lab.state()
    job = Training(lab.directory, state.containers, state.shape.rails)
    job.start(dp=DP, pp=PP, environment=recorded_as(TASK, rings), **QUICK, **USUAL)
    with lab.services().client() as client:
        health = JobHealth(lab, Unhurried(client), say, job, rings=lab.directory / RINGS, kept=kept)
        health.run(minutes)
        say(f"probes: {(lab.directory / 'probes.log').read_text().strip()}")
        both = Both(health.report, health.seen)
        if not both.good:
            keep(client, "health", say)
    return both
