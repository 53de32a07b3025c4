# SPDX-License-Identifier: Apache-2.0
"""What the responder answers, and what it tells of it, without a device."""

import os
import socket
from types import SimpleNamespace
from typing import ClassVar

import pytest

from netagent.adapters.rdma import responder as module
from netagent.adapters.rdma.channel import Channel
from netagent.adapters.rdma.messages import Aim, Orders, Place, Report, Served
from netagent.adapters.rdma.port import QKEY, Arrived
from netagent.model.ids import EndpointId
from netagent.probing.rdma.gids import packed_gid
from netagent.probing.rdma.steering import Steering
from netagent.wire import frame

OWN, PEER, STRANGER = "::ffff:10.0.0.1", "::ffff:10.0.0.2", "::ffff:10.0.0.3"
KEY = EndpointId("c", 0)
PLACE = Place(device="rxe0", gid=OWN, path="")
S = 1_000_000_000


class FakePort:
    opened: ClassVar[list["FakePort"]] = []

    def __init__(self, place):
        self.place, self.own_gid = place, packed_gid(place.gid)
        self.steering, self.stamped = Steering.QUEUE_PAIR, False
        self.qpns, self.mtu, self.broken = (17, 18), 1024, None
        self.pipes = [os.pipe(), os.pipe()]
        self.sent, self.stamps, self.refuses, self.closed = [], [], False, False
        self.late_ns = 0

    @classmethod
    def open(cls, place, *, flows):
        if place.device == "absent":
            raise OSError("no such device")
        cls.opened.append(cls(place))
        return cls.opened[-1]

    def descriptors(self):
        return self.pipes[0][0], self.pipes[1][0]

    def handle(self, gid, port):
        return SimpleNamespace(gid=gid, close=lambda: None)

    def send(self, flow, handle, to, header, *, length, name=0, arrived_ns=0):
        left_ns, sent = module.now_ns() + self.late_ns, frame.decode(header)
        if arrived_ns:
            sent = sent._replace(held_ns=left_ns - arrived_ns)
        self.sent.append((flow, handle.gid, to, sent, length, name))
        return 0 if self.refuses else left_ns

    def take_stamps(self):
        taken, self.stamps = self.stamps, []
        return taken

    def events(self):
        return []

    def close(self):
        assert not self.closed
        self.closed = True
        for pipe in self.pipes:
            for end in pipe:
                os.close(end)


class FakeResolver:
    """Knows PEER; learns of others when the test says so."""

    def __init__(self):
        self.bell = socket.socketpair()
        self.listener = None

    def fileno(self):
        return self.bell[0].fileno()

    def aim(self, place, gids, listener):
        self.listener = listener
        if PEER in gids:
            listener(PEER, True)

    def heard(self, place, gid):
        pass

    forget = leave = step = lambda *_: None


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(ns=1000 * S)
    monkeypatch.setattr(module, "now_ns", lambda: now.ns)
    return now


@pytest.fixture
def service(monkeypatch, clock):
    monkeypatch.setattr(module, "RdmaPort", FakePort)
    monkeypatch.setattr(module, "Resolver", FakeResolver)
    FakePort.opened = []
    ours, theirs = socket.socketpair()
    made = module.Service(Channel(theirs))
    made.agent = Channel(ours)
    order(made)
    yield made
    for key in list(made._endpoints):
        made._close(key)
    made._epoll.close()
    for end in (made.agent, made._parent, *made._resolver.bell):
        end.close()


def order(service, *, device="rxe0", gids=(PEER,), rate=1e6, endpoints=None, keys=()):
    place = Place(device=device, gid=OWN, path="")
    wanted = (Served(endpoint=KEY, place=place, flows=2),) if endpoints is None else endpoints
    aims = (Aim(endpoint=KEY, gids=gids),)
    orders = Orders(endpoints=wanted, aims=aims, replies_per_second=rate, keys=keys)
    service.agent.send(orders)
    service._obey()


def told(service):
    service._tell()
    (report,) = service.agent.receive(Report)
    return report


