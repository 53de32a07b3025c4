# SPDX-License-Identifier: Apache-2.0
import select
import socket
from contextlib import closing
from dataclasses import replace

import pytest

from netagent.adapters.clock import now_ns
from netagent.adapters.probes.bell import GATHER_NS
from netagent.adapters.probes.loop import READ_NS, ProbeLoop
from netagent.collect.windows import WindowTally
from netagent.config import ProbeConfig
from netagent.model.endpoint import Endpoint, EndpointState
from netagent.model.ids import EndpointId
from netagent.model.pinglist import PingList, Target
from netagent.probing.roaming import Turns
from netagent.probing.session import Stamps
from netagent.probing.transport import Outcome, Sent

A, B = EndpointId("a", 0), EndpointId("b", 0)
UP = Endpoint(A, "t", "h0", "10.0.0.1", "", "", "", "", "", 1450)
SECOND = 1_000_000_000
CONFIG = ProbeConfig(rate_per_endpoint=1000, flows_per_pair=1)


class Channel:
    """A transport over a socket pair: what the test puts in is there to be read."""

    is_urgent = True

    ports, overhead_bytes, max_frame_bytes, introduction_ns, broken = (5001,), 28, 9000, 0, None
    roamer = None
    """Itself where its port roams: see `Roaming`."""

    def __init__(self, stamps):
        self.stamps = stamps
        self.near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.taken, self.sent = [], 0

    def descriptors(self):
        return (self.far.fileno(),)

    def urgent(self):
        return self.descriptors() if self.is_urgent else ()

    def aim(self, targets):
        """Nothing is to be made ready."""

    def send(self, target, flow, payload):
        self.sent += 1
        return Sent(Outcome.SENT)

    foreign = 0

    def read(self, descriptor, events, session, *, woken_ns, due_ns):
        self.taken.append((self.far.recv(16), woken_ns, due_ns))
        return self.foreign

    def close(self):
        self.near.close()
        self.far.close()


class Roaming(Channel):
    """A channel whose port is opened anew; `refuse` says why it is not."""

    def __init__(self, stamps):
        super().__init__(stamps)
        self.roamer, self.left, self.refuse = self, [], None

    def descriptors(self):
        return (self.far.fileno(), *(far.fileno() for _, far in self.left))

    def renew(self):
        if self.refuse is not None:
            raise self.refuse
        self.left.append((self.near, self.far))
        self.near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ports = (self.ports[0] + 1,)
        return self.far.fileno()

    def drained(self):
        return self.left[0][1].fileno() if len(self.left) > 1 else None

    def drop(self):
        for each in self.left.pop(0):
            each.close()

    def close(self):
        super().close()
        while self.left:
            self.drop()


class Opener:
    """Opens channels; `refuse` says why it does not."""

    make = Channel

    def __init__(self, stamps=Stamps.KERNEL):
        self.stamps, self.opened, self.refuse = stamps, [], None
        self.identities = {A: "first"}

    def identity(self, endpoint):
        return self.identities.get(endpoint.id)

    def open(self, endpoint):
        if self.refuse is not None:
            raise self.refuse
        self.opened.append(self.make(self.stamps))
        return self.opened[-1]

    def asker(self, session, port):
        return None


@pytest.fixture
def opener():
    return Opener()


@pytest.fixture
def loop(opener):
    with closing(ProbeLoop(CONFIG, WindowTally(large_class=2), opener)) as made:
        yield made


def rings(loop):
    return bool(select.select([loop.fileno()], [], [], 0)[0])


def test_what_arrives_is_read_at_the_next_step(loop, opener):
    assert loop.set_endpoints([UP]) == []
    (channel,) = opener.opened
    channel.near.send(b"x")
    assert rings(loop)
    loop.hush()
    assert not rings(loop)
    loop.step()
    assert [packet for packet, *_ in channel.taken] == [b"x"]


def test_packets_gather_unless_this_process_stamps_them(loop, opener):
    assert loop.gather_ns == GATHER_NS
    loop.set_endpoints([UP])
    assert loop.gather_ns == GATHER_NS
    with closing(ProbeLoop(CONFIG, WindowTally(large_class=2), Opener(Stamps.PROCESS))) as eager:
        eager.set_endpoints([UP])
        assert eager.gather_ns == 0


@pytest.fixture
def sent(loop, opener):
    """Let time pass until probes are sent; return when that step came, and the next one comes."""

    def send():
        loop.set_endpoints([UP])
        loop.set_pinglist(PingList(1, (Target(A, B, "10.0.0.2", ""),)))
        deadline_ns = now_ns() + 10_000_000_000
        while not opener.opened[0].sent:
            assert now_ns() < deadline_ns
            began_ns = now_ns()
            again_ns = loop.step()
        return began_ns, again_ns

    return send


def test_replies_are_read_in_time_and_ring_no_bell(loop, opener, sent, monkeypatch):
    monkeypatch.setattr(Channel, "is_urgent", False)
    began_ns, again_ns = sent()
    assert began_ns < again_ns <= now_ns() + READ_NS
    (channel,) = opener.opened
    channel.near.send(b"x")
    assert not rings(loop)
    loop.step()
    assert [packet for packet, *_ in channel.taken] == [b"x"]


