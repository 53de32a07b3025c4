# SPDX-License-Identifier: Apache-2.0
"""The RDMA transport between two Soft-RoCE devices: what is on the wire, and what goes wrong."""

import subprocess
from collections.abc import Iterator

import pytest

from netagent.adapters.rdma.port import SEND_SLOTS
from netagent.model.endpoint import RdmaAddress
from netagent.model.ids import EndpointId
from netagent.model.pinglist import Target
from netagent.probing.rdma.steering import queue_port
from netagent.probing.session import ProbeFailed, ProbeLost, ProbeReplied, Stamps
from netagent.probing.transport import Outcome
from tests.conftest import RDMA, require
from tests.rdma.pair import (
    FLOWS,
    NEAR,
    Duet,
    Side,
    cabled,
    duet,
    eventually,
    resources,
    roce_ports,
    run,
    sniffer,
)

pytestmark = pytest.mark.rdma


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    require(RDMA)
    with cabled() as made:
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


def test_every_flow_has_its_own_source_port_on_the_wire(pair):
    ours, theirs = pair.sides
    with sniffer(theirs.netdev) as wire, sniffer(ours.netdev) as back:
        assert pair.probe(2 * FLOWS)[ProbeReplied] == 2 * FLOWS
        assert roce_ports(wire, ours.address) == set(pair.transport.ports)
        answered = {queue_port(qpn) for qpn in pair.target.rdma.qpns}
        assert roce_ports(back, theirs.address) == answered
    assert len(set(pair.transport.ports)) == FLOWS == len(answered)


def test_probes_of_all_sizes_are_measured(pair):
    largest = pair.transport.max_frame_bytes
    assert largest == pair.target.rdma.mtu == 1024
    for size in (24, 25, 500, largest):
        assert pair.probe(20, size=size)[ProbeReplied] == 20
    found = pair.measured()
    assert len(found) == 80
    assert pair.transport.stamps is Stamps.PROCESS
    assert all(m.network_ns > 0 and m.responder_ns > 0 and m.prober_ns >= 0 for m in found)
    assert not pair.foreign
    assert pair.transport.broken is None


def test_many_probes_in_flight_are_all_answered(pair):
    for number in range(SEND_SLOTS):
        assert pair.send(number % FLOWS).outcome is Outcome.SENT
    pair.until(lambda: len(pair.measured()) == SEND_SLOTS, "all replies")
    assert not pair.lost()


def test_more_than_the_rings_hold_pass_through_them(pair):
    assert pair.probe(600)[ProbeReplied] == 600


def test_loss_on_the_wire_is_loss(pair):
    far = pair.sides[1].netdev
    run("tc", "qdisc", "add", "dev", far, "root", "netem", "loss", "100%")
    try:
        assert pair.probe(2)[ProbeLost] == 2
    finally:
        run("tc", "qdisc", "del", "dev", far, "root")
    assert pair.probe(20)[ProbeReplied] == 20


def test_delay_on_the_wire_is_network_time(pair):
    far = pair.sides[1].netdev
    run("tc", "qdisc", "add", "dev", far, "root", "netem", "delay", "30ms")
    try:
        assert pair.probe(20)[ProbeReplied] == 20
    finally:
        run("tc", "qdisc", "del", "dev", far, "root")
    assert min(m.network_ns for m in pair.measured()) >= 30_000_000


def test_a_link_that_comes_back_is_probed_again(pair):
    near = pair.sides[0]
    run("ip", "link", "set", near.netdev, "down")
    pair.until(lambda: "PORT_ERR" in {e.kind for e in pair.told}, "the event")
    assert pair.send().outcome is Outcome.FAILED
    assert pair.transport.broken is None
    run("ip", "link", "set", near.netdev, "up")
    near.route()
    pair.until(lambda: "PORT_ACTIVE" in {e.kind for e in pair.told}, "the event")
    pair.until(pair.works, "a reply")
    pair.warm()
    assert pair.probe(40)[ProbeReplied] == 40


