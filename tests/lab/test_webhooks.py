# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from dataclasses import replace

import httpx
import pytest

from tests.analyzer.receiver import Receiver
from tests.lab import webhooks
from tests.lab.demo import Found
from tests.lab.webhooks import Report, slow
from tests.waiting import wait_until

TRUTH = ("rnic", "rnic h1/rnic0")


def found(detected_s: float = 6.0) -> Found:
    return Found("rnic-down", TRUTH, (*TRUTH, 0.9), detected_s, detected_s, 9.0)


def report(*arrived: str, made: tuple[str, ...] = ("a.1", "b.2", "a.3")) -> Report:
    return Report(
        alone=[found()], told=[found(), found(8.0)], made=list(made), arrived=list(arrived),
        back_s=4.0, is_told=Counter(sent=len(made)),
    )  # fmt: skip


def test_each_event_once_or_again_and_in_order_is_good() -> None:
    assert report("b.2", "a.1", "a.3").good
    twice = report("a.1", "a.1", "b.2", "a.3", "b.2")
    assert twice.good
    assert twice.again == 2
    assert all(len(line) < 90 for line in twice.lines())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (report("a.1", "b.2"), "1 events never arrived"),
        (report("a.3", "b.2", "a.1"), "out of order: a"),
        (report("a.1", "b.2", "a.3", "c.4"), "the witness never had"),
        (report(made=()), "nothing was told"),
        (replace(report("a.1", "b.2", "a.3"), back_s=None), "not all had arrived"),
        (replace(report("a.1", "b.2", "a.3"), is_told=Counter(dropped=1)), "gave some up"),
        (replace(report("a.1", "b.2", "a.3"), told=[found(12.0)]), "later than without"),
        (
            replace(report("a.1", "b.2", "a.3"), alone=[replace(found(), verdict=None)]),
            "rnic-down: ",
        ),
    ],
)
def test_anything_else_is_told(wrong: Report, said: str) -> None:
    assert not wrong.good
    assert any(line.startswith("FAILED: ") and said in line for line in wrong.lines())


def test_a_slow_receiver_has_the_event_of_whoever_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "SLOW_S", 1.0)
    with Receiver(slow) as receiver:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(receiver.url, json={"id": "a.1"}, timeout=0.2)
        wait_until(lambda: receiver.ids() == ["a.1"], "the event")