def arrive(service, clock, *, gid=PEER, probe=None, header=None, length=64, to=OWN):
    endpoint = service._endpoints[KEY]
    grh = bytes(20) + b"\x45" + bytes(11) + packed_gid(gid)[12:] + packed_gid(to)[12:]
    if header is None:
        header = frame.encode(probe or frame.Frame(7, 1, 50000))
    service._take(endpoint, Arrived(1, header, length, grh, 99, clock.ns), clock.ns)
    return endpoint.port.sent


def test_a_reply_names_its_probe_its_length_and_its_own_delay(service, clock):
    FakePort.opened[-1].late_ns = 700
    ((flow, gid, to, reply, length, _),) = arrive(service, clock, length=512)
    assert (flow, gid, to, length) == (1, PEER, (99, QKEY), 512)
    flags = frame.REPLY | frame.HELD
    assert reply == frame.Frame(7, 1, 50000, flags, 1, 700)
    counters = told(service).counters
    assert (counters.answered, counters.queue_ns_total, counters.queue_ns_max) == (1, 700, 700)


def test_what_is_no_probe_is_counted_and_not_answered(service, clock):
    arrive(service, clock, header=b"x" * 24)
    arrive(service, clock, header=b"")
    arrive(service, clock, probe=frame.Frame(7, 1, 50000, frame.REPLY))
    assert arrive(service, clock, to="::ffff:10.0.0.9") == []
    assert told(service).counters.bad_frames == 4


def test_marked_probes_are_told(service, clock):
    arrive(service, clock, probe=frame.Frame(7, 1, 50000, frame.MARKED))
    (asked,) = told(service).asked
    assert (asked.endpoint, asked.session, asked.port, asked.sender) == (KEY, 7, 50000, PEER)
    assert service._endpoints[KEY].port.sent[0][3].flags & frame.MARKED


def test_replies_are_capped(service, clock):
    order(service, rate=20)
    for _ in range(40):
        sent = arrive(service, clock)
    assert len(sent) == 20
    assert list(told(service).counters.capped.values()) == [20]
    clock.ns += S
    for _ in range(30):
        arrive(service, clock)
    assert len(sent) == 40


def test_a_flood_leaves_sealed_probes_their_replies(service, clock):
    order(service, rate=20, keys=((KEY, b"k" * 16),))
    for _ in range(40):
        sent = arrive(service, clock)
    assert len(sent) == 20
    for seq in range(10):
        probe = frame.Frame(8, seq, 50001)
        header = frame.sealed(
            probe, b"k" * 16, str(KEY), size=frame.SEALED_BYTES, wall_ns=module.wall_ns()
        )
        arrive(service, clock, header=header)
        # Somebody listened, and sends it once more from elsewhere.
        arrive(service, clock, header=header, gid=STRANGER)
    assert [reply[3].seq for reply in sent[20:]] == list(range(10))
    assert not any(reply[3].flags & frame.SEALED for reply in sent)
    assert list(told(service).counters.capped.values()) == [20 + 10]


def test_an_endpoint_that_is_flooded_leaves_the_others_their_replies(service, clock):
    place = Place(device="rxe0", gid=OWN, path="")
    other = EndpointId("other", 0)
    both = tuple(Served(endpoint=key, place=place, flows=2) for key in (KEY, other))
    order(service, rate=40, endpoints=both)
    for _ in range(100):
        arrive(service, clock)
    assert list(told(service).counters.capped.values()) == [
        100 - 30
    ]  # its part of one half, and all of the other
    header = frame.encode(frame.Frame(7, 1, 50000))
    grh = bytes(20) + b"\x45" + bytes(11) + packed_gid(PEER)[12:] + packed_gid(OWN)[12:]
    service._endpoints[other].handles.aim({PEER})
    for _ in range(10):
        arrived = Arrived(1, header, 64, grh, 99, clock.ns)
        service._take(service._endpoints[other], arrived, clock.ns)
    assert told(service).counters.capped == {}


