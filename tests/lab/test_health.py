# SPDX-License-Identifier: Apache-2.0
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.lab import demo, health
from tests.lab.faults import plan
from tests.lab.health import Act, Report, choose, ills
from tests.lab.shape import Shape
from tests.lab.state import Fault, State
from tests.lab.workload import Container, container_of

EVERYONE = [Container(task, host) for task in ("train-a", "train-b") for host in range(4)]


def test_containers_come_and_go_and_as_many_run_as_are_stopped() -> None:
    chance = random.Random(1)
    running, counts = set(EVERYONE), Counter[Act]()
    for _ in range(400):
        stopped = sorted(set(EVERYONE) - running)
        what, name = choose(sorted(running), stopped, chance)
        counts[what] += 1
        if what is Act.START:
            running |= {each for each in stopped if each.id == name}
        elif what is Act.STOP:
            running -= {each for each in running if each.id == name}
        elif what is Act.RESTART_TASK:
            running |= {each for each in EVERYONE if each.task == name}
        assert name or what is Act.TRAFFIC
    assert counts.keys() == set(Act)
    assert counts[Act.START] > 50 < counts[Act.STOP]


def test_a_seed_draws_the_same_changes_again() -> None:
    drawn = [choose(EVERYONE[:5], EVERYONE[5:], random.Random(n)) for n in range(50)]
    assert drawn == [choose(EVERYONE[:5], EVERYONE[5:], random.Random(n)) for n in range(50)]


def test_nothing_but_traffic_and_starts_is_left_where_nothing_runs() -> None:
    drawn = {choose([], EVERYONE, random.Random(n))[0] for n in range(50)}
    assert drawn == {Act.START, Act.TRAFFIC}


def test_any_incident_and_an_analyzer_that_judged_nothing_are_bad() -> None:
    assert not Report().good
    assert not Report(windows={5, 10}).good
    well = Report(Counter({"containers started": 3}), {5, 10}, named_s=6.2, written=4)
    assert well.good
    assert well.lines() == [
        "windows taken: 2", "files of history that the judge wrote: 4",
        "longest step of the judge: 0.0 s", "containers started: 3", "incidents: 0",
        "the link that was cut at the end: named after 6.2 s",
    ]  # fmt: skip
    ill = Report(windows={5}, named_s=6.2, incidents={"i1": "insufficient evidence: ..."})
    assert not ill.good
    assert "insufficient evidence: ..." in ill.lines()
    failed = Report(windows={5}, named_s=6.2, failures=Counter({"there was no judge": 9}))
    assert not failed.good
    assert failed.lines()[-1] == "FAILED: there was no judge (seen 9 times)"