def test_a_far_link_that_comes_back_is_answered_again(pair):
    far = pair.sides[1]
    run("ip", "link", "set", far.netdev, "down")
    outcome = pair.probe(3)
    assert outcome[ProbeLost] + outcome[ProbeFailed] == 3
    run("ip", "link", "set", far.netdev, "up")
    for side in pair.sides:
        side.route()
    pair.until(pair.works, "a reply")
    pair.warm()
    assert pair.probe(40)[ProbeReplied] == 40


def test_a_queue_pair_in_error_is_mended(pair):
    for queue in pair.transport._port._queues:
        queue.pair.fail()
    pair.warm()
    assert pair.probe(40)[ProbeReplied] == 40
    assert pair.transport.broken is None
    assert all(queue.pair.healthy() for queue in pair.transport._port._queues)


def test_an_address_that_goes_breaks_the_transport_until_it_is_opened_anew(pair):
    near = pair.sides[0]
    run("ip", "addr", "del", f"{near.address}/24", "dev", near.netdev)
    pair.until(lambda: pair.transport.broken, "the breakage")
    assert near.gid in pair.transport.broken
    assert "GID_CHANGE" in {e.kind for e in pair.told}
    assert pair.send().outcome is Outcome.FAILED
    run("ip", "addr", "add", f"{near.address}/24", "dev", near.netdev)
    near.route()
    pair.reopen()
    pair.warm()
    assert pair.probe(20)[ProbeReplied] == 20


def test_a_device_that_is_removed_is_let_go_and_opened_anew(pair):
    near = pair.sides[0]
    removal = subprocess.Popen(["rdma", "link", "del", near.device])
    pair.until(lambda: pair.transport.broken, "the breakage")
    assert "DEVICE_FATAL" in {e.kind for e in pair.told}
    assert pair.send().outcome is Outcome.FAILED
    pair.transport.close()
    eventually(lambda: removal.poll() is not None, "the removal")
    assert removal.returncode == 0
    with pytest.raises(OSError):
        pair.reopen()
    near.add_device()
    pair.reopen()
    pair.warm()
    assert pair.probe(20)[ProbeReplied] == 20


def test_a_dead_address_never_delays_the_probes_of_a_live_one(pair):
    dead = [
        Target(
            NEAR,
            EndpointId(f"dead{n}", 0),
            "",
            "",
            RdmaAddress("", f"::ffff:10.78.0.{200 + n}", (17,), 1, 1024),
        )
        for n in range(6)
    ]
    pair.transport.aim([pair.target, *dead])
    assert pair.send(target=dead[0]).outcome is Outcome.PENDING
    settled = 0
    while pair.send(target=dead[-1]).outcome is Outcome.PENDING:
        pair.send()
        settled += 1
        pair.until(lambda: len(pair.measured()) + pair.lost() >= settled, "a verdict")  # noqa: B023 - run at once
    # Each of six silent neighbours takes a second: had one been waited for here, its turn would
    # have come after a handful of probes.
    assert settled > 20
    assert pair.lost() == 0
    assert pair.send(target=dead[-1]).outcome is Outcome.UNRESOLVED
    pair.session.abandon()
    assert pair.probe(20)[ProbeReplied] == 20


def test_a_resolver_that_dies_is_replaced(pair):
    first = pair.resolver.pid
    subprocess.run(["kill", "-9", str(first)], check=True)
    pair.until(lambda: pair.resolver.pid not in {first, None}, "another helper")
    pair.transport.aim([])
    pair.transport.aim([pair.target])
    assert pair.send().outcome is Outcome.PENDING
    pair.warm()
    assert pair.probe(8)[ProbeReplied] == 8


def test_a_closed_transport_leaves_nothing_behind(unshared):
    before = resources(unshared)
    with duet(unshared) as pair:
        assert resources(unshared) != before
        pair.transport.close()
        pair.transport.close()  # twice is harmless
    eventually(lambda: resources(unshared) == before, "the clean-up")
