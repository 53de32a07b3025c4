# SPDX-License-Identifier: Apache-2.0
"""The loop around a diagnosis, against agents that answer, refuse, stand still or break."""

import asyncio
from typing import get_args

import pytest
from structlog.testing import capture_logs

from analyzer.diagnosis.engine import IncidentChanged, Remark
from analyzer.questions import Ask, Failed, Question, Request, StatusRequest, Why
from analyzer.replay.records import PutLate
from analyzer.server import asker as room
from analyzer.server.asker import BEAT_S, LEAST_S, VALIDATE_S, WALK_S, Asker
from analyzer.server.judge import Stepped
from netagent.model.errors import CapabilityMissing, RemoteProtocolError, TooSoon, Unreachable
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict
from netagent.wire.messages import CheckReply, CheckRequest, PathReply, PathRequest
from netagent.wire.trace import TraceReply, TraceRequest
from netagent.wire.validate import ValidateReply, ValidateRequest
from tests.waiting import leaping, until

CHECK = CheckRequest(questions=())
WALKS = CheckReply(walks=(), wall_ns=1)
TRACED = TraceReply(kind="drops", flow="udp", netns=1, lasted_ns=1)
COMPARED = ValidateReply(host="h0", wall_ns=1, looks=3, flows=1, judged=1, in_hardware=0)
INCIDENT = Incident(
    "i1", IncidentState.OPEN, Verdict(None, None, Symptom.LOSS, 0.1, "why"), 1, 2, 3
)


class Agents:
    """Each host does what its name says."""

    def __init__(self):
        self.still, self.deadlines = asyncio.Event(), []

    async def check(self, host, request, *, deadline_s=0.0):
        self.deadlines.append(deadline_s)
        match host:
            case "refuses":
                raise Unreachable(host, "refused")
            case "times-out":
                raise Unreachable(host, "timeout")
            case "is-nowhere":
                raise Unreachable(host, "no route")
            case "just-did":
                raise TooSoon(host, "wait")
            case "cannot":
                raise CapabilityMissing("walks", "install Open vSwitch")
            case "is-odd":
                raise RemoteProtocolError("no CheckReply")
            case "breaks":
                raise ZeroDivisionError
            case "stands-still":
                await self.still.wait()
        return WALKS

    async def path(self, host, request, *, deadline_s=0.0):
        return PathReply(paths=())

    async def trace(self, host, request, *, deadline_s=0.0):
        return TRACED

    async def validate(self, host, request, *, deadline_s=0.0):
        self.deadlines.append(deadline_s)
        return COMPARED


class Diagnosis:
    """Asks what the test wants, once; remembers the answers."""

    def __init__(self, *questions, events=()):
        self.questions, self.events = list(questions), list(events)
        self.answers, self.steps = {}, 0

    def step(self, now_ns):
        self.steps += 1
        due, self.questions = self.questions, []
        return due

    def answer(self, question, reply, now_ns):
        self.answers[question] = reply

    def next_event(self):
        return self.events.pop(0) if self.events else None

    def deadline(self):
        return None


class StandIn:
    """A judge that steps a stand-in of a diagnosis."""

    starts = 1

    def __init__(self, diagnosis):
        self.diagnosis, self.late = diagnosis, []

    async def step(self, now_ns):
        questions, events = self.diagnosis.step(now_ns), []
        while (event := self.diagnosis.next_event()) is not None:
            events.append(event)
        return Stepped(questions, events, self.diagnosis.deadline())

    def give(self, record):
        if isinstance(record, PutLate):
            self.late.append(record.now_ns)
        else:
            self.diagnosis.stood_still(record.now_ns)

    def answer(self, start, number, reply, now_ns):
        assert start == self.starts
        self.diagnosis.answer(number, reply, now_ns)


def question(number, host="answers", request=CHECK, *, in_s=3):
    return Question(number, host, request, in_s * 10**9)


async def running(diagnosis, until, agents=None, told=None):
    told = [] if told is None else told
    asker = Asker(StandIn(diagnosis), agents or Agents(), lambda: 0, told.append)
    work = asyncio.create_task(asker.run())
    async with asyncio.timeout(60):
        while not until():  # noqa: ASYNC110 - it rings nothing
            await asyncio.sleep(0)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return asker


