# SPDX-License-Identifier: Apache-2.0
"""Summaries as agents send them: as the application answers, whoever of the two answers."""

import asyncio

import httpx
import pytest

from analyzer.roster.admission import BURST
from analyzer.server import deliveries
from analyzer.server.identity import PEER
from netagent.wire.codec import MAX_BODY_BYTES, decode, deflated, encode
from netagent.wire.messages import Accepted, Summary
from tests.analyzer.cluster import SECOND, endpoint
from tests.analyzer.server.process import Process
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
        lab.analyzer.monotonic = lambda: 0
        for _ in range(BURST):
            lab.analyzer.admission.take("h0", 1, 0)
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
        assert not app._held

    on(tmp_path, work)


def test_who_hangs_up_half_way_is_answered_nothing_and_holds_nothing(tmp_path):
    async def work(lab):
        app = deliveries.Deliveries(lab.analyzer, None)
        assert await given(app, [part(b"abc"), {"type": "http.disconnect"}]) == []
        assert not app._held

    on(tmp_path, work)


class Slow:
    """A caller that begins a body and waits with the rest of it."""

    def __init__(self, app, name, size):
        self.more = asyncio.Event()
        headers = [(b"content-type", b"application/msgpack")]
        head = {"type": "http", "method": "POST", "path": "/v1/summaries", "headers": headers}
        self.said = []
        self.work = asyncio.create_task(
            app({**head, "state": {PEER: name}}, self._parts(size).__anext__, self._send)
        )

    async def _parts(self, size):
        yield part(bytes(size))
        await self.more.wait()
        yield {"type": "http.disconnect"}

    async def _send(self, message):
        self.said.append(message)

    async def end(self):
        self.more.set()
        await self.work


def test_who_begins_bodies_and_does_not_end_them_takes_no_room_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(deliveries, "HELD_BYTES_EACH", 1_000_000)

    async def work(lab):
        app = deliveries.Deliveries(lab.analyzer, None)
        first, second = [Slow(app, "h1", 600_000) for _ in range(2)]
        await until(lambda: second.said)
        assert second.said[0]["status"] == 503
        assert app._held["h1"] == app._held[None] == 600_000
        body = encode(summary())
        assert (await given(app, [part(body, more=False)]))[0]["status"] == 200
        for each in (first, second):
            await each.end()
        assert not app._held

    on(tmp_path, work)


def test_where_all_callers_together_send_too_much_nobody_is_called_silent(tmp_path, monkeypatch):
    monkeypatch.setattr(deliveries, "HELD_BYTES", 1_000_000)

    async def work(lab):
        app = deliveries.Deliveries(lab.analyzer, None)
        first = Slow(app, "h1", 999_900)
        await until(lambda: app._held)
        said = await given(app, [part(encode(summary())), part(b"", more=False)])
        assert said[0]["status"] == 503
        await lab.judge.all_taken()
        assert lab.diagnosis.refusals == lab.analyzer.counters.refused_summaries == 1
        await first.end()

    on(tmp_path, work)


def test_a_body_that_does_not_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(deliveries, "BODY_S", 0.05)

    async def work(lab):
        app = deliveries.Deliveries(lab.analyzer, None)
        slow = Slow(app, "h1", 10)
        await slow.work
        assert slow.said[0]["status"] == 408
        assert not app._held

    on(tmp_path, work)


def test_a_body_for_another_route_counts_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr(deliveries, "HELD_BYTES_EACH", 10)

    async def work(lab):
        lab.peer = "h0"
        answer = await lab.http.put("/v1/hosts/h0/endpoints", content=bytes(20), headers=MSGPACK)
        assert "memory" in problem(answer, 503)

    on(tmp_path, work)


def test_no_site_has_its_name_lead_here_where_nobody_is_asked_who_he_is(tmp_path):
    """DNS rebinding: the browser takes us for that site, whose scripts may do what anybody may."""
    with Process(tmp_path) as analyzer:
        for host, status in (
            ("evil.example:8420", 403), ("127.0.0.1.evil.example", 403), ("localhost.evil", 403),
            ("localhost:8420", 200), ("127.0.0.1", 200), ("[::1]:8420", 200), ("", 200),
        ):  # fmt: skip
            for method, path in (("GET", "/v1/incidents"), ("POST", "/v1/sessions")):
                answer = httpx.request(
                    method, analyzer.url + path, headers={"host": host}, json={}, trust_env=False
                )
                expected = status if status == 403 or method == "GET" else 404  # no page is there
                assert (host, answer.status_code) == (host, expected), answer.text
        pushed = httpx.post(f"{analyzer.url}/v1/summaries", headers={"host": "evil"}, content=b"x")
        assert pushed.status_code == 403
