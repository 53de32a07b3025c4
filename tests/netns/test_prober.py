# SPDX-License-Identifier: Apache-2.0
"""Two probers of one process, over a real veth between two namespaces."""

import secrets
import select
import socket
import struct
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from netagent.adapters.host.setns import call_in_namespace
from netagent.adapters.probes.loop import ProbeLoop
from netagent.adapters.probes.opener import TransportOpener
from netagent.adapters.probes.udp_transport import Answering, UdpTransport
from netagent.collect.windows import WindowTally
from netagent.config import ProbeConfig
from netagent.host.facts import Namespace
from netagent.model.endpoint import Endpoint
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.model.pinglist import PingList, Target
from netagent.probing.roaming import EXTRA_PORTS, Turns
from netagent.wire import frame
from tests.conftest import NETNS, require
from tests.waiting import NotInTime, wait_until

pytestmark = pytest.mark.netns
DEADLINE_S = 20
FLOWS = 2
CONFIG = ProbeConfig(
    rate_per_endpoint=200,
    rate_per_host=1000,
    bytes_per_second_per_endpoint=16 << 20,
    flows_per_pair=FLOWS,
    timeout_ms=400,
)
TIMEOUT_NS = CONFIG.timeout_ms * 1_000_000
ETH_P_ALL = 3
ADDRESSES = {4: ("10.9.0.1", "10.9.0.2"), 6: ("fd00:9::1", "fd00:9::2")}
BOTH = pytest.mark.parametrize("pair", [(4, 1450), (6, 1450)], indirect=True)


class Side:
    """One namespace with one endpoint, and the prober of its host."""

    def __init__(self, namespace, letter, address):
        self.namespace, self.address = f"/run/netns/{namespace}", address
        self.name, self.device = namespace, f"{letter}0"
        self.id = EndpointId(f"container-{letter}", 0)
        self.tally = WindowTally(large_class=len(CONFIG.sizes) - 1)
        self.transports = TransportOpener(CONFIG, Answering(4000))
        self.probes = ProbeLoop(CONFIG, self.tally, self.transports)
        self.prober = self.probes.prober

    def open(self, mtu):
        endpoint = Endpoint(self.id, "t", "h", self.address, "", "", "", "", "", mtu)
        place = Namespace(self.namespace, Path(self.namespace).stat().st_ino)
        self.transports.place({self.id: place})
        assert self.probes.set_endpoints([endpoint]) == []

    def probe(self, other):
        target = Target(self.id, other.id, other.address, "")
        self.probes.set_pinglist(PingList(1, (target,)))
        return target

    def flows(self):
        """Return the counters of each flow so far."""
        return list(self.tally._flows.values())


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def run_until(condition, *sides):
    """Step the probers as an event loop does until `condition()`."""
    poll = select.poll()
    for side in sides:
        poll.register(side.probes.fileno(), select.POLLIN)

    def step(_):
        wake_ns = min(side.probes.step() for side in sides)
        poll.poll(max(0, wake_ns - time.monotonic_ns()) / 1e6)

    try:
        wait_until(condition, "they", DEADLINE_S, rest=step)
    except NotInTime as error:
        raise AssertionError([side.flows() for side in sides]) from error


def enough(side, **least):
    """Return whether each of the flows counted at least so many of what `least` names."""

    def reached():
        flows = side.flows()
        return len(flows) == FLOWS and all(
            getattr(flow, name) >= count for flow in flows for name, count in least.items()
        )

    return reached


@pytest.fixture
def pair(request):
    """Two sides with open endpoints; the parameter is the version of IP and the MTU."""
    require(NETNS)
    version, mtu = getattr(request, "param", (4, 1450))
    tag = secrets.token_hex(3)
    left = Side(f"na-{tag}-l", "l", ADDRESSES[version][0])
    right = Side(f"na-{tag}-r", "r", ADDRESSES[version][1])
    flags = ("nodad",) if version == 6 else ()
    try:
        for side in (left, right):
            ip("netns", "add", side.name)
        ip("link", "add", "l0", "netns", left.name, "type", "veth", "peer", "name", "r0",
           "netns", right.name)  # fmt: skip
        for side in (left, right):
            ip("-n", side.name, "addr", "add", f"{side.address}/24", "dev", side.device, *flags)
            ip("-n", side.name, "link", "set", side.device, "mtu", str(mtu), "up")
            side.open(mtu)
        if version == 6:  # the kernel asks for neighbours once it has seen the carrier
            ping = ("ping", "-q", "-i", "0.05", "-c", "1", "-w", str(DEADLINE_S), right.address)
            ip("netns", "exec", left.name, *ping)
        yield left, right
    finally:
        for side in (left, right):
            side.probes.close()
            subprocess.run(["ip", "netns", "del", side.name], check=False)


