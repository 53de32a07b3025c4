# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.lab import demo, holdings, soak
from tests.lab.health import Report as Seen
from tests.lab.holdings import Key, Reading, expected
from tests.lab.shape import Shape
from tests.lab.soak import Report, Rest, judged, limit_mb_day, restarted
from tests.lab.test_health import Pretended

AGENT: Key = ("h0/agent", "memory_mb")
DESCRIPTORS: Key = ("h0/agent", "descriptors")
EVERY_S = 110.0


def seen(incidents: dict[str, str] | None = None) -> Seen:
    return Seen(windows={5}, named_s=6.0, incidents=incidents or {})


def rests(key: Key, values: Sequence[float | None]) -> list[Rest]:
    return [Rest(EVERY_S * n, Reading({key: value})) for n, value in enumerate(values)]


def verdict(key: Key, values: Sequence[float | None]) -> str:
    (held,) = judged(rests(key, values), [key])
    return held.verdict


def noisy(mb_day: float, *, count: int = 33) -> list[float | None]:
    noise = (0.0, 0.2, -0.1, 0.1, -0.2, 0.05, 0.15)
    return [47.5 + mb_day * EVERY_S * n / 86_400 + noise[n % 7] for n in range(count)]


@pytest.mark.parametrize(("mb_day", "said"), [(0, "flat"), (10, "flat"), (80, "GREW")])
def test_an_hour_tells_what_would_fill_a_machine_from_what_may_be_none(
    mb_day: float, said: str
) -> None:
    assert verdict(AGENT, noisy(mb_day)) == said


def test_a_day_tells_more() -> None:
    assert verdict(AGENT, noisy(26, count=780)) == "GREW"


def test_what_is_learned_in_the_first_half_hour_is_no_leak() -> None:
    assert verdict(AGENT, [30.0 + n for n in range(17)] + [47.0] * 16) == "flat"


def test_a_single_step_is_no_leak() -> None:
    assert verdict(AGENT, [47.0] * 25 + [49.0] * 8) == "flat"


def test_what_is_counted_may_not_grow_but_for_two() -> None:
    assert verdict(DESCRIPTORS, [40.0] * 25 + [42.0] * 8) == "flat"
    assert verdict(DESCRIPTORS, [40.0] * 25 + [43.0] * 8) == "GREW"
    assert verdict(("all devices", "queue_pairs"), [48.0] * 25 + [49.0] * 8) == "GREW"


def test_what_was_not_read_every_time_is_told() -> None:
    assert verdict(DESCRIPTORS, [40.0] * 30 + [None] * 3) == "READ 14 TIMES"
    (held,) = judged(rests(AGENT, [47.0] * 33), [DESCRIPTORS, AGENT])[:1]
    assert (held.verdict, held.good) == ("READ 0 TIMES", False)


def test_a_helper_that_need_not_be_there_is_judged_where_it_is() -> None:
    key: Key = ("h0/agent: netagent.adapters.rdma.resolver", "threads")
    said = [judged(rests(key, [None] * n + [2.0] * (33 - n)), [])[0] for n in (28, 31)]
    assert [(each.verdict, each.good) for each in said] == [("flat", True), ("seldom there", True)]


def test_a_run_of_minutes_says_that_it_is_too_short() -> None:
    assert verdict(AGENT, noisy(0, count=6)) == "TOO SHORT A RUN"
    assert verdict(DESCRIPTORS, [40.0] * 6) == "flat"
    assert verdict(DESCRIPTORS, [40.0] * 3) == "READ 2 TIMES"


def test_what_is_kept_until_retention_grows_by_design_and_nothing_else() -> None:
    assert verdict(("folder: summaries", "disk_mb"), noisy(500)) == "grows by design"
    assert verdict(("folder: baselines", "disk_mb"), noisy(80)) == "GREW"
    assert limit_mb_day("folder") is None
    assert limit_mb_day("folder: rest") == 10
    assert limit_mb_day("analyzer/analyzer: analyzer.judge") == 48
    assert limit_mb_day("h3/agent") == 24


def test_a_part_that_was_started_again_is_a_failure() -> None:
    made = [Rest(EVERY_S * n, Reading({AGENT: 47.0}, {"h0/agent": {n // 20}})) for n in range(33)]
    assert list(restarted(made)) == ["h0/agent was started 2 times"]
    report = Report(seen(), made, [AGENT])
    assert all(each.good for each in report.held)
    assert not report.good
    assert report.lines()[-1] == "FAILED: h0/agent was started 2 times"


def test_a_flat_lab_is_good_and_one_in_which_somebody_was_named_is_not() -> None:
    flat = rests(AGENT, noisy(0))
    assert Report(seen(), flat, [AGENT]).good
    assert not Report(seen({"i1": "link a -- b"}), flat, [AGENT]).good
    assert not Report(seen(), [], []).good
    nothing = Report(seen(), [], [AGENT])
    assert not nothing.good
    assert json.loads(json.dumps(nothing.values()))["held"][0]["first"] is None


def pretend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, minutes: float, growth_mb_day: float = 0
) -> tuple[Report, Pretended]:
    """Return what a soak says of a lab that is none, by a clock that only waiting moves on."""
    lab = Pretended()
    lab.slow_down(monkeypatch)
    monkeypatch.setattr(soak, "time", lab.clock)
    monkeypatch.setattr(soak, "OUTPUT", tmp_path / "build" / "soak.jsonl")

    def read(_lab: object) -> Reading:
        grown = growth_mb_day * lab.clock.now_s / 86_400
        held: dict[Key, float | None] = {
            (part, kind): 40.0 + (grown if kind == "memory_mb" else 0)
            for part, kind in expected(lab.state().shape)
        }
        assert len(lab.state().containers) == 8
        return Reading(held, {"h0/agent": {77}, "analyzer/analyzer": {78}})

    monkeypatch.setattr(holdings, "read", read)
    with lab.client() as client:
        one = soak.Soak(lab, demo.Observer(client), lab.said.append, seed=1, minutes=minutes)  # type: ignore[arg-type]
        one.run(minutes)
    return Report(one.report, one.rests, expected(Shape())), lab


def test_an_hour_of_a_lab_that_is_well_is_good(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report, lab = pretend(monkeypatch, tmp_path, 60)
    assert report.good, report.lines()
    assert 25 <= len(report.rests) <= 45
    assert report.health.named_s is not None
    written = [json.loads(line) for line in soak.OUTPUT.read_text().splitlines()]
    assert len(written) == len(report.rests)
    assert written[0]["held"]["h0/agent memory_mb"] == 40.0
    assert lab.clock.now_s < 1000 + 65 * 60


def test_an_hour_in_which_something_leaks_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report, _ = pretend(monkeypatch, tmp_path, 60, growth_mb_day=165)
    grown = {held.part for held in report.held if held.verdict == "GREW"}
    assert grown == {part for part, kind in expected(Shape()) if kind == "memory_mb"}


def test_three_minutes_go_the_same_way_and_are_said_to_be_too_few(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report, _ = pretend(monkeypatch, tmp_path, 3)
    assert report.health.good, report.lines()
    assert len(report.rests) >= 4
    assert {held.verdict for held in report.held} == {"flat", "TOO SHORT A RUN", "grows by design"}
    assert not report.good
