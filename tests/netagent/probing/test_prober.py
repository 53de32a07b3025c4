# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from zlib import crc32

import pytest
from msgspec import structs

from netagent.config import ProbeConfig
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId
from netagent.model.pinglist import PingList, Target
from netagent.probing.prober import (
    IDLE_NS,
    MARK_OFTEN_NS,
    MARK_SELDOM_NS,
    NEW_NS,
    SEND_EVERY_NS,
    Prober,
)
from netagent.probing.session import ProbeFailed, ProbeLost, ProbeReplied, Stamps
from netagent.probing.transport import Outcome, Sent
from netagent.wire import frame

A, B, C = EndpointId("a", 0), EndpointId("b", 0), EndpointId("c", 0)
TO_B = Target(A, B, "10.0.0.2", "")
TO_C = Target(A, C, "10.0.0.3", "")
START_NS = 1_000_000_000_000
MS = 1_000_000
FD, SESSION = 7, 99
CONFIG = ProbeConfig(
    rate_per_endpoint=100,
    rate_per_host=1000,
    flows_per_pair=2,
    sizes=(64, "mtu"),
    timeout_ms=400,
    pings_per_visit=4,
)


@dataclass
class FakeTransport:
    """Sends into a list; what it is given to read is answered at once."""

    ports: tuple[int, ...] = (5001, 5002)
    overhead_bytes: int = 28
    max_frame_bytes: int = 9000
    stamps: Stamps = Stamps.KERNEL
    introduction_ns: int = 0
    roamer: object = None
    broken: str | None = None
    outcome: Outcome = Outcome.SENT
    sent: list[tuple[Target, int, frame.Frame, int]] = field(default_factory=list)
    aimed: list[Target] = field(default_factory=list)
    waiting: list[frame.Frame] = field(default_factory=list)
    foreign: int = 0

    def descriptors(self):
        return (FD,)

    def aim(self, targets):
        self.aimed = list(targets)

    def send(self, target, flow, payload):
        self.sent.append((target, flow, frame.decode(payload), len(payload)))
        return Sent(self.outcome)

    def read(self, descriptor, events, session, *, woken_ns, due_ns):
        assert (descriptor, events) == (FD, 1)
        for probe in self.waiting:
            reply = probe._replace(flags=frame.REPLY)
            session.receive(reply, arrived_wall_ns=woken_ns, taken_wall_ns=woken_ns)
        self.waiting = []
        return self.foreign

    def close(self):
        raise AssertionError("closing is the loop's")


class FakeTally:
    """Remembers events and what was kept."""

    def __init__(self):
        self.events, self.kept, self.ended = [], None, []

    def add(self, event):
        self.events.append(event)

    def forget(self, keep):
        self.kept = keep

    def end(self, flows):
        self.ended += flows


class Bench:
    """A prober with one endpoint, and its clocks."""

    def __init__(self, transport=None, config=CONFIG):
        self.transport, self.tally = transport or FakeTransport(), FakeTally()
        self.now_ns, self.askers = START_NS, {}
        self.prober = Prober(
            config,
            self.tally,
            lambda session, port: self.askers.get((session, port)),
            rng=Random(1),
            wall_ns=lambda: 10 * self.now_ns,
            now_ns=self.now_ns,
        )
        endpoint = Endpoint(A, "t", "h0", "10.0.0.1", "", "", "", "", "", 1450)
        self.wanted = {A: (endpoint, "first")}
        self.prober.add(endpoint, "first", self.transport, session=SESSION, now_ns=START_NS)
        self.aim()

    def aim(self, *targets):
        self.prober.set_pinglist(PingList(1, targets or (TO_B,)), now_ns=self.now_ns)

    def send(self, *, until):
        """Let time pass and send what is due until so many probes went."""
        for _ in range(10_000):
            if len(self.transport.sent) >= until:
                return
            self.now_ns = max(self.now_ns + 1, self.prober.wake_ns(now_ns=self.now_ns))
            self.prober.send_due(now_ns=self.now_ns)
        raise AssertionError("nothing is sent")

    def reply(self):
        """Answer all that was sent."""
        self.transport.waiting = [probe for _, _, probe, _ in self.transport.sent]
        self.prober.read([(FD, 1)], woken_ns=10 * self.now_ns, due_ns=0, now_ns=self.now_ns)

    def kinds(self):
        return [type(event) for event in self.tally.events]