@pytest.fixture
def settled(loop, monkeypatch):
    """Whether each step might tell losses."""
    seen, send_due = [], loop.prober.send_due

    def noted(*, now_ns, settles):
        seen.append(settles)
        return send_due(now_ns=now_ns, settles=settles)

    monkeypatch.setattr(loop.prober, "send_due", noted)
    return seen


def test_a_flood_is_read_before_losses_are_told(loop, opener, settled, monkeypatch):
    monkeypatch.setattr("netagent.adapters.probes.bell._MAX_ROUNDS", 3)
    monkeypatch.setattr(Channel, "is_urgent", False)
    loop.set_endpoints([UP])
    (channel,) = opener.opened
    for _ in range(5):
        channel.near.send(b"x")
    assert loop.step() <= now_ns() + GATHER_NS
    loop.step()
    assert settled == [False, True]
    assert len(channel.taken) == 5


def test_a_flood_that_goes_on_hides_no_losses(loop, opener, settled, monkeypatch):
    monkeypatch.setattr("netagent.adapters.probes.bell._MAX_ROUNDS", 1)
    monkeypatch.setattr("netagent.adapters.probes.loop.BEHIND_NS", 1)
    loop.set_endpoints([UP])
    for _ in range(3):
        opener.opened[0].near.send(b"x")
    loop.step()
    assert settled == [True]


def test_after_what_is_none_of_ours_it_comes_again_soon(loop, opener, monkeypatch):
    monkeypatch.setattr(Channel, "is_urgent", False)
    loop.set_endpoints([UP])
    (channel,) = opener.opened
    channel.foreign = 1
    channel.near.send(b"junk")
    assert loop.step() <= now_ns() + GATHER_NS
    assert loop.step() > now_ns() + GATHER_NS


def test_who_probes_on_demand_is_not_kept_waiting(loop, sent):
    sent()
    loop.begin_burst(Target(A, B, "10.0.0.2", ""), 2)
    assert rings(loop)
    loop.hush()
    assert loop.step() <= now_ns() + GATHER_NS


def test_only_what_is_read_later_than_planned_is_late(loop, opener):
    loop.set_endpoints([UP])
    (channel,) = opener.opened
    due_ns = loop.step()
    for late_ns in (-SECOND, 3 * SECOND):
        loop._due_ns = now_ns() - late_ns
        channel.near.send(b"x")
        loop.read()
    early_ns, late_ns = (woken_ns - due_ns for _, woken_ns, due_ns in channel.taken)
    assert due_ns > 0
    assert -SECOND / 10 < early_ns < SECOND / 10
    assert 3 * SECOND <= late_ns < 4 * SECOND


def test_an_endpoint_that_moved_has_a_new_transport_and_the_old_one_is_closed(loop, opener):
    loop.set_endpoints([UP])
    opener.identities[A] = "second"
    assert loop.set_endpoints([UP]) == []
    old, new = opener.opened
    assert old.far.fileno() == -1
    new.near.send(b"x")
    assert rings(loop)


def test_what_cannot_be_opened_is_returned_and_tried_again(loop, opener):
    opener.refuse = OSError("no such address")
    assert loop.set_endpoints([UP]) == [(A, opener.refuse)]
    opener.refuse = None
    assert loop.set_endpoints([UP]) == []
    assert A in loop.prober


@pytest.mark.parametrize("why", ["down", "no identity"])
def test_endpoints_that_are_down_or_nowhere_are_not_opened(loop, opener, why):
    if why == "no identity":
        opener.identities.clear()
    endpoint = replace(UP, state=EndpointState.CRASHED) if why == "down" else UP
    assert loop.set_endpoints([endpoint]) == []
    assert opener.opened == []


def test_closing_closes_every_transport(opener):
    loop = ProbeLoop(CONFIG, WindowTally(large_class=2), opener)
    loop.set_endpoints([UP])
    loop.close()
    assert opener.opened[0].far.fileno() == -1


@pytest.fixture
def roaming(loop, opener):
    """Open a channel whose port roams."""
    opener.make = Roaming
    loop.set_endpoints([UP])
    loop.set_pinglist(PingList(1, (Target(A, B, "10.0.0.2", ""),)))
    return opener.opened[0]


def turn(loop, monkeypatch, window):
    monkeypatch.setattr(Turns, "due", lambda *_, **__: window)
    loop.prober.turn_ns = 0
    assert loop.step() <= loop.prober.turn_ns


def test_a_port_that_roams_is_heard_until_it_was_renewed_twice(loop, roaming, monkeypatch):
    fars = [roaming.far]
    for window in range(1, 4):
        turn(loop, monkeypatch, window)
        fars.append(roaming.far)
        assert [far.fileno() == -1 for far in fars] == [True] * (window - 1) + [False] * 2
        roaming.near.send(b"x")
        assert rings(loop)
        loop.read()
        loop.hush()
    assert loop.prober.ports(A, B) == (5004,)
    turn(loop, monkeypatch, 3)  # it had its turn in this window
    assert roaming.ports == (5004,)


def test_a_port_that_cannot_be_renewed_stays(loop, roaming, monkeypatch):
    roaming.refuse = FileNotFoundError("the namespace is gone")
    turn(loop, monkeypatch, 1)
    assert loop.prober.ports(A, B) == (5001,)
    roaming.refuse = None
    turn(loop, monkeypatch, 2)
    assert loop.prober.ports(A, B) == (5002,)
