# SPDX-License-Identifier: Apache-2.0
"""The skeleton demo: a real training job, and what netagent makes of its traffic.

It learns which pairs the job uses and probes along them, finds a fault on one of them, once by the
skeleton and once by the basic list, and falls back when the job starts again in another shape.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

from tests.lab import demo
from tests.lab.demo import Found, Observer, Say
from tests.lab.lab import Lab
from tests.lab.shape import Shape
from tests.lab.training import Training

TASK = "train-a"
FAULT = "link-loss"
LEARN_WITHIN_S = 300.0
FALL_BACK_WITHIN_S = 60.0
SETTLE_S = 20.0


@dataclass(slots=True)
class Report:
    """What was seen. Times are seconds from the moment the job, or the fault, began."""

    learned_s: float | None = None
    groups_right: bool = False
    """What was inferred are the job's own process groups."""
    lists_right: bool = False
    """Agents probe the pairs of the skeleton often, all others rarely, and no pair is missing."""
    by_skeleton: list[Found] = field(default_factory=list)
    by_basic: list[Found] = field(default_factory=list)
    fell_back_s: float | None = None
    reason: str = ""
    """Of the fallback."""
    alarms: int = 0
    """Incidents while nothing was broken."""
    rounds: int = 1
    """Faults to be found by each list."""

    @property
    def good(self) -> bool:
        """Whether all was right; how long finding took is for the reader to compare."""
        found = [*self.by_skeleton, *self.by_basic]
        named = len(self.by_skeleton) == len(self.by_basic) == self.rounds and all(
            each.localized_s is not None and each.verdict is not None
            and each.verdict[:2] == each.truth
            for each in found
        )  # fmt: skip
        learned = self.learned_s is not None and self.groups_right and self.lists_right
        return learned and named and self.fell_back_s is not None and not self.alarms

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        times = {
            "skeleton": [each.localized_s for each in self.by_skeleton],
            "basic list": [each.localized_s for each in self.by_basic],
        }
        return [
            f"skeleton in use {_seconds(self.learned_s)} after the job began",
            f"  its groups are the job's own: {_yes(self.groups_right)}",
            f"  agents probe along it, the rest rarely: {_yes(self.lists_right)}",
            *(f"{FAULT} named by the {kind} after {_median(each)}" for kind, each in times.items()),
            f"basic list {_seconds(self.fell_back_s)} after a restart in another shape",
            f"  {self.reason}",
            f"incidents while nothing was broken: {self.alarms}",
        ]


def run(
    lab: Lab,
    say: Say,
    *,
    rounds: int = 1,
    watching: type[Observer] = Observer,
    later_s: float = demo.GIVE_UP_AFTER_S,
    **parameters: float,
) -> Report:
    """Run the demo on a fresh lab of 8 endpoints on 4 hosts; the lab is taken down after.

    `parameters` are the fault's, `later_s` is waited beyond its deadline.
    """
    report = Report(rounds=rounds)
    shape = Shape()
    lab.up(shape, tasks=(TASK,), traffic=None)
    try:
        job = Training(lab.directory, lab.state().containers, shape.rails)
        with lab.services().client() as client:
            observer = watching(client)
            broken = partial(
                demo._try, lab, observer, FAULT, say, later_s=later_s, parameters=parameters
            )
            observer.wait(lambda: False, timeout_s=SETTLE_S)
            _learn(job, observer, say, report)
            if report.learned_s is not None:
                for number in range(rounds):
                    say(f"round {number + 1} of {rounds}")
                    phase_s = demo.WINDOW_S * number / rounds
                    _compare(partial(broken, phase_s=phase_s), observer, say, report)
                _restart(job, observer, say, report)
        job.stop()
    finally:
        lab.down()
    return report