@pytest.mark.parametrize("pair", [(4, 1450), (4, 9000), (6, 1450), (6, 9000)], indirect=True)
def test_probes_of_every_size_are_measured_in_both_directions_at_once(pair):
    left, right = pair
    left.probe(right)
    right.probe(left)
    run_until(enough(left, sent_large=5), left, right)
    run_until(enough(right, sent_large=5), left, right)
    run_until(lambda: all(f.rtt.count >= 5 for f in left.flows() + right.flows()), left, right)
    for side in (left, right):
        assert side.prober.take_counters().bad_frames == 0
        assert side.tally.take_send_errors() == 0
        for flow in side.flows():
            assert (flow.lost, flow.refused, flow.run) == (0, 0, 0)
            assert 0 < flow.rtt.min_ns <= flow.rtt.max_ns < TIMEOUT_NS
            assert 0 < flow.prober_ns < flow.rtt.count * TIMEOUT_NS
            assert 0 < flow.responder_ns < flow.rtt.count * TIMEOUT_NS
            # Nearly each probe is measured: the next on its flow tells of it.
            assert flow.sent - 3 * CONFIG.pings_per_visit <= flow.rtt.count <= flow.sent


@BOTH
def test_what_the_interface_does_not_take_is_a_send_error_and_no_loss(pair):
    left, right = pair
    ip("-n", left.name, "link", "set", left.device, "mtu", "1280")
    left.probe(right)
    errors = []

    def refused_locally():
        errors.append(left.tally.take_send_errors())
        return sum(errors) >= 3

    run_until(refused_locally, left, right)
    assert all(flow.sent_large == flow.lost == 0 for flow in left.flows())


@BOTH
def test_a_closed_responder_refuses_and_loses_nothing(pair):
    left, right = pair
    # A kernel tells one host of a closed port once a second, which is slower than we probe here.
    ip("netns", "exec", right.name, "sysctl", "-qw", "net.ipv4.icmp_ratelimit=0",
       "net.ipv6.icmp.ratelimit=0")  # fmt: skip
    left.probe(right)
    right.probes.set_endpoints([])
    run_until(enough(left, refused=3), left)
    assert all(flow.lost == flow.run == 0 for flow in left.flows())


def test_what_is_lost_before_the_first_answer_may_be_the_targets_affair(pair, monkeypatch):
    left, right = pair
    monkeypatch.setattr(UdpTransport, "introduction_ns", 3 * TIMEOUT_NS)
    ip("-n", right.name, "link", "set", right.device, "down")
    left.probe(right)
    waited = []

    def waits():
        waited.append(left.prober.take_counters().pending)
        return sum(waited) >= 3

    run_until(waits, left, right)
    assert left.flows() == []
    ip("-n", right.name, "link", "set", right.device, "up")
    run_until(enough(left, sent=2), left, right)
    known = {id(flow): flow.lost for flow in left.flows()}
    ip("-n", right.name, "link", "set", right.device, "down")
    # Each flow loses more than it had: what began a run before the link went down does not count.
    run_until(lambda: all(flow.lost > known[id(flow)] for flow in left.flows()), left, right)


def test_a_target_that_never_answers_is_lost_in_the_end(pair, monkeypatch):
    left, right = pair
    monkeypatch.setattr(UdpTransport, "introduction_ns", 2 * TIMEOUT_NS)
    ip("-n", right.name, "link", "set", right.device, "down")
    left.probe(right)
    run_until(enough(left, run=3), left, right)
    assert left.prober.take_counters().pending > 0


def test_a_cut_link_loses_in_a_row_until_it_is_whole_again(pair, monkeypatch):
    monkeypatch.setattr(UdpTransport, "roamer", None)  # of a port that is left nothing ends the run
    left, right = pair
    left.probe(right)
    run_until(enough(left, sent=2), left, right)
    ip("-n", right.name, "link", "set", right.device, "down")
    run_until(enough(left, run=3), left, right)
    assert all(flow.lost >= 3 and flow.refused == 0 for flow in left.flows())
    ip("-n", right.name, "link", "set", right.device, "up")
    run_until(lambda: not any(flow.run for flow in left.flows()), left, right)


