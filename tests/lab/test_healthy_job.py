# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from netagent_torch import form
from tests.lab import healthy_job
from tests.lab.health import Report
from tests.lab.healthy_job import CONTROLLED, LOOK_S, Both, Seen, written
from tests.lab.operators import TASK
from tests.lab.test_health import Pretended
from tests.lab.unhurried import Unhurried
from tests.lab.wrong import NOTE

WELL = "nothing"


def verdict(at_ns: int, said: str = WELL, *ranks: int) -> dict[str, Any]:
    culprits = [{"kind": "rank", "ranks": list(ranks)}] if ranks else []
    told = {"at_ns": at_ns, "verdict": said, "summary": "..."}
    return {**told, "culprits": culprits, "iterations": 50}


def seen(looks: int, said: str = WELL, *, minutes: float = 10.0) -> Seen:
    found = Seen(minutes, steps=500, records=80_000, slow_s=31.0)
    for number in range(looks):
        found.take(verdict(number, said))
    return found


def test_a_job_that_was_looked_at_and_of_which_the_slow_rank_was_named_is_good() -> None:
    found = seen(int(10 * 60 / LOOK_S))
    assert found.good
    assert found.lines() == [
        "iterations of the job: 500",
        "operators that hooks recorded: 80000; calls that probes saw: 0",
        "looks of the judge at the job: 30",
        "iterations that one of them was over, at most: 50",
        "  nothing: 30",
        "looks that named somebody: 0",
        "hosts that this machine gave too little CPU, which is no alarm: 0",
        "the rank that was slowed at the end: named after 31.0 s",
    ]


@pytest.mark.parametrize(
    "found",
    [
        seen(0),
        seen(14),
        seen(30, "insufficient evidence"),
        seen(30, "sources disagree"),
    ],
    ids=["never", "seldom", "without a verdict", "without one that counts"],
)
def test_a_judge_that_did_not_look_did_not_find_a_job_well(found: Seen) -> None:
    assert not found.good
    assert any("FAILED" in line for line in found.lines())


def test_a_look_that_names_somebody_is_counted_and_is_no_incident_by_itself() -> None:
    found = seen(29)
    assert found.take(verdict(99, "communication slow", 2))
    assert not found.take(verdict(100))
    assert (found.named, found.told, found.good) == (1, 31, True)
    assert "looks that named somebody: 1" in found.lines()


def test_neither_a_job_that_did_nothing_nor_a_slow_rank_that_is_not_named_is_good() -> None:
    still, unrecorded, unnamed = seen(30), seen(30), seen(30)
    still.steps, unrecorded.records, unnamed.slow_s = 0, 0, None
    assert not any(each.good for each in (still, unrecorded, unnamed))
    assert unnamed.lines()[-1] == "the rank that was slowed at the end: not named"


def test_an_incident_makes_all_of_it_bad() -> None:
    network = Report(windows={5})
    assert Both(network, seen(30)).good
    network.incidents["i1"] = "rank train-a/0"
    both = Both(network, seen(30))
    assert not both.good
    assert both.lines()[: len(network.sums())] == network.sums()
    assert not Both(Report(windows={5}, failures=Counter({"late": 1})), seen(30)).good


def test_records_are_counted_that_were_overwritten_long_ago(tmp_path: Path) -> None:
    for host, count in (("h0", 70_000), ("h1", 5)):
        (tmp_path / host).mkdir()
        head = form.HEAD.pack(
            form.MAGIC, form.VERSION, form.RECORD_BYTES, 1024, 0, count, 0, 7, 0, 0, 0
        )
        (tmp_path / host / "one.ring").write_bytes(head)
    (tmp_path / "h1" / "new.ring").write_bytes(b"")
    assert written(tmp_path) == 70_005


class Training:
    """A job that does a step a second, until it dies."""

    def __init__(self, lab: "Judged", folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.dies_s = float("inf")

    def steps(self) -> int:
        return int(min(self.lab.clock.now_s, self.dies_s))

    def alive(self) -> bool:
        return self.lab.clock.now_s < self.dies_s


class Judged(Pretended):
    """A lab with a job, of which the judge says every twenty seconds that all is well."""

    def __init__(self, folder: Path, *, deaf: bool = False) -> None:
        super().__init__()
        self.directory, self.deaf = folder, deaf
        self.job = Training(self, folder)
        self.accuses_s = (float("inf"), float("inf"))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        now_s = self.clock.now_s
        slow = (self.job.folder / NOTE).exists()
        if request.url.path == f"/v1/operators/{TASK}":
            if self.deaf:
                return httpx.Response(404, json={"problem": "nothing is recorded"})
            return httpx.Response(200, json={"verdict": verdict(int(now_s // LOOK_S))})
        if request.url.path == "/v1/incidents":
            begin, end = self.accuses_s
            of = [(f"i{begin}", "rank train-a/0", now_s < end)] if now_s >= begin else []
            of += [("slow", CONTROLLED, True)] if slow else []
            of += [(each.key, each.truth.component, True) for each in self.state().faults]
            told = [
                {"id": name, "component": part, "summary": "...",
                 "state": "open" if lasts else "recovered"}
                for name, part, lasts in of
            ]  # fmt: skip
            return httpx.Response(200, json={"incidents": told})
        return super()._answer(request)


def watched(monkeypatch: pytest.MonkeyPatch, lab: Judged, minutes: float = 10) -> Both:
    lab.slow_down(monkeypatch)
    monkeypatch.setattr(healthy_job, "time", lab.clock)
    rings = lab.directory / "operators" / "h0"
    rings.mkdir(parents=True)
    head = (form.MAGIC, form.VERSION, form.RECORD_BYTES, 1024, 0, 900, 0, 7, 0, 0, 0)
    (rings / "one.ring").write_bytes(form.HEAD.pack(*head))
    with lab.client() as client:
        health = healthy_job.JobHealth(
            lab, Unhurried(client), lab.said.append, lab.job, rings=rings.parent,  # type: ignore[arg-type]
            kept=lab.directory / "kept",
        )  # fmt: skip
        health.run(minutes)
    return Both(health.report, health.seen)


def test_ten_minutes_of_a_job_that_is_well_are_good(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    both = watched(monkeypatch, Judged(tmp_path))
    assert both.good, both.lines()
    assert 25 <= both.job.told <= 32
    assert not (tmp_path / "kept").exists()
    assert not (tmp_path / NOTE).exists()


def test_an_incident_that_opens_and_closes_while_a_job_is_well_fails_and_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lab = Judged(tmp_path)
    lab.accuses_s = (1300.0, 1330.0)
    both = watched(monkeypatch, lab)
    assert list(both.network.incidents.values()) == ["rank train-a/0"]
    assert not both.good
    assert (tmp_path / "kept" / "incident-1" / "h0" / "one.ring").exists()


def test_a_job_that_nobody_judged_was_not_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    both = watched(monkeypatch, Judged(tmp_path, deaf=True))
    assert both.job.told == 0
    assert not both.good


def test_a_rank_that_ends_by_itself_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lab = Judged(tmp_path)
    lab.job.dies_s = 1200.0
    both = watched(monkeypatch, lab)
    assert both.network.failures == {f"a rank of the job ended; its log is in {tmp_path}": 1}
    assert not both.good