def _learn(job: Training, observer: Observer, say: Say, report: Report) -> None:
    say("training with DP 2, PP 2, TP 2: 8 ranks over gloo")
    job.start(dp=2, pp=2)
    report.learned_s = _until(observer, "skeleton", timeout_s=LEARN_WITHIN_S)
    report.alarms = len(observer.new())
    told = followed(observer.client)
    if report.learned_s is None:
        say(f"no skeleton: {told['reason']}")
        return
    truth = {
        kind: {frozenset(f"{e.container.id}/rail{e.rail}" for e in group) for group in groups}
        for kind, groups in job.groups().items()
        if kind in {"dp", "pp"}
    }
    mine = {kind: set(map(frozenset, told["groups"][kind])) for kind in truth}
    report.groups_right = mine == truth and told["tp"] == 2
    report.lists_right = _lists_follow(observer.client, told)
    say(f"skeleton after {_seconds(report.learned_s)}: {told['pairs']} pairs")


def _lists_follow(client: httpx.Client, told: dict[str, Any]) -> bool:
    often: set[tuple[str, ...]] = set()
    rare: set[tuple[str, ...]] = set()
    for host in sorted({agent["host"] for agent in client.get("/v1/agents").json()["agents"]}):
        targets = client.get(f"/v1/hosts/{host}/pinglist").json()["targets"]
        for each in targets:
            pair = tuple(f"{each[end]['container']}/rail{each[end]['rail']}" for end in ENDS)
            (rare if each["rare"] else often).add(pair)
    used = {(a, b) for a, b in told["edges"]} | {(b, a) for a, b in told["edges"]}
    ids = {each["id"] for each in client.get("/v1/endpoints").json()["endpoints"]}
    basic = {(a, b) for a in ids for b in ids if a != b and a.split("/")[1] == b.split("/")[1]}
    return often == used and rare == basic - used


ENDS = ("source", "target")


def _compare(broken: Callable[[], Found], observer: Observer, say: Say, report: Report) -> None:
    """Break a used path while the skeleton decides what is probed, and while it does not.

    At the same moment of a window, which decides more than anything how long it takes.
    """
    for kind, found in (("skeleton", report.by_skeleton), ("basic", report.by_basic)):
        _opt(observer.client, skeleton=kind == "skeleton")
        if _until(observer, kind, timeout_s=LEARN_WITHIN_S) is None:
            say(f"not on the {kind} list: {followed(observer.client)['reason']}")
            continue
        observer.wait(lambda: False, timeout_s=demo.WINDOW_S)
        say(f"by the {kind} list:")
        found.append(broken())
    _opt(observer.client, skeleton=True)


def _restart(job: Training, observer: Observer, say: Say, report: Report) -> None:
    if _until(observer, "skeleton", timeout_s=LEARN_WITHIN_S) is None:
        say("the skeleton did not come back")
        return
    observer.remember()
    say("starting the job again with PP 4")
    job.stop()
    job.start(dp=1, pp=4)
    report.fell_back_s = _until(observer, "basic", timeout_s=FALL_BACK_WITHIN_S)
    report.reason = followed(observer.client)["reason"]
    report.alarms += len(observer.new())


def followed(client: httpx.Client) -> dict[str, Any]:
    """Return what the task's ping lists follow."""
    answer = client.get(f"/v1/tasks/{TASK}/skeleton")
    answer.raise_for_status()
    told: dict[str, Any] = answer.json()
    return told


def _opt(client: httpx.Client, *, skeleton: bool) -> None:
    known = client.get(f"/v1/tasks/{TASK}").json()
    wanted = ("containers", "rnics_per_container", "rails")
    body = {name: known[name] for name in wanted} | {"skeleton": skeleton}
    client.put(f"/v1/tasks/{TASK}", json=body).raise_for_status()


def _until(observer: Observer, kind: str, *, timeout_s: float) -> float | None:
    """Return how long it took until the task was probed by such a list; None if too long."""
    began = time.monotonic()
    reached: Callable[[], bool] = lambda: followed(observer.client)["list"] == kind  # noqa: E731
    return time.monotonic() - began if observer.wait(reached, timeout_s=timeout_s) else None


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s"


def _median(times: list[float | None]) -> str:
    found = [each for each in times if each is not None]
    if not found:
        return "never"
    each = ", ".join(f"{seconds:.1f}" for seconds in found)
    return f"{statistics.median(found):.1f} s, median of {each}"


def _yes(is_so: bool) -> str:  # noqa: FBT001 - a word for a value
    return "yes" if is_so else "NO"