def test_an_idle_prober_comes_again_once_a_second():
    prober = Prober(
        CONFIG, FakeTally(), lambda _s, _p: None, rng=Random(1), wall_ns=int, now_ns=START_NS
    )
    assert not prober.send_due(now_ns=START_NS)
    assert prober.wake_ns(now_ns=START_NS) == START_NS + IDLE_NS


def test_a_visit_is_sent_stamped_and_answered():
    bench = Bench()
    bench.send(until=4)
    targets, flows, probes, sizes = zip(*bench.transport.sent, strict=True)
    assert set(targets) == {TO_B}
    assert set(flows) == {0, 1}
    assert set(sizes) == {64 - 28, 1450 - 28}
    assert {probe.session for probe in probes} == {SESSION}
    bench.reply()
    assert bench.kinds() == [ProbeReplied] * 4
    assert bench.prober.take_counters().sent == 4
    assert bench.prober.take_counters().sent == 0


def test_probes_of_an_endpoint_with_a_key_are_sealed_for_their_target():
    bench, payloads = Bench(), []
    plain = bench.transport.send
    bench.transport.send = lambda target, port, payload: (
        payloads.append(payload), plain(target, port, payload)
    )[1]  # fmt: skip
    bench.send(until=1)
    before = len(payloads)
    bench.prober.keys = {A: b"k" * 16}
    bench.send(until=before + 1)
    wall_ns = 10 * bench.now_ns
    epochs = [frame.sealed_at(p, b"k" * 16, str(B), wall_ns=wall_ns) for p in payloads]
    assert [epoch is not None for epoch in epochs] == [False] * before + [True] * (
        len(payloads) - before
    )


def test_visits_that_fall_due_together_go_out_together():
    bench = Bench()
    bench.send(until=1)
    assert bench.prober.wake_ns(now_ns=bench.now_ns) >= bench.now_ns + SEND_EVERY_NS
    assert not bench.prober.send_due(now_ns=bench.now_ns + SEND_EVERY_NS - 1)


@pytest.mark.parametrize(("rate", "pings"), [(200, 1), (600, 4), (1000, 4), (1000, 2)])
def test_a_high_rate_is_kept(rate, pings):
    fast = structs.replace(
        CONFIG, rate_per_endpoint=rate, rate_per_host=5000, pings_per_visit=pings,
        bytes_per_second_per_endpoint=1 << 30, bytes_per_second_per_host=1 << 34,
    )  # fmt: skip
    bench = Bench(config=fast)
    end_ns = bench.now_ns + 2_000 * MS
    while bench.now_ns < end_ns:
        bench.now_ns = max(bench.now_ns + 1, bench.prober.wake_ns(now_ns=bench.now_ns))
        bench.prober.send_due(now_ns=bench.now_ns)
    assert abs(len(bench.transport.sent) / 2 - rate) < 0.1 * rate


def test_what_may_wait_in_a_socket_is_not_lost_yet():
    bench = Bench()
    bench.send(until=4)
    bench.now_ns += CONFIG.timeout_ms * MS + 1
    bench.prober.send_due(now_ns=bench.now_ns, settles=False)
    assert bench.kinds() == []
    bench.reply()
    assert bench.kinds() == [ProbeReplied] * 4


def marked(bench, *, after_ns):
    """Return how often each flow is marked in the round of visits after some time."""
    bench.now_ns += after_ns
    bench.transport.sent.clear()
    for count in range(4, 24, 4):
        bench.send(until=count)
        bench.reply()
    return Counter(flow for _, flow, probe, _ in bench.transport.sent if probe.flags & frame.MARKED)


def test_each_flow_is_marked_now_and_then_and_more_often_while_it_is_new():
    bench = Bench()
    assert marked(bench, after_ns=0) == {0: 1, 1: 1}
    assert marked(bench, after_ns=MARK_OFTEN_NS) == {0: 1, 1: 1}
    assert marked(bench, after_ns=NEW_NS) == {0: 1, 1: 1}
    assert not marked(bench, after_ns=MARK_OFTEN_NS)
    assert marked(bench, after_ns=MARK_SELDOM_NS) == {0: 1, 1: 1}


