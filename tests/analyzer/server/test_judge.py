# SPDX-License-Identifier: Apache-2.0
"""The analyzer's side of a judge, against stand-ins that the test plays."""

import asyncio

import pytest

from analyzer.diagnosis.engine import IncidentChanged, Remark
from analyzer.judge import messages
from analyzer.questions import Ask, Failed, Question, StatusRequest, Why
from analyzer.replay import records
from analyzer.server import judge as room
from analyzer.server.judge import Judge, JudgeError
from analyzer.server.link import LinkClosed
from netagent.model.errors import CapabilityMissing, LocalProtocolError, RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict
from netagent.wire.codec import encode
from tests.waiting import until

A, B = EndpointId("a", 0), EndpointId("b", 0)
QUESTION = Question(4, "h0", StatusRequest(), 99)
INCIDENT = Incident(
    "i1", IncidentState.OPEN, Verdict(None, None, Symptom.LOSS, 0.1, "why"), 1, 2, 3
)
BEFORE = records.Began(now_ns=1)


class Played:
    """A judge that says what the test lets it say."""

    def __init__(self):
        self.sent, self.said, self.backlog_bytes = [], asyncio.Queue(), 0
        self.closed, self.waits = False, None
        self.says(messages.Ready(pid=7))

    def says(self, *said):
        for each in said:
            self.said.put_nowait(each)

    def dies(self):
        self.said.put_nowait(None)

    def send(self, frame):
        self.sent.append(messages.down(frame[messages.HEAD.size :]))

    async def drain(self):
        if self.waits is not None:
            await self.waits.wait()

    async def receive(self):
        said = await self.said.get()
        if said is None:
            raise LinkClosed
        return said

    async def close(self):
        self.closed = True


class Bench:
    """A judge, and the links that were made for it."""

    def __init__(self):
        self.links, self.refused = [], []
        self.judge = Judge(self.open)
        self.next = None

    async def open(self):
        self.links.append(self.next or Played())
        self.next = None
        return self.links[-1]

    @property
    def link(self):
        return self.links[-1]

    async def recall(self, _since):
        yield BEFORE


def on(work):
    """Run `work(bench)` beside the judge's worker."""

    async def inside():
        async with asyncio.timeout(60):
            bench = Bench()
            await bench.judge.begin(bench.recall, bench.refused.append)
            worker = asyncio.create_task(bench.judge.run())
            try:
                return await work(bench)
            finally:
                worker.cancel()
                await asyncio.gather(worker, return_exceptions=True)
                await bench.judge.stop()

    return asyncio.run(inside())


def test_a_step_brings_what_was_asked_and_said_until_it_was_done():
    async def work(bench):
        step = asyncio.create_task(bench.judge.step(5))
        await until(lambda: records.Stepped(now_ns=5) in bench.link.sent)
        assert bench.judge.late_ns(8) == 3
        bench.link.says(
            messages.put(QUESTION),
            records.Told(incident=INCIDENT),
            messages.Said(event="pair_traced", values={"pair": "a"}),
            messages.Said(event="window_not_judged", error="Traceback"),
        )
        bench.link.says(messages.Done(deadline_ns=11))
        done = await step
        assert (done.questions, done.deadline_ns) == ([QUESTION], 11)
        assert done.events[:2] == [IncidentChanged(INCIDENT), Remark("pair_traced", {"pair": "a"})]
        assert isinstance(done.events[2].error, JudgeError)
        assert bench.judge.late_ns(8) == 0

    on(work)


def test_what_is_said_between_two_steps_is_told_with_the_next_one():
    async def work(bench):
        said = []
        for at_ns in (5, 6, 7):
            step = asyncio.create_task(bench.judge.step(at_ns))
            await until(lambda at_ns=at_ns: records.Stepped(now_ns=at_ns) in bench.link.sent)
            bench.link.says(messages.Done(deadline_ns=at_ns))
            done = await step
            assert done.deadline_ns == at_ns
            said.append([each.event for each in done.events])
            if at_ns == 5:
                bench.link.says(messages.Said(event="not_recorded", error="Traceback"))
                bench.link.says(messages.Refused(host="h0", error="odd"))
                await until(lambda: bench.refused)  # what was said before it was taken, too
        assert said == [[], ["not_recorded"], []]

    on(work)


def test_what_happens_while_a_new_judge_is_told_what_was_comes_after_it():
    async def inside():
        bench = Bench()
        bench.next = link = Played()
        link.waits = asyncio.Event()
        begun = asyncio.create_task(bench.judge.begin(bench.recall, bench.refused.append))
        await until(lambda: link.sent)
        bench.judge.give(records.Expired(now_ns=3))
        assert (await bench.judge.step(4)).questions == []  # nothing is due yet
        link.waits.set()
        await begun
        await bench.judge.stop()
        return link.sent

    assert asyncio.run(inside()) == [BEFORE, records.Expired(now_ns=3)]


def test_a_judge_that_dies_is_followed_by_one_that_is_told_what_was(monkeypatch):
    monkeypatch.setattr(room, "AGAIN_MIN_S", 0.001)

    async def work(bench):
        step = asyncio.create_task(bench.judge.step(5))
        await until(lambda: len(bench.link.sent) == 2)
        bench.link.says(messages.put(QUESTION))
        bench.link.dies()
        assert (await step).questions == [QUESTION]
        await until(lambda: len(bench.links) == 2 and bench.link.sent)
        assert bench.links[0].closed
        assert bench.link.sent == [BEFORE]
        bench.judge.answer(1, 4, Failed(Why.TIMEOUT, "late"), 6)  # of the one that is gone
        assert bench.link.sent == [BEFORE]
        bench.judge.answer(2, 4, Failed(Why.TIMEOUT, "late"), 6)
        assert bench.link.sent[1:] == [records.answered(4, Failed(Why.TIMEOUT, "late"), 6)]
        assert bench.judge.starts == 2

    on(work)


