# SPDX-License-Identifier: Apache-2.0
"""Summaries as agents send them: as the application answers, whoever of the two answers."""

import asyncio

import pytest

from analyzer.roster.admission import BURST
from analyzer.server import deliveries
from analyzer.server.identity import PEER
from netagent.wire.codec import MAX_BODY_BYTES, decode, deflated, encode
from netagent.wire.messages import Accepted, Summary
from tests.analyzer.cluster import SECOND, endpoint
from tests.analyzer.server.test_routes import MSGPACK, on, problem
from tests.waiting import until

ELSEWHERE = {**MSGPACK, "accept": "application/json"}
"""What an agent does not say: these the application itself takes."""


def summary(start_ns=5 * SECOND, **fields):
    fields = {"host": "h0", "instance": "one", "width_ns": 5 * SECOND, **fields}
    return Summary(start_ns=start_ns, **fields)


async def post(lab, body, headers=MSGPACK):
    return await lab.http.post("/v1/summaries", content=body, headers=headers)


def test_a_summary_is_on_disk_once_it_is_answered_and_the_second_time_a_duplicate(tmp_path):
    async def work(lab):
        await lab.register("h0", endpoint("h0", "a0"))
        body = deflated(encode(summary()))
        first, again = [await post(lab, body) for _ in range(2)]
        assert [decode(x.content, Accepted).duplicate for x in (first, again)] == [False, True]
        assert first.headers["content-type"] == "application/msgpack"
        stored = [payload async for _, payload in lab.analyzer.store.replay(0)]
        assert stored == [body]

    on(tmp_path, work)


@pytest.mark.parametrize(
    ("peer", "body", "status"),
    [
        pytest.param("h1", encode(summary()), 403, id="another host's"),
        pytest.param("h0", b"\xc1", 400, id="no message"),
        pytest.param("h0", encode(summary(start_ns=-1)), 400, id="no time"),
        pytest.param("h0", bytes(MAX_BODY_BYTES + 1), 413, id="too long"),
    ],
)
def test_what_is_refused_is_refused_in_the_same_words_either_way(tmp_path, peer, body, status):
    async def work(lab):
        lab.peer = peer
        ours, theirs = [await post(lab, body, headers) for headers in (MSGPACK, ELSEWHERE)]
        assert problem(ours, status)
        if status != 413:  # the framework has words of its own for these
            assert ours.content == theirs.content
        assert lab.analyzer.counters.summaries == 0

    on(tmp_path, work)


def test_our_own_bug_is_answered_and_logged(tmp_path, monkeypatch):
    async def broken(*_):
        raise ZeroDivisionError

    async def work(lab):
        monkeypatch.setattr(lab.analyzer.service, "push", broken, raising=False)
        assert problem(await post(lab, encode(summary())), 500) == "internal error"

    monkeypatch.setattr(deliveries, "take", broken)
    on(tmp_path, work)


@pytest.mark.parametrize("headers", [MSGPACK, ELSEWHERE])
def test_a_host_that_sends_too_much_is_told_to_wait(tmp_path, headers):
    async def work(lab):
        now_ns = lab.analyzer.clock()
        lab.analyzer.clock = lambda: now_ns
        for _ in range(BURST):
            lab.analyzer.admission.take("h0", 1, now_ns)
        lab.peer = "h0"
        assert "h0" in problem(await post(lab, encode(summary()), headers), 503)
        assert lab.analyzer.counters.refused_summaries == 1
        lab.peer = "h1"
        assert (await post(lab, encode(summary(host="h1")), headers)).status_code == 200

    on(tmp_path, work)


async def given(app, messages, **scope):
    """Return what an application answers to a delivery whose body comes in these messages."""
    said, left = [], iter(messages)

    async def receive():
        return next(left)

    async def send(message):
        said.append(message)

    head = {"type": "http", "method": "POST", "path": "/v1/summaries", "state": {PEER: "h0"}}
    headers = [(name.encode(), value.encode()) for name, value in MSGPACK.items()]
    await app({**head, "headers": headers, **scope}, receive, send)
    return said


def part(body, *, more=True):
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_comes_in_parts(tmp_path):
    async def work(lab):
        app, body = deliveries.Deliveries(lab.analyzer, None), encode(summary())
        said = await given(app, [part(body[:9]), part(body[9:20]), part(body[20:], more=False)])
        assert said[0]["status"] == 200
        assert app._held_bytes == 0

    on(tmp_path, work)


def test_who_hangs_up_half_way_is_answered_nothing_and_holds_nothing(tmp_path):
    async def work(lab):
        app = deliveries.Deliveries(lab.analyzer, None)
        assert await given(app, [part(b"abc"), {"type": "http.disconnect"}]) == []
        assert app._held_bytes == 0

    on(tmp_path, work)


def test_bodies_that_are_begun_and_not_ended_take_no_more_than_their_share(tmp_path, monkeypatch):
    monkeypatch.setattr(deliveries, "HELD_BYTES", 1_000_000)

    async def work(lab):
        app, more = deliveries.Deliveries(lab.analyzer, None), asyncio.Event()

        async def slow():
            yield part(bytes(600_000))
            await more.wait()
            yield {"type": "http.disconnect"}

        messages = slow()
        head = {"type": "http", "method": "POST", "path": "/v1/summaries", "state": {PEER: "h1"}}
        headers = [(b"content-type", b"application/msgpack")]
        first = asyncio.create_task(
            app({**head, "headers": headers}, lambda: anext(messages), None)
        )
        await until(lambda: app._held_bytes)
        said = await given(app, [part(bytes(600_000)), part(b"", more=False)])
        assert said[0]["status"] == 503
        more.set()
        await first
        body = encode(summary())
        assert (await given(app, [part(body, more=False)]))[0]["status"] == 200

    on(tmp_path, work)
