# SPDX-License-Identifier: Apache-2.0
"""Over loopback, without namespaces."""

import gc
import select
import socket
import time
import tracemalloc
from collections import Counter
from contextlib import closing, suppress

import pytest

from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.probes import udp, udp_transport
from netagent.adapters.probes.udp_transport import Answering, UdpTransport
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.pinglist import Target
from netagent.probing.session import ProbeMeasured, ProbeReplied, ProbeSession
from netagent.wire import frame

HERE = "127.0.0.1"
A, B = EndpointId("a", 0), EndpointId("b", 0)
SECOND = 1_000_000_000


def opened(endpoint):
    sockets = udp.EndpointSockets(*(udp._stamped(HERE, 0), (udp._stamped(HERE, 0),)))
    port = sockets.responder.getsockname()[1]
    made = Endpoint(endpoint, "t", "h0", HERE, "", "", "", "", "", 1450)
    return UdpTransport(made, sockets, port, Answering(1000)), port


@pytest.fixture
def pair():
    """Return what probes and what answers, and the port at which it does."""
    (near, _), (far, port) = opened(A), opened(B)
    near._port = port
    with closing(near), closing(far):
        yield near, far


def drained(transport, session, *, until, due_ns=wall_ns):
    """Read what comes until that holds."""
    deadline_s = time.monotonic() + 60
    with select.epoll() as epoll:
        for fd in transport.descriptors():
            epoll.register(fd, select.EPOLLIN)
        while not until():
            assert time.monotonic() < deadline_s
            for fd, events in epoll.poll(0.1):
                transport.read(fd, events, session, woken_ns=wall_ns(), due_ns=due_ns())


@pytest.mark.parametrize(
    ("late_s", "least_ns", "most_ns"), [(-1, 0, SECOND // 2), (0.5, 300_000_000, 60 * SECOND)]
)
def test_a_reply_that_was_to_be_read_later_was_not_late(pair, late_s, least_ns, most_ns):
    near, far = pair
    session = ProbeSession(session=7, timeout_ns=60 * SECOND)
    flow = FlowId(A, B, near.ports[0])
    answering = far._answering
    for n in range(2):  # the second reply tells how long the first was held
        probe = session.send(flow, 0, now_ns=now_ns(), wall_ns=wall_ns())
        near.send(Target(A, B, HERE, ""), 0, frame.encode(probe))
        stranger = ProbeSession(session=8, timeout_ns=SECOND)
        drained(far, stranger, until=lambda n=n: answering.answered == n + 1)
    time.sleep(0.5)  # what is tested: how long a reply lay there
    events = []

    def told():
        events.extend(iter(session.next_event, None))
        return len(events) == 3

    drained(near, session, until=told, due_ns=lambda: wall_ns() - round(late_s * SECOND))
    assert [type(each) for each in events] == [ProbeReplied, ProbeReplied, ProbeMeasured]
    assert least_ns <= events[-1].prober_ns < most_ns
    assert near.urgent() != near.descriptors()


def test_what_the_kernel_did_not_stamp_came_when_it_is_read():
    with closing(udp._stamped(HERE, 0)) as near, socket.socket(type=socket.SOCK_DGRAM) as far:
        far.bind((HERE, 0))
        assert udp.send(near, b"probe", far.getsockname())
        earliest_ns = wall_ns()
        received = udp.receive(far)
        assert received is not None
        assert (received.payload, received.address) == (b"probe", near.getsockname())
    assert earliest_ns <= received.wall_ns <= wall_ns()


@pytest.mark.parametrize(("waited_s", "counted"), [(0.5, 50), (40, 0)])
def test_what_waited_while_the_agent_stood_still_is_no_flood(monkeypatch, waited_s, counted):
    at_ns, wall = now_ns(), wall_ns()
    monkeypatch.setattr(udp_transport, "now_ns", lambda: at_ns)
    monkeypatch.setattr(udp_transport, "wall_ns", lambda: wall + round(waited_s * SECOND))
    answering = Answering(1000)
    answering.join(B)
    probe = frame.Frame(7, 1, 50000)
    payload = frame.encode(probe)
    may = [answering.may(B, payload, probe, arrived_ns=wall) for _ in range(1050)]
    assert may.count(True) == 1000
    assert answering.take()[1].get(str(B), 0) == counted


def test_a_flood_leaves_sealed_probes_their_replies(monkeypatch):
    """While no time passes, so that no cap fills again."""
    at_ns = now_ns()
    monkeypatch.setattr(udp_transport, "now_ns", lambda: at_ns)
    monkeypatch.setattr(udp_transport, "BACKLOG_NS", 60 * SECOND)
    (far, port), key = opened(B), b"k" * 16
    answering = far._answering
    answering.seals.keys = {B: key}
    session = ProbeSession(session=1, timeout_ns=SECOND)
    answers = Counter[int]()
    with closing(far), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.connect((HERE, port))
        asker.setblocking(False)
        for batch in range(50):
            flood = [frame.encode(frame.Frame(7, n, 50000), size=64) for n in range(60)]
            probe = frame.Frame(8, batch, 50001)
            for payload in (*flood, frame.sealed(probe, key, str(B), size=64, wall_ns=wall_ns())):
                asker.send(payload)
            came = (batch + 1) * 61
            drained(
                far,
                session,
                until=lambda came=came: answering.answered + answering._capped[B] == came,
            )
            with suppress(BlockingIOError):
                while True:
                    answers[frame.decode(asker.recv(2048)).session] += 1
    assert answers[8] == 50
    assert answers[7] == 1000


def test_containers_that_start_elsewhere_leave_nothing_behind(monkeypatch):
    """One a minute, each with ports of its own, as agents hear of them for months."""
    minutes = 0
    monkeypatch.setattr(udp_transport, "now_ns", lambda: minutes * 60 * SECOND)
    monkeypatch.setattr(udp_transport, "wall_ns", lambda: minutes * 60 * SECOND)
    (far, port), key = opened(B), b"k" * 16
    answering, flags = far._answering, frame.MARKED
    answering.join(B)
    answering.seals.keys = {B: key}
    session = ProbeSession(session=1, timeout_ns=SECOND)

    def probe(asker, minute):
        for number in range(8):
            probe = frame.Frame(minute, number, 1024 + number // 2, flags)
            at_ns = 60 * SECOND * minute
            asker.send(frame.sealed(probe, key, str(B), size=64, wall_ns=at_ns))
        drained(far, session, until=lambda: answering.answered == 8 * (minute + 1))
        with suppress(BlockingIOError):
            while True:
                asker.recv(2048)

    def held_kb():
        gc.collect()  # what the interpreter keeps of freed tuples is nobody's
        return tracemalloc.get_traced_memory()[0] / 1024

    with closing(far), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.connect((HERE, port))
        asker.setblocking(False)
        tracemalloc.start()
        try:
            for minutes in range(75):
                probe(asker, minutes)
            before_kb = held_kb()
            for minutes in range(75, 150):
                probe(asker, minutes)
            assert held_kb() - before_kb < 20  # 300 flows, of 800 bytes each
        finally:
            tracemalloc.stop()
