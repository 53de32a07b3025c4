# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.detect.contract import Seen
from analyzer.detect.silence import (
    CATCH_UP_WINDOWS,
    MOST_ASKED,
    MOST_EXCUSED,
    MUTE_WINDOWS,
    TIMEOUT_WINDOWS,
    Silence,
)  # fmt: skip
from analyzer.intake.windows import WindowState
from analyzer.questions import Failed, Why
from netagent.model.path import Component, Kind
from netagent.model.window import Window
from netagent.wire.messages import Health, Status
from tests.analyzer.asking import drive
from tests.analyzer.detect.seen import nothing

ANSWERS = object()
AGENT = Component(Kind.AGENT, "h1")


def seen(*absent, patience=(), heard=(), expected=("h1", "h2"), delivering=()):
    state = WindowState(Window(0, 5), rows=dict.fromkeys(heard))
    return Seen(
        *(state, *nothing(state), {}),
        frozenset(expected),
        frozenset(absent),
        frozenset(patience),
        delivering=frozenset(delivering),
    )


def windows(silence, why, count, **more):
    """Return how many anomalies each window in a row raised, in which h1 sent nothing."""
    reply = ANSWERS if why is None else Failed(why, why.value)
    return [len(drive(silence.detect(seen("h1", **more)), lambda _: reply)) for _ in range(count)]


def test_nobody_is_asked_when_nobody_is_missing():
    asked = []
    assert drive(Silence().detect(seen()), asked.append) == []
    assert asked == []


def test_each_missing_host_is_asked_once():
    asked = []

    def reply(ask):
        asked.append(ask.host)
        return ANSWERS

    drive(Silence().detect(seen("h2", "h1")), reply)
    assert asked == ["h1", "h2"]


def test_of_many_missing_hosts_some_are_asked_at_a_time_and_all_are_named():
    hosts = [f"h{n}" for n in range(3 * MOST_ASKED)]
    silence, asked, named = Silence(), [], set()

    def reply(ask):
        asked.append(ask.host)
        return Failed(Why.REFUSED, "refused")

    everybody = [*hosts, *(f"well-{n}" for n in range(10 * MOST_ASKED))]
    for _ in range(6):
        asked.clear()
        told = drive(silence.detect(seen(*hosts, expected=everybody)), reply)
        assert len(set(asked)) == len(asked) == MOST_ASKED
        named |= {each.subject.name for each in told}
        assert named | silence.undecided >= set(hosts)
    assert named == set(hosts)


@pytest.mark.parametrize(
    ("why", "raised"),
    [
        (Why.REFUSED, [0, 1, 1, 1]),
        (Why.TIMEOUT, [0, 1, 1, 1]),
        (Why.UNREACHABLE, [0, 1, 1, 1]),
        (None, [0, 0, 1, 1]),
        (Why.ODD, [0, 0, 1, 1]),
        (Why.CANNOT, [0, 0, 1, 1]),
    ],
)
def test_how_long_a_silence_lasts_before_it_counts(why, raised):
    assert windows(Silence(), why, 4) == raised


@pytest.mark.parametrize(("why", "raised"), [(Why.TIMEOUT, [0, 0, 0]), (Why.REFUSED, [0, 1, 1])])
def test_an_agent_that_may_be_slow_is_waited_for_unless_it_refuses(why, raised):
    silence = Silence()
    assert windows(silence, why, 3, patience=("h1",)) == raised
    assert silence.undecided == (frozenset({"h1"}) if why is Why.TIMEOUT else frozenset())


@pytest.mark.parametrize("why", [Why.TIMEOUT, Why.REFUSED])
def test_a_summary_in_between_begins_the_count_anew(why):
    silence = Silence()
    assert windows(silence, why, 1) == [0]
    drive(silence.detect(seen(heard=("h1",))), None)
    assert windows(silence, why, 2) == [0, 1]


def test_one_that_was_refused_once_is_not_gone():
    silence = Silence()
    assert windows(silence, Why.TIMEOUT, 1) + windows(silence, Why.REFUSED, 1) == [0, 0]
    assert silence.undecided == frozenset({"h1"})
    assert windows(silence, Why.REFUSED, 1) == [1]


def status(wall_s):
    return Status(
        host="h1", instance="", version="", endpoints=(), pinglist_version=1, targets=0,
        last_window_ns=0, health=Health(), wall_ns=round(wall_s * 1e9),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "clocks"),
    [
        (status(1000.0 - 4.2), {"h1": -4_200_000_000}),
        (status(1000.0 - 0.9), {}),
        (status(1000.0), {}),
        (status(1000.0 + 5.9), {}),  # it may be late, and not ahead
        (status(1000.0 + 95.0), {"h1": 90_000_000_000}),
        (status(0.0), {}),  # an older agent does not tell
        (Failed(Why.ODD, "a newer status"), {}),
    ],
)
def test_an_agent_that_answers_tells_whether_its_clock_is_wrong(answers, clocks):
    silence, hosts = Silence(), frozenset({"h1", "h2"})
    for _ in range(MUTE_WINDOWS):
        state = WindowState(Window(0, 5))
        late = Seen(state, *nothing(state), {}, hosts, frozenset({"h1"}), frozenset(), 1000 * 10**9)
        drive(silence.detect(late), lambda _: answers)
    assert silence.clocks == clocks
    assert list(silence.silent) == ["h1"]


