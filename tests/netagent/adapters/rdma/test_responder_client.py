# SPDX-License-Identifier: Apache-2.0
"""The agent's side, with a process that answers as the responder does but opens no device."""

import os
import select
import signal

import pytest

from netagent.adapters.rdma.messages import Place
from netagent.adapters.rdma.responder_client import ResponderClient
from netagent.model.ids import EndpointId
from tests.waiting import wait_until

A, B = EndpointId("a", 0), EndpointId("b", 1)
FAKE = """
import os, select, sys
from netagent.adapters.rdma.channel import serve_parent
from netagent.adapters.rdma.messages import (
    Asked, Opened, Orders, RdmaEvent, Report, ResponderCounters, Unopened,
)
from netagent.model.endpoint import RdmaAddress

channel = serve_parent(sys.argv[1:])
while not channel.closed:
    select.select([channel], [], [])
    for orders in channel.receive(Orders):
        good = [s for s in orders.endpoints if s.place.device != "bad"]
        bad = [s for s in orders.endpoints if s.place.device == "bad"]
        channel.send(Report(
            opened=tuple(Opened(endpoint=s.endpoint, place=s.place, address=RdmaAddress(
                s.place.device, s.place.gid, tuple(range(s.flows)), os.getpid(), 1024,
            )) for s in good),
            failed=tuple(Unopened(endpoint=s.endpoint, place=s.place, reason="bad") for s in bad),
            asked=tuple(Asked(endpoint=a.endpoint, session=1, port=2, sender=g)
                        for a in orders.aims for g in a.gids),
            events=(RdmaEvent(device="d", kind="PORT_ERR", wall_ns=1),),
            counters=ResponderCounters(answered=1, queue_ns_total=5, queue_ns_max=5),
        ))
"""


def place(device):
    return Place(device=device, gid="::ffff:10.0.0.1", path="")


@pytest.fixture
def responders(tmp_path, monkeypatch):
    (tmp_path / "na_fake_responder.py").write_text(FAKE)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in paths if p))
    made = ResponderClient(replies_per_second=1e3, module="na_fake_responder")
    yield made
    made.close()


def until(responders, condition):
    def rest(pause_s):
        select.select([responders.fileno()], [], [], pause_s)
        responders.step()

    wait_until(condition, within_s=30, rest=rest)


def test_nothing_runs_until_there_is_something_to_answer_for(responders):
    responders.step()
    assert responders.pid is None


def test_what_opens_and_what_does_not_is_known(responders):
    responders.set_endpoints({A: (place("rxe0"), 4), B: (place("bad"), 4)})
    until(responders, lambda: responders.opened and responders.failed)
    assert responders.opened[A].qpns == (0, 1, 2, 3)
    assert responders.failed == {B: "bad"}
    responders.set_endpoints({B: (place("rxe1"), 2)})
    assert (responders.opened, responders.failed) == ({}, {})
    until(responders, lambda: responders.opened)
    assert responders.opened[B].device == "rxe1"


def test_news_are_taken_once(responders):
    responders.aim({A: ["10.0.0.9"]})
    responders.set_endpoints({A: (place("rxe0"), 1)})
    until(responders, lambda: responders.opened)
    (asked,) = responders.take_asked()
    assert (asked.endpoint, asked.sender) == (A, "::ffff:10.0.0.9")
    assert [event.kind for event in responders.take_events()] == ["PORT_ERR"]
    counters = responders.take_counters()
    assert (counters.answered, counters.queue_ns_max) == (1, 5)
    assert responders.take_asked() == responders.take_events() == []
    assert responders.take_counters().answered == 0


def test_the_same_orders_are_not_given_twice(responders):
    responders.set_endpoints({A: (place("rxe0"), 1)})
    until(responders, lambda: responders.opened)
    responders.take_counters()
    responders.set_endpoints({A: (place("rxe0"), 1)})
    responders.aim({})
    responders.set_endpoints({A: (place("rxe0"), 2)})  # these are others
    until(responders, lambda: responders.opened)
    assert responders.take_counters().answered == 1


def test_a_process_that_dies_opens_no_more_and_is_replaced(responders):
    responders.set_endpoints({A: (place("rxe0"), 1)})
    until(responders, lambda: responders.opened)
    first = responders.opened[A].qkey  # its process id
    os.kill(first, signal.SIGKILL)
    until(responders, lambda: responders.opened.get(A) and responders.opened[A].qkey != first)