@pytest.mark.parametrize(
    ("host", "reply"),
    [
        ("answers", WALKS),
        ("refuses", Failed(Why.REFUSED, "refused")),
        ("times-out", Failed(Why.TIMEOUT, "timeout")),
        ("is-nowhere", Failed(Why.UNREACHABLE, "no route")),
        ("cannot", Failed(Why.CANNOT, "walks unavailable: install Open vSwitch")),
        ("just-did", Failed(Why.BUSY, "wait")),
        ("is-odd", Failed(Why.ODD, "no CheckReply")),
        ("breaks", Failed(Why.ODD, "ZeroDivisionError: ")),
    ],
)
def test_every_question_is_answered_whatever_the_agent_does(host, reply):
    diagnosis = Diagnosis(question(7, host))
    asyncio.run(running(diagnosis, lambda: diagnosis.answers))
    assert diagnosis.answers == {7: reply}


def test_each_kind_of_question_goes_to_its_own_call_with_the_time_that_is_left():
    agents = Agents()
    path = PathRequest(source=None, target=None)
    trace = TraceRequest(kind="drops", flow="udp")
    compare = ValidateRequest(local=None, remote_address="", remote_mac="")
    diagnosis = Diagnosis(
        question(1, in_s=2), question(2, request=path), question(3, request=trace),
        question(4, request=compare, in_s=40),
    )  # fmt: skip
    asyncio.run(running(diagnosis, lambda: len(diagnosis.answers) == 4, agents))
    assert diagnosis.answers == {1: WALKS, 2: PathReply(paths=()), 3: TRACED, 4: COMPARED}
    assert agents.deadlines == [2.0, 40.0]


def test_who_drives_a_comparison_waits_longer_than_for_walks():
    agents = Agents()

    compare = ValidateRequest(local=None, remote_address="", remote_mac="")
    asks = [Ask("answers", CHECK), Ask("answers", compare)]
    asker = Asker(StandIn(Diagnosis()), agents, lambda: 0, print)
    assert asyncio.run(asker.put(asks)) == [WALKS, COMPARED]
    assert agents.deadlines == [WALK_S, VALIDATE_S]


def test_a_question_that_is_late_already_is_still_put():
    agents = Agents()
    diagnosis = Diagnosis(question(1, in_s=-3))
    asyncio.run(running(diagnosis, lambda: diagnosis.answers, agents))
    assert agents.deadlines == [LEAST_S]


def test_news_that_come_together_wake_it_once_and_later_ones_again(monkeypatch):
    async def told():
        asker, timers = Asker(StandIn(Diagnosis()), Agents(), lambda: 0, print), []
        monkeypatch.setattr(
            asyncio.get_running_loop(), "call_later", lambda _, then: timers.append(then)
        )
        asker.news()
        asker.news()
        before = len(timers), asker._wake.is_set()
        timers[0]()
        woken = asker._wake.is_set()
        asker.news()
        return before, woken, len(timers)

    assert asyncio.run(told()) == ((1, False), True, 2)


def test_one_agent_that_stands_still_holds_up_no_other_and_is_let_go_at_the_end():
    diagnosis = Diagnosis(question(1, "stands-still"), question(2))
    asker = asyncio.run(running(diagnosis, lambda: diagnosis.answers))
    assert diagnosis.answers == {2: WALKS}
    assert asker._asking == set()


def test_an_answer_is_looked_at_without_waiting_for_a_tick():
    diagnosis = Diagnosis(question(1))
    asyncio.run(running(diagnosis, lambda: diagnosis.answers and diagnosis.steps > 1))


def test_incidents_are_told_and_remarks_logged():
    told, error = [], ValueError("a bug")
    events = [
        IncidentChanged(INCIDENT),
        Remark("pair_traced", {"pair": "a -> b"}),
        Remark("window_not_judged", {"start_ns": 5}, error),
    ]
    diagnosis = Diagnosis(events=events)
    with capture_logs() as logs:
        asyncio.run(running(diagnosis, lambda: not diagnosis.events, told=told))
    assert told == [INCIDENT]
    assert [each["event"] for each in logs] == [
        "incident_changed", "pair_traced", "window_not_judged"
    ]  # fmt: skip
    assert logs[-1]["exc_info"] is error


