# SPDX-License-Identifier: Apache-2.0
"""The process that answers: alone, killed, and asked by strangers."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from netagent.probing.session import ProbeReplied
from netagent.probing.transport import Outcome
from netagent.wire import frame
from tests.conftest import RDMA, require
from tests.rdma.pair import (
    FAR,
    FLOWS,
    NEAR,
    Duet,
    Side,
    cabled,
    duet,
    eventually,
    resources,
    run,
    spawn,
)
from tests.waiting import NotInTime, wait_until

pytestmark = pytest.mark.rdma
ATTEMPTS = 5

STOPPED = """
import os, signal, sys
sys.path.insert(0, os.getcwd())
from netagent.adapters.rdma.messages import Place
from netagent.adapters.rdma.responder_client import ResponderClient
from netagent.model.ids import EndpointId
import select
made, key = ResponderClient(replies_per_second=1e6), EndpointId("far", 0)
made.set_endpoints({key: (Place(device=sys.argv[1], gid=sys.argv[2], path=""), 4)})
while key not in made.opened:
    select.select([made.fileno()], [], [], 0.1)
    made.step()
print(made.pid, *made.opened[key].qpns, flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    require(RDMA)
    with cabled(1) as made:
        yield made


@pytest.fixture(scope="module")
def lasting(sides: tuple[Side, Side]) -> Iterator[Duet]:
    with duet(sides) as made:
        yield made


@pytest.fixture
def pair(lasting: Duet) -> Duet:
    """Return the same processes for every test: what one breaks must work again for the next."""
    lasting.fresh()
    return lasting


def test_what_it_did_is_told(pair):
    pair.responders.take_counters()
    assert pair.probe(20)[ProbeReplied] == 20
    answered = 0

    def told() -> bool:
        nonlocal answered
        counters = pair.responders.take_counters()
        answered += counters.answered
        assert counters.queue_ns_max <= counters.queue_ns_total
        return answered >= 20

    pair.until(told, "the counters")


def test_marked_probes_are_told_with_their_sender(pair):
    pair.responders.take_asked()
    assert pair.probe(1, flow=2, flags=frame.MARKED)[ProbeReplied] == 1
    told = []
    pair.until(lambda: told.extend(pair.responders.take_asked()) or told, "who asked")
    (asked,) = told
    assert (asked.endpoint, asked.sender) == (FAR, pair.sides[0].gid)
    assert (asked.session, asked.port) == (pair.session.session, pair.transport.ports[2])


def test_a_stranger_waits_for_its_address_and_the_network_is_not_blamed(sides):
    """The wait is in the responder's time. A guest that stands still meanwhile proves nothing."""
    waits = (first_and_usual(sides) for _ in range(ATTEMPTS))
    # The helper makes a handle, and then so does the responder: that took longer than an answer.
    assert any(
        first.responder_ns > 2 * usual_ns and first.network_ns < first.responder_ns
        for first, usual_ns in waits
    )


def first_and_usual(sides):
    """Return the first probe that a stranger has answered, and how long an answer usually takes."""
    with duet(sides, warm=False) as pair:
        pair.responders.aim({})
        pair.until(lambda: pair.send().outcome is Outcome.SENT, "our own handle")
        pair.until(lambda: pair.happened, "a verdict")
        while not pair.measured():
            pair.probe(1)
        first = pair.measured()[0]
        pair.happened.clear()
        assert pair.probe(20)[ProbeReplied] == 20
        return first, sorted(m.responder_ns for m in pair.measured())[10]


def test_when_killed_it_comes_back_with_other_queue_pairs(pair):
    first, pid = pair.target.rdma, pair.responders.pid
    os.kill(pid, signal.SIGKILL)
    pair.until(lambda: FAR not in pair.responders.opened, "its end")
    pair.target = pair.answering(FAR)
    assert pair.responders.pid != pid
    assert pair.target.rdma.qpns != first.qpns
    pair.transport.aim([pair.target])
    pair.warm()
    assert pair.probe(8)[ProbeReplied] == 8


def test_it_answers_again_after_its_device_was_removed(pair):
    far = pair.sides[1]
    run("rdma", "link", "del", far.device)  # waits until the responder let go
    pair.until(lambda: FAR in pair.responders.failed, "the news")
    far.add_device()
    pair.target = pair.answering(FAR)
    assert FAR not in pair.responders.failed
    pair.transport.aim([pair.target])
    pair.warm()
    assert pair.probe(8)[ProbeReplied] == 8


def test_its_queue_pairs_are_mended_as_well(pair):
    pid = pair.responders.pid
    assert any(put_in_error(pair) for _ in range(ATTEMPTS))
    pair.warm()
    assert pair.probe(40)[ProbeReplied] == 40
    assert pair.responders.pid == pid


def put_in_error(pair):
    """Return whether a queue pair was seen in error: one that fails before the news is mended."""
    far, pid = pair.sides[1], pair.responders.pid
    os.kill(pid, signal.SIGSTOP)
    for flow in range(FLOWS):
        assert pair.send(flow).outcome is Outcome.SENT
    run("ip", "link", "set", far.netdev, "down")
    os.kill(pid, signal.SIGCONT)  # it finds probes, and a link that takes no answer
    shown = ("rdma", "resource", "show", "qp", "link", far.device)
    try:
        wait_until(lambda: "ERR" in run(*shown), "an error")
    except NotInTime:
        return False
    finally:
        run("ip", "link", "set", far.netdev, "up")
        for side in pair.sides:
            side.route()
        pair.until(lambda: len(pair.happened) >= FLOWS, "their verdicts")
    return True


def test_an_endpoint_no_longer_wanted_is_closed(pair):
    pair.responders.set_endpoints({})
    assert FAR not in pair.responders.opened
    device = pair.sides[1].device
    eventually(lambda: device not in run("rdma", "resource", "show", "qp", "type", "UD"), "closing")


def test_it_answers_while_the_agent_is_stopped(unshared):
    """And dies when the agent is killed."""
    before = resources(unshared)
    with duet(unshared) as pair:
        assert pair.probe(50)[ProbeReplied] == 50
        usual_ns = min(m.network_ns for m in pair.measured())
        pair.responders.set_endpoints({})
        agent = spawn(STOPPED, unshared[1].device, unshared[1].gid)
        try:
            assert agent.stdout is not None
            pid, *qpns = map(int, agent.stdout.readline().split())
            _, status = os.waitpid(agent.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            address = pair.target.rdma
            changed = type(address)(
                address.device, address.gid, tuple(qpns), address.qkey, address.mtu
            )
            pair.target = type(pair.target)(NEAR, FAR, pair.target.address, "", changed)
            pair.transport.aim([pair.target])
            pair.warm()
            assert pair.probe(50)[ProbeReplied] == 50
            stopped_ns = min(m.network_ns for m in pair.measured())
            assert stopped_ns < 10 * usual_ns
        finally:
            agent.kill()
            agent.wait()
            assert agent.stdout is not None
            agent.stdout.close()
        eventually(lambda: not Path(f"/proc/{pid}").exists(), "its end")
    eventually(lambda: resources(unshared) == before, "the clean-up")