@BOTH
def test_a_burst_is_answered_probe_by_probe_and_counts_in_no_window(pair):
    left, right = pair
    target = Target(left.id, right.id, right.address, "")
    collect = left.probes.begin_burst(target, 6)
    run_until(lambda: collect() is not None, left, right)
    answers = collect()
    assert [answer.outcome for answer in answers] == ["replied"] * 6
    smallest = 72 if ":" in right.address else 64  # headers of 48 bytes, and the frame
    assert [answer.size for answer in answers] == [smallest, 1100, 1450] * 2
    assert left.flows() == []


def test_the_flow_of_a_marked_packet_is_known_on_both_sides(pair):
    left, right = pair
    left.probe(right)
    right.probe(left)
    with closing(call_in_namespace(left.namespace, lambda: sniffer(left.device))) as wire:
        seen = {}

        def both_ways():
            seen.update(marked(wire))
            return len(seen) == 4 * FLOWS

        run_until(both_ways, left, right)
    ends = ((left, right), (right, left))
    ports = {source.id: source.prober.ports(source.id, target.id) for source, target in ends}
    for source, target in ends:
        for port in ports[source.id]:
            flow = FlowId(source.id, target.id, port)
            probe = seen[source.address, port, CONFIG.port]
            reply = seen[target.address, CONFIG.port, port]
            assert source.prober.flow_of(probe, target.address) == flow
            assert target.prober.flow_of(reply, source.address) == flow
            assert target.prober.flow_of(probe, target.address) is None


@BOTH
def test_ports_roam_over_real_sockets_and_nothing_is_lost_by_it(pair):
    left, right = pair
    left.probe(right)
    right.probe(left)
    # More often than may be configured: each port is closed two seconds after its last probe.
    for side in pair:
        side.prober._turns = Turns(rotate_s=1, window_s=1, timeout_ms=CONFIG.timeout_ms)
        side.prober.turn_ns = 0
    (transport,) = (local.transport for local in left.prober._locals.values())
    staying, roaming, most = left.prober.ports(left.id, right.id)[:-1], {}, 0

    def measured():
        nonlocal most
        ports = left.prober.ports(left.id, right.id)
        assert ports[:-1] == staying
        roaming[ports[-1]] = None
        most = max(most, len(transport.descriptors()))
        # The first port goes within its first second, and a busy machine may leave out more.
        return sum(enough_of(left, port) for port in roaming) == 4

    run_until(measured, left, right)
    assert most == 1 + FLOWS + EXTRA_PORTS + 1  # the responder's, and one that goes
    assert bound(left) == {CONFIG.port, *transport.ports, list(roaming)[-2]}
    for side in pair:
        assert side.prober.take_counters().bad_frames == 0
        assert side.tally.take_send_errors() == 0
        assert {flow.lost for flow in side.flows()} == {0}
        assert {flow.refused for flow in side.flows()} == {0}


def bound(side):
    """Return the UDP ports that are open in a side's namespace, as the kernel lists them."""
    files = [Path("/proc/thread-self/net", name) for name in ("udp", "udp6")]
    texts = call_in_namespace(side.namespace, lambda: [file.read_text() for file in files])
    listed = [line for text in texts for line in text.splitlines()[1:]]
    return {int(line.split()[1].partition(":")[2], 16) for line in listed}


def enough_of(side, port):
    """Return whether a flow from this port counted a few round trips."""
    return any(
        flow.source_port == port and tally.rtt.count >= 4
        for flow, tally in side.tally._flows.items()
    )


def sniffer(device):
    """Return a socket that reads what comes and goes on `device`."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    opened.bind((device, ETH_P_ALL))
    return opened


def marked(wire):
    """Yield ((source, source port, target port), frame) of marked packets on the wire."""
    while True:
        try:
            packet = wire.recv(2048)
        except BlockingIOError:
            return
        ports = struct.unpack_from("!HH", packet, 34) if len(packet) > 42 else ()
        try:
            sighted = frame.decode(packet[42:])
        except RemoteProtocolError:
            continue
        if sighted.flags & frame.MARKED:
            yield (socket.inet_ntoa(packet[26:30]), *ports), sighted