def test_a_pair_that_loses_probes_is_marked_more_often():
    bench = Bench()
    marked(bench, after_ns=0)
    marked(bench, after_ns=NEW_NS)
    bench.transport.sent.clear()
    bench.send(until=4)
    bench.now_ns += CONFIG.timeout_ms * MS + 1
    bench.prober.send_due(now_ns=bench.now_ns)
    assert ProbeLost in bench.kinds()
    assert marked(bench, after_ns=MARK_OFTEN_NS) == {0: 1, 1: 1}


def test_what_nobody_answers_is_lost_and_its_flow_is_losing():
    bench = Bench()
    bench.send(until=4)
    bench.now_ns += CONFIG.timeout_ms * MS + 1
    bench.prober.send_due(now_ns=bench.now_ns)
    assert ProbeLost in bench.kinds()
    losing = bench.prober.take_losing()
    assert losing <= {FlowId(A, B, 5001), FlowId(A, B, 5002)}
    assert losing
    assert bench.prober.take_losing() == set()


def test_what_is_lost_while_the_target_is_introduced_is_pending():
    bench = Bench(FakeTransport(introduction_ns=10_000 * MS))
    bench.send(until=4)
    bench.now_ns += CONFIG.timeout_ms * MS + 1
    bench.prober.send_due(now_ns=bench.now_ns)
    assert ProbeLost not in bench.kinds()
    assert bench.prober.take_counters().pending == 4


def test_a_neighbour_that_is_still_asked_for_costs_no_probe():
    bench = Bench(FakeTransport(outcome=Outcome.PENDING))
    bench.send(until=4)
    counters = bench.prober.take_counters()
    assert (counters.sent, counters.pending) == (0, 4)
    bench.now_ns += CONFIG.timeout_ms * MS + 1
    bench.prober.send_due(now_ns=bench.now_ns)
    assert bench.tally.events == []


def test_what_the_device_refuses_has_failed_at_once():
    bench = Bench(FakeTransport(outcome=Outcome.FAILED))
    bench.send(until=4)
    assert bench.kinds() == [ProbeFailed] * 4


def test_caps_hold_back_what_is_too_much():
    config = ProbeConfig(rate_per_endpoint=100, flows_per_pair=2, sizes=("mtu",),
                         bytes_per_second_per_endpoint=3000)  # fmt: skip
    bench = Bench(config=config)
    bench.send(until=2)
    burst = bench.prober.begin_burst(TO_B, now_ns=bench.now_ns)
    for _ in range(10):
        bench.prober.send_of(burst, now_ns=bench.now_ns)
    assert len(bench.transport.sent) == 2
    assert bench.prober.take_counters().capped >= 10


def test_foreign_frames_are_counted():
    bench = Bench(FakeTransport(foreign=3))
    bench.prober.read([(FD, 1), (FD + 1, 1)], woken_ns=0, due_ns=0, now_ns=bench.now_ns)
    assert bench.prober.take_counters().bad_frames == 3


def test_a_burst_is_answered_probe_by_probe_and_not_tallied():
    bench = Bench()
    burst = bench.prober.begin_burst(TO_B, now_ns=bench.now_ns)
    for _ in range(6):
        bench.prober.send_of(burst, now_ns=bench.now_ns)
    assert [flow for _, flow, _, _ in bench.transport.sent] == [0, 0, 1, 1, 0, 0]
    assert bench.prober.answers_of(burst) is None
    bench.reply()
    answers = bench.prober.answers_of(burst)
    assert [answer.outcome for answer in answers] == ["replied"] * 6
    assert [answer.size for answer in answers] == [64, 1450] * 3
    assert bench.tally.events == []


def test_a_burst_from_elsewhere_is_refused():
    with pytest.raises(KeyError):
        Bench().prober.begin_burst(Target(B, A, "10.0.0.1", ""), now_ns=0)


def test_endpoints_that_change_or_break_are_given_back():
    bench = Bench()
    assert bench.prober.retain(bench.wanted) == []
    assert A in bench.prober
    other = {A: (bench.wanted[A][0], "second")}
    assert bench.prober.retain(other) == [bench.transport]
    assert A not in bench.prober
    assert bench.prober.retain({}) == []


def test_a_transport_that_broke_is_given_back_and_said_to_be():
    bench = Bench()
    bench.transport.broken = "device is gone"
    assert bench.prober.broken() == {A: "device is gone"}
    assert bench.prober.retain(bench.wanted) == [bench.transport]


def test_only_listed_pairs_are_aimed_at_and_tallied():
    bench = Bench()
    bench.aim(TO_C, Target(B, C, "10.0.0.3", ""))
    assert bench.transport.aimed == [TO_C]
    assert bench.tally.kept == {(A, C)}


