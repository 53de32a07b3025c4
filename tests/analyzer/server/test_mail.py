# SPDX-License-Identifier: Apache-2.0
"""Incidents reach real receivers, whatever these do: each event, in order, over restarts."""

import asyncio
import hmac
import time
from collections import deque
from itertools import pairwise
from pathlib import Path

import pytest

from analyzer.config import Webhook
from analyzer.poster import Poster
from analyzer.server import journal, views
from analyzer.webhooks import outbox
from analyzer.webhooks.answers import Answer, Outcome
from netagent.model.errors import CapabilityMissing
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import Component, Kind
from netagent.model.verdict import IncidentState
from netagent.wire.codec import encode
from netagent.wire.messages import Summary
from tests.analyzer.cluster import SECOND, endpoint, registration
from tests.analyzer.receiver import Receiver, free_port, hangs, hangs_up, raw, status
from tests.analyzer.server.process import Process
from tests.analyzer.server.test_routes import MSGPACK, incident, on
from tests.waiting import until, wait_until

OK = status(204)
OPEN, CONFIRMED, RECOVERED = IncidentState
LIFE = ("opened", "confirmed", "recovered")
SECRET = b"0123456789abcdef"
garbage = raw(lambda: iter([b"\x00 garbage\r\n\r\n"]))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Let attempts follow each other as quickly as a test has patience for."""
    monkeypatch.setattr(outbox, "FIRST_NS", 20_000_000)
    monkeypatch.setattr(outbox, "LONGEST_NS", 200_000_000)


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def webhook(receiver, **fields):
    return Webhook(name="pager", url=receiver.url, **{"timeout_s": 60.0, **fields})


def signed(folder):
    path = folder / "secret"
    path.write_bytes(SECRET + b"\n")
    path.chmod(0o600)
    return str(path)


def changes(name, *states):
    return [
        incident(name, state, updated_ns=at) for at, state in enumerate(states or IncidentState)
    ]


async def change(lab, *incidents):
    """Have the diagnosis say this, and wait until it is announced."""
    seq = lab.analyzer.journal.seq
    lab.diagnosis.change(*incidents)
    await until(lambda: len(lab.analyzer.journal.events(seq)) == len(incidents))


def lives(receiver):
    """Return what the receiver was told, incident by incident."""
    told = {}
    for attempt in receiver.taken:
        event = attempt.event
        told.setdefault(event["data"]["id"], []).append(event["type"].rpartition(".")[2])
    return told


def check(receiver):
    """Check that each event came once, in its incident's order, and that all are signed."""
    ids = receiver.ids()
    assert len(set(ids)) == len(ids)
    numbers = {}
    for each in ids:
        name, _, seq = each.rpartition(".")
        numbers.setdefault(name, []).append(int(seq))
    assert all(a < b for mine in numbers.values() for a, b in pairwise(mine))
    for attempt in receiver.attempts:
        at = attempt.headers["netagent-timestamp"]
        digest = hmac.new(SECRET, at.encode() + b"." + attempt.body, "sha256").hexdigest()
        assert attempt.headers["netagent-signature"] == f"sha256={digest}"


def gives_up_on_who_hangs(monkeypatch, receiver):
    """Have a poster's time be over once its receiver hangs, and before on no account.

    Who is given up on because this machine is busy is told once more.
    """
    real = Poster.post

    async def post(self, body):
        posting = asyncio.create_task(real(self, body))
        while body not in receiver.hung:
            if (await asyncio.wait({posting}, timeout=0.01))[0]:
                return posting.result()
        receiver.hung.remove(body)
        posting.cancel()
        await asyncio.wait({posting})
        return Answer(Outcome.LATER, "no answer")

    monkeypatch.setattr(Poster, "post", post)


async def left(lab):
    return await lab.analyzer.store.letters()


async def all_stored(lab, *, waiting=None):
    """Wait until no more than these wait, answers being on their way, and all of it is stored."""
    mail = lab.analyzer.mail
    if waiting is not None:
        await until(lambda: mail.receivers["pager"].outbox.waiting == waiting)
    await until(lambda: not mail._drop and not mail._put)
    return await left(lab)