def test_the_analyzer_s_own_trouble_and_what_differs_is_told_to_a_later_judge_too(monkeypatch):
    monkeypatch.setattr(room, "AGAIN_MIN_S", 0.001)
    refused = [records.Impaired(now_ns=n) for n in (3, 4)]
    stood = records.Impaired(stood_still=True, now_ns=2)
    differed = [records.Differed(differences=(), now_ns=n) for n in (5, 6)]

    async def work(bench):
        for record in (stood, *refused, *differed):
            bench.judge.give(record)
        bench.link.dies()
        await until(lambda: len(bench.links) == 2 and len(bench.link.sent) > 1)
        assert bench.link.sent == [BEFORE, stood, refused[1], differed[1]]

    on(work)


@pytest.mark.parametrize("away", [True, False])
def test_what_cannot_be_told_is_refused_where_it_happens(away):
    async def inside():
        bench = Bench()
        if not away:
            await bench.judge.begin(bench.recall, bench.refused.append)
        with pytest.raises(LocalProtocolError):
            bench.judge.give(records.Expired(now_ns=10**30))
        await bench.judge.stop()

    asyncio.run(inside())


class Unread(list):
    """Frames that nobody may look through."""

    def __iter__(self):
        raise AssertionError


def test_what_is_held_for_a_new_judge_counts_as_backlog():
    async def inside():
        bench = Bench()
        bench.next = link = Played()
        link.waits = asyncio.Event()
        begun = asyncio.create_task(bench.judge.begin(bench.recall, bench.refused.append))
        await until(lambda: link.sent)
        bench.judge.give(records.Ingested(payload=b"x" * 1000, now_ns=3))
        frames, bench.judge._held = bench.judge._held, Unread()
        held = bench.judge.backlog_bytes  # as each delivery asks, of a hundred thousand
        bench.judge._held = frames
        link.waits.set()
        await begun
        after = bench.judge.backlog_bytes
        await bench.judge.stop()
        return held, after

    held, after = asyncio.run(inside())
    assert held > 1000
    assert after == 0


def test_replies_to_a_walk_never_go_to_a_later_judge(monkeypatch):
    monkeypatch.setattr(room, "AGAIN_MIN_S", 0.001)

    async def work(bench):
        first, answered = bench.link, asyncio.Event()

        async def put(_asks):
            await answered.wait()
            return [Failed(Why.REFUSED, "refused")]

        walk = asyncio.create_task(bench.judge.walk(A, B, put))
        await until(lambda: len(first.sent) == 2)
        first.says(messages.Asking(query=1, asks=(messages.put(Ask("h0", StatusRequest())),)))
        await until(first.said.empty)
        first.dies()
        await until(lambda: len(bench.links) == 2 and bench.link.sent)
        answered.set()
        with pytest.raises(CapabilityMissing):
            await walk
        assert bench.link.sent == [BEFORE]

    on(work)


def test_summaries_that_it_cannot_use_are_told():
    async def work(bench):
        bench.link.says(messages.Refused(host="h0", error="odd"))
        await until(lambda: bench.refused)
        assert bench.refused == [messages.Refused(host="h0", error="odd")]

    on(work)


def test_a_walk_asks_agents_until_it_has_a_result():
    async def put(asks):
        assert asks == [Ask("h0", StatusRequest())]
        return [Failed(Why.REFUSED, "refused")]

    async def work(bench):
        walk = asyncio.create_task(bench.judge.walk(A, B, put, layers=True))
        await until(lambda: messages.Walk(query=1, pairs=((A, B),), layers=True) in bench.link.sent)
        ask = messages.put(Ask("h0", StatusRequest()))
        bench.link.says(messages.Asking(query=1, asks=(ask,)))
        reply = messages.replies(1, (Failed(Why.REFUSED, "refused"),))
        await until(lambda: reply in bench.link.sent)
        bench.link.says(messages.Result(query=1, body=encode([{"outcome": "delivered"}])))
        assert await walk == {"outcome": "delivered"}

    on(work)


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (messages.NoResult(query=1, error="no such"), RemoteProtocolError, "no such"),
        (messages.NoResult(query=1, error="x", capability="c"), CapabilityMissing, "x"),
        (messages.NoResult(query=1, error="Trace", bug=True), JudgeError, "Trace"),
    ],
)
def test_a_query_without_a_result_says_why(said, error, words):
    async def work(bench):
        look = asyncio.create_task(bench.judge.look("findings", list))
        await until(lambda: len(bench.link.sent) == 2)
        bench.link.says(said)
        with pytest.raises(error, match=words):
            await look

    on(work)


def test_a_query_of_a_judge_that_dies_or_is_away_is_answered(monkeypatch):
    monkeypatch.setattr(room, "AGAIN_MIN_S", 60)

    async def work(bench):
        look = asyncio.create_task(bench.judge.look("findings", list))
        await until(lambda: len(bench.link.sent) == 2)
        bench.link.dies()
        with pytest.raises(CapabilityMissing, match="judge"):
            await look
        with pytest.raises(CapabilityMissing, match="judge"):
            await bench.judge.look("findings", list)
        assert (await bench.judge.step(9)).events == []
        bench.judge.give(records.Expired(now_ns=3))  # a later one is told what is stored
        assert bench.judge.backlog_bytes == 0

    on(work)
