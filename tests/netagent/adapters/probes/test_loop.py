# SPDX-License-Identifier: Apache-2.0
import select
import socket
from contextlib import closing
from dataclasses import replace

import pytest

from netagent.adapters.clock import now_ns
from netagent.adapters.probes.bell import GATHER_NS
from netagent.adapters.probes.loop import ProbeLoop
from netagent.collect.windows import WindowTally
from netagent.config import ProbeConfig
from netagent.model.endpoint import Endpoint, EndpointState
from netagent.model.ids import EndpointId
from netagent.model.pinglist import PingList, Target
from netagent.probing.session import Stamps
from netagent.probing.transport import Outcome, Sent

A, B = EndpointId("a", 0), EndpointId("b", 0)
UP = Endpoint(A, "t", "h0", "10.0.0.1", "", "", "", "", "", 1450)
CONFIG = ProbeConfig(rate_per_endpoint=1000, flows_per_pair=1)


class Channel:
    """A transport over a socket pair: what the test puts in is there to be read."""

    ports, overhead_bytes, max_frame_bytes, introduction_ns, broken = (5001,), 28, 9000, 0, None

    def __init__(self, stamps):
        self.stamps = stamps
        self.near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.taken, self.sent = [], 0

    def descriptors(self):
        return (self.far.fileno(),)

    def aim(self, targets):
        """Nothing is to be made ready."""

    def send(self, target, flow, payload):
        self.sent += 1
        return Sent(Outcome.SENT)

    def read(self, descriptor, events, session, *, woken_ns):
        self.taken.append((self.far.recv(16), woken_ns))
        return 0

    def close(self):
        self.near.close()
        self.far.close()


class Opener:
    """Opens channels; `refuse` says why it does not."""

    def __init__(self, stamps=Stamps.KERNEL):
        self.stamps, self.opened, self.refuse = stamps, [], None
        self.identities = {A: "first"}

    def identity(self, endpoint):
        return self.identities.get(endpoint.id)

    def open(self, endpoint):
        if self.refuse is not None:
            raise self.refuse
        self.opened.append(Channel(self.stamps))
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
    assert [packet for packet, _ in channel.taken] == [b"x"]


def test_packets_gather_unless_this_process_stamps_them(loop, opener):
    assert loop.gather_ns == GATHER_NS
    loop.set_endpoints([UP])
    assert loop.gather_ns == GATHER_NS
    with closing(ProbeLoop(CONFIG, WindowTally(large_class=2), Opener(Stamps.PROCESS))) as eager:
        eager.set_endpoints([UP])
        assert eager.gather_ns == 0


def test_a_step_that_sent_comes_again_for_the_replies(loop, opener):
    loop.set_endpoints([UP])
    loop.set_pinglist(PingList(1, (Target(A, B, "10.0.0.2", ""),)))
    (channel,) = opener.opened
    deadline_ns = now_ns() + 10_000_000_000
    while not channel.sent:
        assert now_ns() < deadline_ns
        began_ns = now_ns()
        again_ns = loop.step()
    assert began_ns < again_ns <= now_ns() + GATHER_NS


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