def test_a_stranger_waits_until_it_is_resolved(service, clock):
    assert arrive(service, clock, gid=STRANGER) == []
    clock.ns += 100_000_000
    service._step()
    sent = service._endpoints[KEY].port.sent
    assert sent == []
    service._resolver.listener(STRANGER, True)
    service._step()
    ((_, gid, _, reply, _, _),) = sent
    assert (gid, reply.held_ns) == (STRANGER, 100_000_000)
    order(service, gids=())  # new orders do not forget it
    arrive(service, clock, gid=STRANGER)


def test_a_stranger_that_is_not_resolved_in_time_is_counted(service, clock):
    for _ in range(module.MAX_WAITING + 5):
        arrive(service, clock, gid=STRANGER)
    assert service._counters.unresolved == 5
    clock.ns += module.TICK_NS
    service._step()
    assert not service._waiting
    reports = service.agent.receive(Report)
    assert sum(r.counters.unresolved for r in reports) == module.MAX_WAITING + 5
    assert service._endpoints[KEY].port.sent == []


def test_strangers_are_bounded(service, clock):
    for number in range(module.MAX_STRANGERS + 10):
        arrive(service, clock, gid=f"::ffff:10.1.{number >> 8}.{number & 255}")
    assert len(service._endpoints[KEY].strangers) == module.MAX_STRANGERS


def test_with_stamps_a_reply_tells_the_delay_of_the_one_before(service, clock):
    endpoint = service._endpoints[KEY]
    endpoint.port.stamped = True
    first = arrive(service, clock)[0]
    assert not first[3].flags & frame.HELD
    endpoint.port.stamps = [(first[5], clock.ns + 55), (12345, 0)]
    service._learn_departures(endpoint)
    second = arrive(service, clock, probe=frame.Frame(7, 2, 50000))[1]
    assert second[3] == frame.Frame(7, 2, 50000, frame.REPLY | frame.HELD, 1, 55)


def test_replies_that_the_device_refuses_are_no_answers(service, clock):
    service._endpoints[KEY].port.refuses = True
    arrive(service, clock, probe=frame.Frame(7, 1, 50000, frame.MARKED))
    report = told(service)
    assert (report.counters.answered, report.counters.failed, report.asked) == (0, 1, ())


def test_endpoints_come_and_go_as_ordered(service, clock):
    (opened,) = told(service).opened
    assert (opened.endpoint, opened.place, opened.address.qpns) == (KEY, PLACE, (17, 18))
    order(service)
    assert len(FakePort.opened) == 1  # unchanged
    order(service, device="rxe1")
    assert FakePort.opened[0].closed
    assert told(service).opened[0].place.device == "rxe1"
    order(service, device="absent")
    (failed,) = told(service).failed
    assert (failed.endpoint, failed.reason) == (KEY, "no such device")
    order(service, endpoints=())
    assert all(port.closed for port in FakePort.opened)


def test_a_broken_endpoint_is_opened_anew_at_the_next_tick(service, clock):
    told(service)
    FakePort.opened[0].broken = "the device was removed"
    clock.ns += module.TICK_NS
    service._step()
    (report,) = service.agent.receive(Report)
    assert report.failed[0].reason == "the device was removed"
    assert report.opened[0].endpoint == KEY
    assert FakePort.opened[0].closed


def test_news_gather_while_the_agent_does_not_listen(service, clock):
    probe = frame.Frame(7, 1, 50000, frame.MARKED)
    while not service._parent.backlog():
        service._parent.send(Report(counters=module.ResponderCounters()))
    for _ in range(module.MAX_TOLD + 100):
        arrive(service, clock, probe=probe)
        service._tell()
    assert len(service._asked) == module.MAX_TOLD
    heard = []
    while not heard or not heard[-1].asked:
        heard += service.agent.receive(Report)
        service._tell()
    assert len(heard[-1].asked) == module.MAX_TOLD
    assert heard[-1].counters.answered == module.MAX_TOLD + 100