def test_an_answer_that_the_diagnosis_cannot_take_is_logged_and_stops_nothing():
    diagnosis = Diagnosis(question(1), question(2))
    taken = diagnosis.answer

    def answer(number, reply, now_ns):
        taken(number, reply, now_ns)
        if number == 1:
            raise ZeroDivisionError

    diagnosis.answer = answer
    with capture_logs() as logs:
        asyncio.run(running(diagnosis, lambda: len(diagnosis.answers) == 2 and diagnosis.steps > 1))
    assert "answer_not_taken" in [each["event"] for each in logs]


def test_replies_come_in_the_order_of_what_was_asked():
    asks = [Ask(host, CHECK) for host in ("answers", "refuses", "times-out")]
    found = asyncio.run(Asker(StandIn(Diagnosis()), Agents(), lambda: 0, print).put(asks))
    assert found == [WALKS, Failed(Why.REFUSED, "refused"), Failed(Why.TIMEOUT, "timeout")]


def test_where_judging_took_long_agents_have_as_much_time_and_what_it_says_is_marked(monkeypatch):
    monkeypatch.setattr(room, "LATE_NS", 0)  # whatever time it takes is long
    agents, told = Agents(), []

    class Slow(StandIn):
        async def step(self, now_ns):
            stepped = await super().step(now_ns)
            await asyncio.sleep(0)
            return stepped

    async def inside():
        diagnosis = Diagnosis(question(1, in_s=3), events=[IncidentChanged(INCIDENT)])
        judge = Slow(diagnosis)
        asker = Asker(judge, agents, lambda: 0, told.append)  # a clock that stands
        work = asyncio.create_task(asker.run())
        await until(lambda: diagnosis.answers)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return judge.late

    [late_ns] = asyncio.run(inside())
    assert late_ns > 0
    assert agents.deadlines == [3]
    assert [each.late_ns for each in told] == [late_ns]


def test_a_status_that_cannot_be_had_is_no_news():
    class Silent(Agents):
        async def status(self, host, *, deadline_s=0.0):
            raise Unreachable(host, "timeout")

    diagnosis = Diagnosis(question(1, request=StatusRequest()))
    with capture_logs() as logs:
        asyncio.run(running(diagnosis, lambda: diagnosis.answers, Silent()))
    assert diagnosis.answers == {1: Failed(Why.TIMEOUT, "timeout")}
    assert logs == []


@pytest.mark.parametrize(("stands_s", "told"), [(600 + BEAT_S + 0.2, 1), (500, 0)])
def test_a_loop_that_stood_still_is_told_before_the_next_step(stands_s, told, monkeypatch):
    monkeypatch.setattr(room, "STOOD_S", 600)  # else one that is only slow may be taken for it

    class Still(Diagnosis):
        def __init__(self):
            super().__init__()
            self.calls = []

        def stood_still(self, now_ns):
            self.calls.append("stood still")

        def step(self, now_ns):
            self.calls.append("step")
            return super().step(now_ns)

    async def inside():
        diagnosis = Still()
        leap = leaping(asyncio.get_running_loop())
        asker = Asker(StandIn(diagnosis), Agents(), lambda: 0, lambda _: None)
        work = asyncio.create_task(asker.run())
        await until(lambda: diagnosis.steps and asker._beat_s is not None)
        del diagnosis.calls[:]
        asker._wake.set()
        leap(stands_s)
        await until(lambda: "step" in diagnosis.calls)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return diagnosis.calls, asker.stood_still

    calls, count = asyncio.run(inside())
    assert calls[: told + 1] == ["stood still"] * told + ["step"]
    assert count == told


def test_what_became_of_questions_is_counted_by_kind():
    hosts = ["h0", "h1", "refuses", "times-out", "is-nowhere", "just-did", "cannot", "is-odd"]

    async def inside():
        asker = Asker(StandIn(Diagnosis()), Agents(), lambda: 0, lambda _: None)
        await asker.put([*(Ask(host, CHECK) for host in hosts), Ask("breaks", CHECK)])
        return asker.asked

    with capture_logs():
        asked = asyncio.run(inside())
    every = {("check", why.value): 1 for why in Why}
    assert asked == every | {("check", room.ANSWERED): 2, ("check", "odd"): 2}
    assert len(room.KINDS) == len(set(room.KINDS.values())) == len(get_args(Request))