def test_stamps_decide_whether_packets_may_wait():
    assert not Bench().prober.eager
    bench = Bench(FakeTransport(stamps=Stamps.PROCESS))
    assert bench.prober.eager
    assert bench.prober.stamps() == {A: Stamps.PROCESS}


def test_the_flow_of_a_frame_on_the_wire_is_known():
    bench = Bench()
    bench.send(until=1)
    ((_, flow, probe, _),) = bench.transport.sent[:1]
    port = bench.transport.ports[flow]
    assert bench.prober.flow_of(probe, TO_B.address) == FlowId(A, B, port)
    assert bench.prober.flow_of(probe, TO_C.address) is None
    assert bench.prober.flow_of(probe._replace(session=1), TO_B.address) is None


def test_the_flow_of_a_reply_is_the_askers():
    bench = Bench()
    reply = frame.Frame(session=5, port=6000, seq=1, flags=frame.REPLY)
    assert bench.prober.flow_of(reply, TO_B.address) is None
    bench.askers[5, 6000] = (A, TO_B.address)
    assert bench.prober.flow_of(reply, TO_B.address) == FlowId(B, A, 6000)


def test_ports_are_those_of_the_transport():
    bench = Bench()
    assert bench.prober.ports(A, B) == (5001, 5002)
    assert bench.prober.ports(B, A) == ()


# --- ports that roam ----------------------------------------------------------------------------

ROAMING = ProbeConfig(
    rate_per_endpoint=20, rate_per_host=1000, flows_per_pair=4, timeout_ms=500, rotate_s=180
)
TARGETS = tuple(Target(A, EndpointId(f"t{n}", 0), f"10.0.1.{n}", "") for n in range(6))


class RoamingTransport(FakeTransport):
    """Ports whose last one is exchanged, drawn at random as a kernel draws them."""

    def __init__(self, seed=1):
        super().__init__(ports=tuple(range(5001, 5008)))
        self.roamer, self.rng = self, Random(seed)
        self.fds, self.left = [FD], []

    def descriptors(self):
        return (*self.fds, *(fd for fd, _ in self.left))

    def renew(self):
        self.left.append((self.fds[-1], self.ports[-1]))
        self.fds = [self.fds[-1] + 1]
        self.ports = (*self.ports[:-1], self.rng.randrange(32768, 60999))
        return self.fds[-1]

    def drained(self):
        return self.left[0][0] if len(self.left) > 1 else None

    def drop(self):
        return self.left.pop(0)[1]


class RoamingBench(Bench):
    """A prober whose ports roam, driven as the loop drives it; probes are answered at once."""

    def __init__(self, config=ROAMING, targets=TARGETS, seed=1):
        super().__init__(RoamingTransport(seed), config)
        self.targets, self.seen, self.turns = targets, [], 0
        self.aim(*targets)

    def step(self, *, answer=True):
        self.turn()
        self.prober.send_due(now_ns=self.now_ns)
        if answer:
            self.reply()
        wakes = self.prober.wake_ns(now_ns=self.now_ns), self.prober.turn_ns
        self.now_ns = max(self.now_ns + 1, min(wakes))

    def reply(self):
        local = self.prober._locals[A]
        for _, _, probe, _ in self.transport.sent:
            reply = probe._replace(flags=frame.REPLY)
            at_ns = self.prober._wall_ns()
            local.session.receive(reply, arrived_wall_ns=at_ns, taken_wall_ns=at_ns)
        self.seen += self.transport.sent
        self.transport.sent.clear()
        self.prober._account(local, self.now_ns)

    def turn(self):
        for transport, roamer in self.prober.turning(now_ns=self.now_ns):
            self.turns += 1
            opened, closed = roamer.renew(), roamer.drained()
            self.prober.turned(transport, opened, closed, now_ns=self.now_ns)
            if closed is not None:
                port = roamer.drop()
                # Nothing is under way from a port that is closed, and it is told to be over.
                under_way = self.prober._locals[A].session._open.values()
                assert port not in {probe.flow.source_port for probe in under_way}
                assert {flow.source_port for flow in self.tally.ended[-len(self.targets) :]} == {
                    port
                }

    def flows(self):
        return {t.target: self.prober._locals[A].peers[t.target].flows for t in self.targets}


