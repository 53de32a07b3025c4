# SPDX-License-Identifier: Apache-2.0
"""Many at once ask and are answered as each alone, and each host is asked once a round."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.diagnosis.together import together
from analyzer.questions import Ask, Failed, StatusRequest, Why
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.wire import walk as wire
from netagent.wire.messages import CheckReply, CheckRequest, EgressQuestion
from tests.analyzer.asking import drive

HOSTS = ("h0", "h1", "dead", "short")


def question(number):
    return EgressQuestion(source=EndpointId("a", number), target_address="", target_mac="")


def walk(host, number):
    end = wire.End(kind="dropped", bridge="", table=0, reason=str(number))
    return wire.LocalWalk(host=host, bridge="", port="", ends=(end,), steps=())


def reply(ask):
    """Answer as a host does: one walk for each question, the dead one none, one of them too few."""
    if isinstance(ask.request, StatusRequest) or ask.host == "dead":
        return Failed(Why.TIMEOUT, ask.host)
    walks = tuple(walk(ask.host, each.source.rail) for each in ask.request.questions)
    return CheckReply(walks=walks[: len(walks) - (ask.host == "short")], wall_ns=1)


asks = st.one_of(
    st.builds(lambda host: Ask(host, StatusRequest()), st.sampled_from(HOSTS)),
    st.builds(
        lambda host, numbers: Ask(host, CheckRequest(questions=tuple(map(question, numbers)))),
        st.sampled_from(HOSTS), st.lists(st.integers(0, 9), min_size=1, max_size=3),
    ),
)  # fmt: skip
scripts = st.lists(st.lists(st.lists(asks, max_size=3), max_size=3), max_size=4)


def asking(rounds, number):
    heard = []
    for each in rounds:
        heard += [(ask, reply) for ask, reply in zip(each, (yield each), strict=True)]
    if len(rounds) == 2:
        raise RemoteProtocolError(str(number))
    return heard


def alone(rounds, number):
    try:
        return drive(asking(rounds, number), reply)
    except RemoteProtocolError as error:
        return error


@given(scripts)
def test_each_hears_what_it_would_alone(script):
    def all_of(heard):
        return [each for each in heard if each[0].host != "short"]

    found = drive(together([asking(each, n) for n, each in enumerate(script)]), reply)
    for n, (rounds, mine) in enumerate(zip(script, found, strict=True)):
        single = alone(rounds, n)
        if isinstance(single, RemoteProtocolError):
            assert str(mine) == str(single)
        else:
            assert all_of(mine) == all_of(single)


@given(scripts)
def test_a_host_is_asked_once_a_round_for_walks(script):
    rounds = []

    def listening():
        asked = together([asking(each, n) for n, each in enumerate(script)])
        replies = None
        while True:
            try:
                asks = next(asked) if replies is None else asked.send(replies)
            except StopIteration:
                return
            rounds.append(asks)
            replies = yield asks

    drive(listening(), reply)
    assert len(rounds) == max((len(each) for each in script), default=0)
    for asks in rounds:
        checks = Counter(each.host for each in asks if isinstance(each.request, CheckRequest))
        assert set(checks.values()) <= {1}


def test_who_answers_too_few_walks_lacks_the_last_ones():
    rounds = [[Ask("short", CheckRequest(questions=(question(1), question(2))))]]
    first, second = drive(together([asking(rounds, 0), asking(rounds, 1)]), reply)
    assert [len(heard[0][1].walks) for heard in (first, second)] == [2, 1]


def test_a_bug_of_one_is_not_kept_quiet():
    def broken():
        yield []
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        drive(together([broken()]), reply)
