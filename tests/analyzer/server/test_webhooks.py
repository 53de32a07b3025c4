# SPDX-License-Identifier: Apache-2.0
"""How it stands with receivers, by the API and in metrics; and a test of one."""

from analyzer.config import Webhook
from tests.analyzer.receiver import Receiver, free_port, status
from tests.analyzer.server.test_mail import change, changes
from tests.analyzer.server.test_routes import on, problem
from tests.waiting import until

OK = status(204)


def by_name(answer):
    return {each["name"]: each for each in answer.json()["webhooks"]}


def test_each_receiver_is_listed_and_counted(tmp_path):
    async def work(lab):
        assert {each["state"] for each in by_name(await lab.http.get("/v1/webhooks")).values()} == {
            "ok"
        }
        await change(lab, *changes("a"))
        known = lab.analyzer.mail.receivers
        await until(lambda: known["there"].state == "ok" and known["there"].taken_ns)
        await until(lambda: known["odd"].outbox.counts.refused == 3)
        await until(lambda: known["away"].outbox.counts.retried)
        metrics = (await lab.http.get("/metrics")).text
        return by_name(await lab.http.get("/v1/webhooks")), metrics

    port = free_port()
    with Receiver(OK) as there, Receiver(status(422)) as odd:
        hooks = (
            Webhook(name="there", url=there.url),
            Webhook(name="odd", url=odd.url),
            Webhook(name="away", url=f"http://127.0.0.1:{port}/secret-path"),
        )
        told, metrics = on(tmp_path, work, webhooks=hooks)
    there, odd, away = (told[name] for name in ("there", "odd", "away"))
    assert (there["sent"], there["waiting"], there["state"]) == (3, 0, "ok")
    assert there["last_answer"] == "HTTP 204 No Content"
    assert there["taken_ns"] == there["last_ns"]
    assert (odd["sent"], odd["refused"], odd["waiting"]) == (0, 3, 0)
    assert (away["waiting"], away["sent"], away["taken_ns"]) == (3, 0, None)
    assert away["waiting_bytes"] > 100
    assert away["oldest_s"] > 0
    assert away["to"] == f"http://127.0.0.1:{port}"
    assert "secret-path" not in str(told) + metrics
    for line in (
        'netagent_webhook_events_sent_total{webhook="there"} 3.0',
        'netagent_webhook_events_refused_total{webhook="odd"} 3.0',
        'netagent_webhook_events_dropped_total{webhook="away"} 0.0',
        'netagent_webhook_events_waiting{webhook="away"} 3.0',
        'netagent_webhook_oldest_seconds{webhook="there"} 0.0',
        "# TYPE netagent_webhook_events_retried_total counter",
    ):
        assert line in metrics.splitlines()


def test_a_test_says_what_came_back_and_counts_nothing(tmp_path):
    async def work(lab):
        taken = (await lab.http.post("/v1/webhooks/pager/test")).json()
        receiver.usual = status(403, "who are you?")
        not_taken = (await lab.http.post("/v1/webhooks/pager/test")).json()
        problem(await lab.http.post("/v1/webhooks/other/test"), 404)
        return taken, not_taken, by_name(await lab.http.get("/v1/webhooks"))["pager"]

    with Receiver(OK) as receiver:
        hooks = (Webhook(name="pager", url=receiver.url),)
        taken, not_taken, after = on(tmp_path, work, webhooks=hooks)
    assert (taken["taken"], taken["status"]) == (True, 204)
    assert (not_taken["taken"], not_taken["said"]) == (False, "who are you?")
    assert not_taken["answer"] == "HTTP 403 Forbidden"
    assert [each.event["type"] for each in receiver.attempts] == ["netagent.test"] * 2
    assert receiver.attempts[0].event["data"] == {"webhook": "pager"}
    assert len({each.event["id"] for each in receiver.attempts}) == 2
    assert (after["sent"], after["retried"], after["state"]) == (0, 0, "ok")


def test_readers_see_receivers_and_only_administrators_test_them(tmp_path):
    async def work(lab):
        answers = {}
        for lab.peer in ("admin", "grafana", "tenant-a", "h0"):
            listed = await lab.http.get("/v1/webhooks")
            tested = await lab.http.post("/v1/webhooks/pager/test")
            answers[lab.peer] = (listed.status_code, tested.status_code)
        return answers

    with Receiver(OK) as receiver:
        answers = on(
            tmp_path,
            work,
            webhooks=(Webhook(name="pager", url=receiver.url),),
            readers=("grafana",),
            tenants={"tenant-a": ("a*",)},
        )
    assert answers == {
        "admin": (200, 200), "grafana": (200, 403), "tenant-a": (403, 403), "h0": (403, 403),
    }  # fmt: skip
    assert len(receiver.attempts) == 1