def clocked(bench):
    """Let the wall clock run as fast as the monotonic one: turns go by it."""
    offset_ns = 1_700_000_000_000_000_000 - START_NS
    bench.prober._wall_ns = lambda: bench.now_ns + offset_ns
    return bench


def test_every_pair_has_its_flows_all_the_time_and_only_the_last_ever_changes():
    bench = clocked(RoamingBench())
    staying = {key: flows[:-1] for key, flows in bench.flows().items()}
    assert len(set(staying.values())) > 1
    roaming, until_ns = set(), START_NS + 1000 * 1_000_000_000
    while bench.now_ns < until_ns:
        bench.step()
        for key, flows in bench.flows().items():
            assert len(set(flows)) == ROAMING.flows_per_pair
            assert flows[:-1] == staying[key]
        roaming.add(flows[-1].source_port)
    assert bench.turns in (5, 6)
    assert len(roaming) == bench.turns + 1
    assert len(bench.transport.descriptors()) == 2
    assert ProbeLost not in bench.kinds()
    sent = {flow.source_port for event in bench.tally.events for flow in [event.flow]}
    assert roaming <= sent


def test_all_endpoints_of_a_host_exchange_their_ports_together():
    bench = clocked(RoamingBench())
    endpoint, other = (
        Endpoint(B, "t", "h0", "10.0.0.2", "", "", "", "", "", 1450),
        RoamingTransport(2),
    )
    bench.prober.add(endpoint, "first", other, session=SESSION + 1, now_ns=bench.now_ns)
    turns = 0
    while turns < 3:
        due = [transport for transport, _ in bench.prober.turning(now_ns=bench.now_ns)]
        assert due in ([], [bench.transport, other])
        turns += bool(due)
        bench.now_ns = bench.prober.turn_ns


@pytest.mark.parametrize("kind", [ProbeReplied, ProbeLost])
def test_a_probe_under_way_as_its_port_is_exchanged_is_answered_or_lost_as_any_other(kind):
    config = structs.replace(ROAMING, rate_per_endpoint=100)
    bench = clocked(RoamingBench(config, targets=TARGETS[:1]))
    while not bench.turns:
        bench.step()
    before = bench.flows()[TARGETS[0].target][-1]
    while bench.turns < 2:
        bench.step(answer=bench.prober.turn_ns - bench.now_ns > 200 * MS)
    assert before != bench.flows()[TARGETS[0].target][-1]
    under_way = bench.prober._locals[A].session._open.values()
    count = sum(probe.flow == before for probe in under_way)
    bench.tally.events.clear()
    if kind is ProbeReplied:
        bench.reply()
    while any(probe.flow == before for probe in under_way):
        bench.step(answer=False)
    settled = [type(event) for event in bench.tally.events if event.flow == before]
    assert settled == [kind] * count != []
    assert before not in bench.tally.ended


def test_a_pair_is_marked_at_once_on_its_new_port():
    bench = clocked(RoamingBench(targets=TARGETS[:1]))
    while bench.turns < 2:
        bench.step()
    bench.seen = []
    new = bench.flows()[TARGETS[0].target][-1].source_port
    while not (mine := [p for _, _, p, _ in bench.seen if p.port == new]):
        bench.step()
    assert mine[0].flags & frame.MARKED


@pytest.mark.parametrize(("members", "least"), [(4, 1.0), (8, 0.8), (16, 0.6)])
def test_after_an_hour_most_ways_were_probed(members, least):
    shares = []
    for seed in range(5):
        bench = clocked(RoamingBench(config=structs.replace(ROAMING, rate_per_endpoint=2),
                                     seed=seed))  # fmt: skip
        while bench.now_ns < START_NS + 3600 * 1_000_000_000:
            bench.step()
        ways = {key: set() for key in bench.flows()}
        for event in bench.tally.events:
            flow = event.flow
            ways[flow.target].add(crc32(f"{flow.target} {flow.source_port}".encode()) % members)
        shares += [len(crossed) / members for crossed in ways.values()]
    assert sum(shares) / len(shares) >= least
    # Ports that stay reach few of them.
    assert 1 - (1 - 1 / members) ** ROAMING.flows_per_pair < least


def test_ports_that_are_to_stay_have_no_turn():
    bench = clocked(RoamingBench(config=structs.replace(ROAMING, rotate_s=0)))
    while bench.now_ns < START_NS + 600 * 1_000_000_000:
        bench.step()
    assert bench.turns == 0