@pytest.mark.parametrize(
    "script",
    [
        [],
        [status(500)] * 5,
        [hangs] * 3,
        [garbage, hangs_up, garbage],
        [status(503, retry_after="0"), status(429), status(404), hangs, status(500), garbage] * 3,
    ],
    ids=["well", "500", "hangs", "garbage", "everything"],
)
def test_each_event_arrives_once_and_in_order_whatever_the_receiver_did(
    tmp_path, monkeypatch, script
):
    async def work(lab):
        for name in "abc":
            await change(lab, *changes(name))
        await until(lambda: len(receiver.taken) == 9)
        assert await all_stored(lab, waiting=0) == []

    with Receiver(OK, script=deque(script)) as receiver:
        gives_up_on_who_hangs(monkeypatch, receiver)
        hook = webhook(receiver, secret=signed(tmp_path))
        on(tmp_path, work, webhooks=(hook,))
    assert lives(receiver) == {name: [*LIFE] for name in "abc"}
    assert len(receiver.attempts) == 9 + len(script)
    check(receiver)


def test_an_event_says_what_the_api_says_of_the_incident(tmp_path):
    async def work(lab):
        await change(lab, incident(updated_ns=1_795_154_400_000_000_000))
        await until(lambda: receiver.taken)
        return (await lab.http.get("/v1/incidents")).json()["incidents"]

    with Receiver(OK) as receiver:
        (shown,) = on(tmp_path, work, webhooks=(webhook(receiver, source="/site-a"),))
    event = receiver.taken[0].event
    assert event["data"] | {"feedback": []} == shown
    assert {name: event[name] for name in ("specversion", "type", "source", "subject", "time")} == {
        "specversion": "1.0",
        "type": "netagent.incident.opened",
        "source": "/site-a",
        "subject": "switch spine-0",
        "time": "2026-11-20T06:00:00.000000000Z",
    }


def test_a_receiver_that_was_away_is_told_all_once_it_is_there(tmp_path):
    receiver = Receiver(OK, port=free_port())

    async def work(lab):
        for name in "abcdef":
            await change(lab, *changes(name, OPEN, CONFIRMED))
        known = lab.analyzer.mail.receivers["pager"]
        await until(lambda: known.state == "down")
        assert known.outbox.waiting == 12
        with receiver:
            await until(lambda: len(receiver.taken) == 12)
            await until(lambda: known.state == "ok")

    on(tmp_path, work, webhooks=(webhook(receiver, secret=signed(tmp_path)),))
    assert lives(receiver) == {name: ["opened", "confirmed"] for name in "abcdef"}
    check(receiver)


def test_an_incident_whose_events_are_not_taken_keeps_no_other_waiting(tmp_path):
    def but_a(handler):
        poisoned = handler.attempt.event["data"]["id"] == "a"
        return (status(500) if poisoned else OK)(handler)

    async def work(lab):
        await change(lab, *changes("a"))
        await until(lambda: receiver.attempts)
        await change(lab, *changes("b"), *changes("c"))
        await until(lambda: len(receiver.taken) == 6)
        known = lab.analyzer.mail.receivers["pager"]
        await until(lambda: known.outbox.waiting == 3)
        receiver.usual = OK
        await until(lambda: len(receiver.taken) == 9)

    with Receiver(but_a) as receiver:
        on(tmp_path, work, webhooks=(webhook(receiver),))
    assert lives(receiver) == {name: [*LIFE] for name in "abc"}


def test_what_waits_survives_a_restart_and_what_was_taken_is_not_sent_again(tmp_path):
    receiver = Receiver(OK)

    async def first(lab):
        with receiver:
            await change(lab, *changes("a", OPEN))
            await until(lambda: receiver.taken)
        await change(lab, *changes("a", CONFIRMED), *changes("b", OPEN, CONFIRMED))
        await until(lambda: lab.analyzer.mail.receivers["pager"].state == "down")

    async def second(lab):
        await change(lab, incident("b", RECOVERED), incident("c", OPEN))
        with receiver:
            await until(lambda: len(receiver.taken) == 6)
        assert await all_stored(lab, waiting=0) == []

    with receiver:
        pass  # to have a port
    for work in (first, second):
        on(tmp_path, work, webhooks=(webhook(receiver, secret=signed(tmp_path)),))
    assert lives(receiver) == {"a": ["opened", "confirmed"], "b": [*LIFE], "c": ["opened"]}
    check(receiver)


def test_where_the_clock_was_set_back_meanwhile_the_order_stays(tmp_path, monkeypatch):
    receiver = Receiver(OK, port=free_port())

    async def first(lab):
        await change(lab, *changes("a", OPEN))
        return lab.analyzer.journal.seq

    async def second(lab):
        await change(lab, *changes("a", CONFIRMED))
        with receiver:
            await until(lambda: len(receiver.taken) == 2)
        return lab.analyzer.journal.seq

    hooks = (webhook(receiver),)
    before = on(tmp_path, first, webhooks=hooks)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * SECOND)
    after = on(tmp_path, second, webhooks=hooks)
    assert after > before
    assert lives(receiver) == {"a": ["opened", "confirmed"]}


