# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.detect.contract import Seen
from analyzer.detect.held import MAX_TOLD, STALE_NS, Held, JobVerdict, parts_of
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who
from analyzer.intake.windows import WindowState
from netagent.model.path import Component, Kind
from netagent.model.window import Window
from tests.analyzer.cluster import SECOND, endpoint
from tests.analyzer.detect.seen import nothing

NOBODY = frozenset()
WIDTH = 5 * SECOND
NOW = 1_000 * SECOND
RANK = Component(Kind.RANK, "train-a/5")


def job(*culprits, holdup=Holdup.SLOW_RANK, at_ns=NOW):
    return JobVerdict("train-a", Verdict(holdup, "train-a is slow", culprits), at_ns)


def slow(*ranks, kind=Who.RANK, host=None, network=False):
    return Culprit(kind, ranks, 0.9, "1.8 times its peers", host, network)


def seen(now_ns=NOW, task="train-a"):
    state = WindowState(Window(now_ns - WIDTH, WIDTH))
    ends = [endpoint("h0", "a0", task=task)]
    known = {each.id: each for each in ends}
    return Seen(state, *nothing(state), known, NOBODY, NOBODY, NOBODY, now_ns=now_ns)


def anomalies(held, at=None):
    with pytest.raises(StopIteration) as done:
        next(held.detect(at or seen()))
    return [str(each.subject) for each in done.value.value]


def test_a_rank_is_named_until_the_job_says_otherwise():
    held = Held()
    held.tell([job(slow(5))])
    assert anomalies(held) == ["rank train-a/5"]
    assert not held.over([RANK], seen())
    held.tell([job(holdup=Holdup.NOTHING)])
    assert anomalies(held) == []
    assert held.over([RANK], seen())


def test_a_collector_that_lags_neither_blames_nor_acquits():
    held = Held()
    held.tell([job(slow(5), at_ns=NOW - STALE_NS)])
    assert anomalies(held) == []
    assert not held.over([RANK], seen())
    assert held.unread([RANK])
    held.tell([job(slow(5))])
    anomalies(held)
    assert not held.unread([RANK])


def test_a_verdict_that_cannot_tell_acquits_nobody():
    held = Held()
    held.tell([job(slow(5))])
    anomalies(held)
    held.tell([job(holdup=Holdup.INSUFFICIENT)])
    assert anomalies(held) == []
    assert not held.over([RANK], seen())
    assert held.unread([RANK])


def test_a_job_that_is_gone_is_held_up_no_more():
    held = Held()
    held.tell([job(slow(5))])
    gone = seen(task="train-b")
    assert anomalies(held, gone) == []
    assert held.over([RANK], gone)


def test_what_a_culprit_is_becomes_a_part():
    of_host = job(slow(0, 1, kind=Who.HOST, host="h2"))
    assert list(parts_of(of_host)) == [Component(Kind.HOST, "h2")]
    assert list(parts_of(job(slow(6, 7, kind=Who.GROUP)))) == [Component(Kind.TASK, "train-a")]
    assert parts_of(job(slow(3, 4, kind=Who.EDGE, network=True))) == {}
    assert parts_of(job(slow(3, 4, kind=Who.GROUP, network=True))) == {}
    many = parts_of(job(slow(*range(MAX_TOLD + 1))))
    assert list(many) == [Component(Kind.TASK, "train-a")]
    disagreed = parts_of(job(holdup=Holdup.DISAGREEMENT))
    assert disagreed == {Component(Kind.TASK, "train-a"): None}
