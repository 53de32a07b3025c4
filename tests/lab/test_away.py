# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from itertools import islice
from unittest.mock import Mock

import httpx
import pytest

from tests.lab import away, drill
from tests.lab.away import Report, drawn, specs
from tests.lab.drill import Tried
from tests.lab.shape import Controller, Transport, driven_by
from tests.lab.state import State
from tests.lab.workload import Container

STATE = State(
    driven_by(Controller.OVN),
    containers=tuple(Container(task, host) for task in ("train-a", "train-b") for host in range(4)),
)
RIGHT = Tried(1, ("link-loss@x",), ("link x",), (4.2,), False, (), 9.0)
GOOD = Report([RIGHT], {"controller ovn": "its databases are away"}, 60.0, 3.0)


def test_faults_that_need_no_controller_come_in_turn_at_targets_of_their_own() -> None:
    names = [spec.name for spec in specs()]
    assert {"link-loss", "spine-down", "rnic-down", "agent-killed"} <= set(names)
    assert set(names).isdisjoint({"flow-lost", "container-crash", "vswitchd-killed", "gid-change"})
    twice = list(islice(drawn(STATE, 1), 2 * len(names)))
    assert [plans[-1][0] for _, plans in twice] == 2 * names
    assert twice[: len(names)] != twice[len(names) :]


@pytest.mark.parametrize(
    "report",
    [
        replace(GOOD, tried=[]),
        replace(GOOD, tried=[replace(RIGHT, named_s=(None,))]),
        replace(GOOD, tried=[replace(RIGHT, wrong=("switch z",))]),
        replace(GOOD, said={}),
        replace(GOOD, said={**GOOD.said, "controller h0": "it stands still"}),
        replace(GOOD, back_s=None),
        replace(GOOD, named={"controller h0"}),
    ],
    ids=[
        "nothing tried",
        "not seen",
        "another named",
        "nothing said",
        "two said",
        "for ever",
        "its return accuses",
    ],
)
def test_one_thing_is_said_and_everything_is_seen(report: Report) -> None:
    assert GOOD.good
    assert not report.good


def test_sums_say_how_long_and_what() -> None:
    assert GOOD.lines() == [
        "controller away for 1.0 min",
        "1 of 1 faults named; 0 others accused in 1 tries",
        "said of controller ovn, until 3.0 s after its return: its databases are away",
        "named when it was back: nobody",
    ]
    assert (
        replace(GOOD, named={"host h1", "controller h0"})
        .lines()[-1]
        .endswith("back: controller h0, host h1")
    )


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ((), (), set()),
        (("link x",), (), set()),  # the last fault, named once more
        (("switch y",), (), {"switch y"}),
        ((), ("controller h0", "link x"), {"controller h0", "link x"}),
    ],
)
def test_who_is_named_as_the_controller_comes_back_is_told(
    monkeypatch: pytest.MonkeyPatch,
    before: tuple[str, ...],
    after: tuple[str, ...],
    named: set[str],
) -> None:
    found = [
        {"component": "controller ovn", "kind": "controller-away", "text": "away"},
        {"component": "link x", "kind": "link-down", "text": "down"},
    ]
    incidents: list[dict[str, str]] = []

    def opened(what: tuple[str, ...]) -> None:
        more = len(incidents)
        incidents.extend(
            {"id": f"i{more + n}", "component": each, "state": "recovered"}
            for n, each in enumerate(what)
        )

    def back() -> None:
        found.clear()
        opened(after)

    answer = {"/v1/findings": {"findings": found}, "/v1/incidents": {"incidents": incidents}}
    served = httpx.MockTransport(lambda asked: httpx.Response(200, json=answer[asked.url.path]))
    lab = Mock(
        state=lambda: STATE, end_central=lambda: opened(before), begin_central=back,
        services=lambda: Mock(
            client=lambda: httpx.Client(transport=served, base_url="https://analyzer")
        ),
    )  # fmt: skip
    monkeypatch.setattr(away, "SETTLE_S", {Transport.UDP: 0.0})
    monkeypatch.setattr(away, "SPARED_S", 0.0)
    monkeypatch.setattr(drill, "WINDOW_S", 0.0)
    monkeypatch.setattr(drill, "tries", lambda *_: iter([RIGHT]))
    report = away.run(lab, lambda _: None, minutes=0.0, seed=1)
    assert report.said == {"controller ovn": "away"}
    assert (report.named, report.good) == (named, not named)