def test_a_receiver_that_is_configured_no_more_is_forgotten(tmp_path):
    nobody = Receiver(OK, port=free_port())

    async def first(lab):
        await change(lab, *changes("a", OPEN))
        assert len(await left(lab)) == 1

    async def second(lab):
        await until(lambda: not lab.analyzer.mail._drop)
        return await left(lab)

    on(tmp_path, first, webhooks=(webhook(nobody),))
    assert on(tmp_path, second) == []


def test_a_disk_that_refuses_keeps_nobody_from_being_told_and_is_written_later(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("analyzer.server.mail.RETRY_S", 0.02)
    monkeypatch.setattr(journal, "RETRY_S", 0.02)

    async def refuse(*_):
        raise CapabilityMissing("database", "No space left on device")

    async def work(lab):
        store = lab.analyzer.store
        store.put_incidents = store.change_letters = refuse
        await change(lab, *changes("a", OPEN))
        await until(lambda: receiver.taken)
        assert not receiver.taken[0].event["data"]["stored"]
        receiver.usual = status(500)
        await change(lab, *changes("b", OPEN))
        await until(lambda: len(receiver.attempts) >= 3)
        del store.put_incidents, store.change_letters
        [waiting] = await all_stored(lab, waiting=1)
        assert waiting.incident == "b"
        await until(lambda: lab.analyzer.journal.unstored == 0)
        assert {each.id for each in await store.incidents()} == {"a", "b"}

    with Receiver(OK) as receiver:
        on(tmp_path, work, webhooks=(webhook(receiver),))


def test_incidents_and_what_is_written_of_them_are_stored_together(tmp_path):
    """A kill between two writes would lose an event for ever."""

    async def work(lab):
        seen = []
        store = lab.analyzer.store
        put = store.put_incidents

        async def watched(incidents, letters=()):
            seen.append(([each.id for each in incidents], [each.event for each in letters]))
            await put(incidents, letters)

        store.put_incidents = watched
        await change(lab, *changes("a", OPEN, CONFIRMED))
        return [events for names, events in seen if "a" in names]

    nobody = Receiver(OK, port=free_port())
    written = on(tmp_path, work, webhooks=(webhook(nobody),))
    assert [event for events in written for event in events] == ["opened", "confirmed"]


def test_a_bug_in_what_is_written_keeps_no_incident_from_being_shown(tmp_path, monkeypatch):
    async def work(lab):
        monkeypatch.setattr(views, "incident", lambda *_, **__: 1 / 0)
        await change(lab, *changes("a", OPEN))
        monkeypatch.undo()
        assert lab.analyzer.journal.get("a") is not None
        assert lab.analyzer.workers.crashes == 0

    with Receiver(OK) as receiver:
        on(tmp_path, work, webhooks=(webhook(receiver),))
    assert receiver.attempts == []


def test_a_receiver_that_hangs_slows_nothing_and_does_not_grow(tmp_path):
    async def work(lab):
        known = lab.analyzer.mail.receivers["pager"]
        before = open_files()
        for n in range(60):
            await change(lab, *changes(f"i{n % 4}", OPEN, CONFIRMED))
        assert known.outbox.waiting <= 10 + 4
        assert known.outbox.counts.dropped >= 100
        assert open_files() <= before + 3 * outbox.CONNECTIONS
        last = {each.incident: each.seq for each in await all_stored(lab)}
        receiver.usual = OK
        receiver.released.set()
        await until(lambda: known.outbox.waiting == 0)
        await until(lambda: len(receiver.taken) == known.outbox.counts.sent)
        told = {each.rpartition(".")[0]: int(each.rpartition(".")[2]) for each in receiver.ids()}
        assert told == last  # the newest of each incident

    with Receiver(hangs) as receiver:
        # Nobody is given up on before it ends: what waited for an answer would stop the test.
        on(tmp_path, work, webhooks=(webhook(receiver, queue_events=10, timeout_s=300.0),))


def test_where_bodies_are_too_many_the_newest_state_of_each_incident_is_told(tmp_path):
    receiver = Receiver(OK, port=free_port())
    names = [f"i{n}" for n in range(150)]

    async def work(lab):
        known = lab.analyzer.mail.receivers["pager"]
        await change(lab, *map(incident, names))
        assert known.outbox.bytes <= 1 << 16
        assert known.outbox.waiting == len(names)
        stored = await all_stored(lab)
        assert len(stored) == len(names)
        assert sum(len(each.body) for each in stored) == known.outbox.bytes
        assert any(not each.body for each in stored)
        with receiver:
            await until(lambda: len(receiver.taken) == len(names))

    on(tmp_path, work, webhooks=(webhook(receiver, queue_bytes=1 << 16),))
    assert lives(receiver) == {name: ["opened"] for name in names}
    assert {each.event["data"]["component"] for each in receiver.taken} == {"switch spine-0"}


def test_each_receiver_is_told_what_it_wants(tmp_path):
    async def work(lab):
        await change(lab, *changes("a", OPEN), *changes("b", OPEN, CONFIRMED, RECOVERED))
        await until(lambda: len(every.taken) == 4)
        await until(lambda: len(sure.taken) == 2)

    with Receiver(OK) as every, Receiver(OK) as sure, Receiver(OK) as links:
        hooks = (
            webhook(every),
            Webhook(name="sure", url=sure.url, state=CONFIRMED),
            Webhook(name="links", url=links.url, kinds=(Kind.LINK,)),
        )
        on(tmp_path, work, webhooks=hooks)
    assert lives(sure) == {"b": ["confirmed", "recovered"]}
    assert links.attempts == []


# --- the process ----------------------------------------------------------------------------------

SPARE = Finding(
    FindingKind.RAIL_ON_SPARE, Component.parse("rnic h0/rnic0"), "no spare", 1, {"bond": "bond0"}
)


class Agent:
    """Delivers windows of a second as they end, and states what it is to."""

    def __init__(self, client):
        self.client, self.findings, self.sent = client, (), 0
        message = registration("h0", endpoint("h0", "a0"))
        client.put("/v1/hosts/h0/endpoints", content=encode(message), headers=MSGPACK)

    def deliver(self, seconds):
        """Deliver the window that ended, if one did, and rest."""
        ended = time.time_ns() // SECOND
        if ended > self.sent:
            self.sent = ended
            start_ns = (ended - 1) * SECOND
            message = Summary(
                host="h0", instance="one", start_ns=start_ns, width_ns=SECOND,
                findings=self.findings,
            )  # fmt: skip
            answer = self.client.post("/v1/summaries", content=encode(message), headers=MSGPACK)
            assert answer.status_code == 200
        time.sleep(seconds)

    def until(self, condition, what):
        wait_until(condition, what, 60, rest=self.deliver)


def test_events_reach_a_receiver_over_kills_of_the_real_analyzer(tmp_path):
    receiver = Receiver(OK, port=free_port())
    more = (
        f'window_s = 1\n[[webhooks]]\nname = "pager"\nurl = "{receiver.url}"\n'
        f'secret = "{signed(tmp_path)}"\ntimeout_s = 60\n'
    )

    def waiting(client):
        return client.get("/v1/webhooks").json()["webhooks"][0]["waiting"]

    receiver.usual = hangs
    with receiver, Process(tmp_path, more=more) as analyzer, analyzer.client() as client:
        agent = Agent(client)
        agent.findings = (SPARE,)
        agent.until(lambda: receiver.attempts, "the event")
        [known] = client.get("/v1/incidents").json()["incidents"]
        assert waiting(client) == 1
        analyzer.kill()  # while the receiver thinks about it
    receiver.usual = OK
    with Process(tmp_path, more=more) as analyzer, analyzer.client() as client:
        assert waiting(client) == 1
        agent = Agent(client)
        agent.until(
            lambda: client.get(f"/v1/incidents/{known['id']}").json()["state"] == "recovered",
            "the end",
        )
        assert waiting(client) == 2
        analyzer.kill()
    with receiver, Process(tmp_path, more=more) as analyzer, analyzer.client() as client:
        wait_until(lambda: waiting(client) == 0, within_s=30)
        assert (
            'netagent_webhook_events_sent_total{webhook="pager"} 2.0' in client.get("/metrics").text
        )
        wait_until(lambda: len(receiver.taken) == 2)
        assert analyzer.stop()[0] == 0
    with receiver, Process(tmp_path, more=more) as analyzer, analyzer.client() as client:
        assert waiting(client) == 0
    assert lives(receiver) == {known["id"]: ["confirmed", "recovered"]}
    assert [each.event["id"] for each in receiver.attempts] == [receiver.ids()[0], *receiver.ids()]
    check(receiver)