class Clock:
    """Stands for `time`: only who sleeps moves it on."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        self.now_s += 0.02  # what is done takes time, too
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Pretended:
    """A lab that is none, and an analyzer that answers as one does."""

    directory = Path("/nowhere")

    def __init__(self, *, blind: bool = False) -> None:
        self.clock, self.said = Clock(), list[str]()
        self.judge: dict[str, Any] = {
            "pid": 7, "starts": 1, "late_ns": 2_000_000_000, "backlog_bytes": 0,
        }  # fmt: skip
        self.blind, self.beside = blind, list[str]()
        self._state = State(Shape(), containers=tuple(EVERYONE))
        self.processes = SimpleNamespace(kill=lambda _name: None)

    def slow_down(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let all who wait do so by this clock, and look seldom."""
        monkeypatch.setattr(demo, "time", self.clock)
        monkeypatch.setattr(health, "time", self.clock)
        monkeypatch.setattr(demo, "POLL_S", 2.0)

    def state(self) -> State:
        return self._state

    def start_container(self, name: str) -> None:
        assert name not in {each.id for each in self._state.containers}
        self.clock.sleep(1)
        self._state = self._state.with_container(container_of(name))

    def stop_container(self, name: str) -> None:
        self.clock.sleep(1)
        self._state = self._state.without_container(container_of(name))

    def start_task(self, task: str, *, seed: int, spread_s: float) -> list[Container]:
        made = [each for each in EVERYONE if each.task == task]
        for each in made:
            self.start_container(each.id)
        return made

    def start_traffic(self, _bursts: object) -> None:
        pass

    def inject(self, name: str) -> Fault:
        fault = plan(name, None, {}, self._state)
        self._state = self._state.with_fault(fault)
        return fault

    def heal(self, key: str) -> None:
        healed = [each for each in self._state.faults if each.key == key]
        assert healed
        self._state = self._state.without_faults(healed)

    def client(self) -> httpx.Client:
        transport = httpx.MockTransport(self._answer)
        return httpx.Client(transport=transport, base_url="https://analyzer")

    def _answer(self, request: httpx.Request) -> httpx.Response:
        now_s = self.clock.now_s
        up = [{"state": "up"}] * (2 * len(self._state.containers))
        told: dict[str, dict[str, Any]] = {
            "/v1/agents": {"agents": [{"window_ns": int(now_s // 5 * 5e9)}, {"window_ns": None}]},
            "/v1/status": {
                "judge": self.judge, "counters": {"worker_crashes": 0}, "disk": {"takes": True},
            },
            "/v1/history/counts": {"files_written": 0 if self.blind else 2 * int(now_s // 60)},
            "/v1/endpoints": {"endpoints": [*up, {"state": "gone"}]},
            "/v1/incidents": {
                "incidents": [
                    {"id": f"{fault.key} {name}", "component": name, "summary": "cut"}
                    for fault in self._state.faults
                    if not self.blind
                    for name in (fault.truth.component, *self.beside)
                ]
            },
        }  # fmt: skip
        return httpx.Response(200, json=told[request.url.path])


def watched(monkeypatch: pytest.MonkeyPatch, lab: Pretended, minutes: float) -> Report:
    lab.slow_down(monkeypatch)
    with lab.client() as client:
        one = health.Health(lab, demo.Observer(client), lab.said.append, seed=1)  # type: ignore[arg-type]
        one.run(minutes)
    return one.report


def test_half_an_hour_of_a_judge_that_names_the_link_at_the_end_is_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = watched(monkeypatch, Pretended(), 30)
    assert report.good, report.lines()
    assert report.written >= 60
    assert report.late_s == 2.0
    assert len(report.windows) > 300


def test_a_judge_that_says_nothing_at_all_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    report = watched(monkeypatch, Pretended(blind=True), 30)
    assert not report.incidents
    assert not report.good
    assert "the link that was cut at the end: not named" in report.lines()
    assert list(report.failures) == ["the judge wrote no history for 300 s"]


def test_a_judge_that_names_another_beside_the_link_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Pretended()
    lab.beside = ["rnic h3/rnic0"]
    report = watched(monkeypatch, lab, 3)
    assert report.named_s is not None
    assert list(report.failures) == ["rnic h3/rnic0 was named for the link"]
    assert not report.good


@pytest.mark.parametrize(
    ("what", "value", "said"),
    [
        ("pid", None, "there was no judge"),
        ("starts", 2, "the judge was started again"),
        ("late_ns", 16_000_000_000, "the judge was more than 15 s late"),
    ],
)
def test_a_judge_that_is_away_or_late_is_not(
    monkeypatch: pytest.MonkeyPatch, what: str, value: object, said: str
) -> None:
    lab = Pretended()
    lab.judge[what] = value
    report = watched(monkeypatch, lab, 3)
    assert list(report.failures) == [said]
    assert not report.good


def test_an_analyzer_that_answers_no_more_ends_the_run_with_what_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Pretended()
    monkeypatch.setattr(lab, "_answer", lambda _request: httpx.Response(503))
    report = watched(monkeypatch, lab, 3)
    assert list(report.failures) == ["the analyzer does not answer /v1/agents; see its log"]
    assert not report.good


def test_a_status_names_all_that_is_wrong() -> None:
    judge = {"pid": None, "starts": 3, "late_ns": 10**11}
    status = {"judge": judge, "counters": {"worker_crashes": 1}, "disk": {"takes": False}}
    assert len(list(ills(status))) == 5
    judge |= {"pid": 7, "starts": 1, "late_ns": 14 * 10**9}
    assert not list(ills({**status, "counters": {"worker_crashes": 0}, "disk": {"takes": True}}))