def test_a_clock_is_no_reason_before_summaries_are_missing_for_long():
    silence = Silence()
    assert windows(silence, None, MUTE_WINDOWS - 1) == [0] * (MUTE_WINDOWS - 1)
    assert silence.clocks == {}


def test_how_its_rpc_answers_is_kept_with_the_host():
    silence = Silence()
    windows(silence, Why.REFUSED, 2)
    assert silence.silent["h1"].why is Why.REFUSED
    silence = Silence()
    windows(silence, None, 3)
    assert silence.silent == {"h1": None}


@pytest.mark.parametrize(
    ("why", "shared"),
    [(Why.TIMEOUT, True), (Why.UNREACHABLE, True), (None, True), (Why.REFUSED, False)],
)
def test_most_hosts_at_once_are_silent_together_unless_they_refuse(why, shared):
    reply = ANSWERS if why is None else Failed(why, why.value)
    silence = Silence()
    for absent, together in (("h1", "h2"), shared), (("h1",), False):
        drive(silence.detect(seen(*absent, expected=("h1", "h2", "h3"))), lambda _: reply)
        assert silence.shared is together


@pytest.mark.parametrize("reply", [ANSWERS, Failed(Why.TIMEOUT, "timeout")])
def test_who_catches_up_last_after_most_were_silent_is_not_named_for_it(reply):
    """The management network was down for a minute; the last agent tries again in seconds."""
    silence, unreachable = Silence(), Failed(Why.UNREACHABLE, "no route")
    hosts = ("h1", "h2", "h3")
    for _ in range(12):
        drive(silence.detect(seen(*hosts, expected=hosts)), lambda _: unreachable)
    last = seen("h1", heard=("h2", "h3"), expected=hosts)
    told = [len(drive(silence.detect(last), lambda _: reply)) for _ in range(CATCH_UP_WINDOWS + 3)]
    assert told[:CATCH_UP_WINDOWS] == [0] * CATCH_UP_WINDOWS
    assert told[-1] == 1  # it is not heard although all others are


@pytest.mark.parametrize(
    ("more", "over"),
    [({}, False), ({"heard": ("h1",)}, True), ({"expected": ("h2",)}, True)],
)
def test_it_is_over_when_the_host_speaks_or_is_expected_no_more(more, over):
    assert Silence().over([AGENT], seen(**more)) == over


@pytest.mark.parametrize("why", [None, Why.TIMEOUT, Why.UNREACHABLE, Why.ODD, Why.CANNOT])
def test_while_the_analyzer_is_in_trouble_and_while_hosts_catch_up_nobody_is_silent(why):
    silence = Silence()
    silence.impaired = True
    assert not any(windows(silence, why, 20))
    silence.impaired = False
    waits = MUTE_WINDOWS if why in {None, Why.ODD, Why.CANNOT} else TIMEOUT_WINDOWS
    raised = windows(silence, why, CATCH_UP_WINDOWS + waits)
    assert raised.index(1) >= CATCH_UP_WINDOWS - 1


@pytest.mark.parametrize(("why", "told"), [(Why.TIMEOUT, True), (None, False)])
def test_trouble_that_comes_again_and_again_hides_no_dead_host(why, told):
    silence, raised = Silence(), []
    for window in range(3 * MOST_EXCUSED):
        silence.impaired = window % CATCH_UP_WINDOWS == 0
        raised += windows(silence, why, 1)
    assert not any(raised[: MOST_EXCUSED - 1])
    assert any(raised) == told


def test_a_dead_agent_is_told_whatever_trouble_the_analyzer_has():
    silence = Silence()
    silence.impaired = True
    assert windows(silence, Why.REFUSED, 3) == [0, 1, 1]


def test_a_host_that_delivered_again_is_as_any_other():
    silence = Silence()
    silence.impaired = True
    windows(silence, None, 2)
    silence.impaired = False
    assert drive(silence.detect(seen()), lambda _: ANSWERS) == []
    assert windows(silence, None, MUTE_WINDOWS) == [0] * (MUTE_WINDOWS - 1) + [1]


def test_whose_summaries_come_after_their_window_was_judged_is_not_silent():
    silence = Silence()
    assert windows(silence, None, 3 * MUTE_WINDOWS, delivering=["h1"]) == [0] * 3 * MUTE_WINDOWS
    assert windows(silence, None, 1) == [1]  # and now nothing comes


def test_a_clock_that_is_behind_is_told_though_summaries_come():
    behind = status(50)
    silence = Silence()
    for _ in range(MUTE_WINDOWS):
        window = replace(seen("h1", delivering=["h1"]), now_ns=60 * 10**9)
        told = drive(silence.detect(window), lambda _: behind)
    assert [each.subject for each in told] == [AGENT]
    assert silence.clocks == {"h1": -10 * 10**9}
