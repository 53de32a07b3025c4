# SPDX-License-Identifier: Apache-2.0
"""Round trips and rates of the RDMA transport, against a bare pyverbs loop and `ibv_ud_pingpong`.

Soft-RoCE over a cable, all in one boot, rounds of the contenders in turn so that a noisy machine
slows all. The C program shows what the kernel and the emulated processor cost; what is above it is
Python's share. Needs root and Soft-RoCE: `make test-vm` has such a machine.
"""

import os
import re
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.rdma.resolver import Resolver
from netagent.adapters.rdma.responder_client import ResponderClient
from netagent.model.ids import EndpointId, FlowId
from netagent.model.pinglist import Target
from netagent.probing.session import ProbeMeasured, ProbeReplied, ProbeSession
from netagent.probing.transport import Outcome
from netagent.wire import frame
from tests.bench.rdma_bare import Bare, median_us
from tests.bench.rdma_busy import SPINS
from tests.conftest import RDMA
from tests.rdma.pair import FLOWS, Duet, Side, bridged, cabled, duet, open_transport

ROUNDS, PINGS = 7, 400
ENDPOINTS, TARGETS = 8, 8
FLEET_S = 5.0
BUSY = "tests.bench.rdma_busy"
TARGET_RATIO = 1.2


def run() -> list[dict[str, object]]:
    """Return rows: median round trips by contender and way of waiting, then rates of a fleet."""
    if not RDMA.present():
        raise SystemExit(f"rdma: {RDMA.remedy}")
    with cabled() as sides:
        rows = [_compare(sides, busy=busy) for busy in (True, False)]
    return [*rows, _fleet()]


def _compare(sides: tuple[Side, Side], *, busy: bool) -> dict[str, object]:
    ours: list[float] = []
    bare: list[float] = []
    c: list[float] = []
    network: list[float] = []
    means: list[tuple[float, float]] = []
    with ExitStack() as stack:
        pair = stack.enter_context(duet(sides, module=BUSY if busy else None))
        loop, peer = stack.enter_context(_bare(sides, busy=busy))
        answering = pair.responders.pid
        if answering is None:
            raise RuntimeError("the responder ended")
        for number in range(ROUNDS + 1):
            # Who is not asked must not take a processor from who is.
            with _stopped(peer):
                mine = _ours(pair, busy=busy)
            with _stopped(answering):
                theirs = loop.rounds(PINGS, busy=busy)
            with _stopped(peer), _stopped(answering):
                found = mine, theirs, _c(sides, busy=busy)
            if number:  # the first round warms up
                ours.append(median_us(found[0]))
                network.append(median_us([m.network_ns for m in pair.measured()]))
                bare.append(median_us(found[1]))
                c.append(found[2])
                means.append((statistics.fmean(found[0]) / 1e3, statistics.fmean(found[1]) / 1e3))
            pair.happened.clear()
    return _row(ours, bare, c, network, means, busy=busy)


def _row(
    ours: list[float],
    bare: list[float],
    c: list[float],
    network: list[float],
    means: list[tuple[float, float]],
    *,
    busy: bool,
) -> dict[str, object]:
    mine, theirs, floor = map(statistics.median, (ours, bare, c))
    # The C program prints a mean, which is compared with means.
    share, bare_share = (
        statistics.median(1 - a / b for a, b in zip(c, each, strict=True))
        for each in zip(*means, strict=True)
    )
    return {
        "waiting": "busy poll" if busy else "event",
        "rtt_us": round(mine, 1),
        "rtt_told_us": round(statistics.median(network), 1),
        "bare_pyverbs_rtt_us": round(theirs, 1),
        "ibv_ud_pingpong_mean_rtt_us": round(floor, 1),
        "ratio_to_bare": round(mine / theirs, 3),
        "ratio_told_to_bare": round(statistics.median(network) / theirs, 3),
        "target_ratio": TARGET_RATIO,
        "ratio_by_round": [round(a / b, 3) for a, b in zip(ours, bare, strict=True)],
        "python_share": round(share, 3),
        "bare_python_share": round(bare_share, 3),
        "probes_per_s": round(1e6 / mine),
        "bare_per_s": round(1e6 / theirs),
        "rounds": ROUNDS,
        "pings_per_round": PINGS,
    }


def _ours(pair: Duet, *, busy: bool) -> list[int]:
    # What the prober does for each probe, frame checks and all; one at a time.
    transport, session, target = pair.transport, pair.session, pair.target
    flow = FlowId(target.source, target.target, transport.ports[0])
    clock, found = time.perf_counter_ns, []
    arrivals, _ = transport.descriptors()
    with select.epoll() as waiting:
        waiting.register(arrivals, select.EPOLLIN)
        for _ in range(PINGS):
            began_ns = clock()
            probe = session.send(flow, 0, now_ns=now_ns(), wall_ns=wall_ns())
            sent = transport.send(target, 0, frame.encode(probe, size=64))
            if sent.left_wall_ns is None:
                raise RuntimeError(f"not sent: {sent}")
            session.transmitted(probe.seq, left_wall_ns=sent.left_wall_ns)
            while (event := session.next_event()) is None:
                if busy:
                    transport.poll(session, spins=SPINS)
                else:
                    ready, woken_ns = waiting.poll(1.0), wall_ns()
                    if ready:
                        transport.read(
                            arrivals, select.EPOLLIN, session, woken_ns=woken_ns, due_ns=woken_ns
                        )
            found.append(clock() - began_ns)
            while event is not None:
                pair.happened.append(event)
                event = session.next_event()
    return found


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def _bare(sides: tuple[Side, Side], *, busy: bool) -> Iterator[tuple[Bare, int]]:
    near, far = sides
    made = Bare(near.device, near.gid)
    arguments = (far.device, far.gid, near.gid, str(made.qpn), "busy" if busy else "wait")
    command = [sys.executable, "-m", "tests.bench.rdma_bare", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as peer:
        try:
            if peer.stdout is None:
                raise RuntimeError("no pipe")
            made.aim(far.gid, int(peer.stdout.readline()))
            yield made, peer.pid
        finally:
            peer.kill()
            made.close()


def _c(sides: tuple[Side, Side], *, busy: bool) -> float:
    # Round trip of the C program, in microseconds; it polls, or with -e waits.
    near, far = sides
    common = ["-s", "64", "-n", str(4 * PINGS), *([] if busy else ["-e"])]
    server = subprocess.Popen(
        ["ibv_ud_pingpong", "-d", far.device, "-g", _index(far), *common],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        asking = ["ibv_ud_pingpong", "-d", near.device, "-g", _index(near), *common, "127.0.0.1"]
        for _ in range(200):
            tried = subprocess.run(asking, check=False, capture_output=True, text=True, timeout=60)
            if tried.returncode == 0:
                break
            select.select([], [], [], 0.05)  # it does not listen yet
        found = re.search(r"= ([0-9.]+) usec/iter", tried.stdout)
        if found is None:
            raise RuntimeError(tried.stdout + tried.stderr)
        return float(found[1])
    finally:
        server.kill()
        server.communicate()


def _index(side: Side) -> str:
    from netagent.adapters.rdma import verbs  # noqa: PLC0415 - pyverbs may be absent where this is imported
    from netagent.probing.rdma.gids import choose_gid  # noqa: PLC0415 - beside it

    device = verbs.Device(side.device)
    try:
        return str(choose_gid(device.gids(), verbs.ROCE_V2, side.gid))
    finally:
        device.close()


def _fleet() -> dict[str, object]:
    with ExitStack() as stack:
        sides = stack.enter_context(bridged(2 * max(ENDPOINTS, TARGETS)))
        near, far = sides[:ENDPOINTS], sides[ENDPOINTS:]
        resolver, responders = Resolver(), ResponderClient(replies_per_second=1e6)
        stack.callback(resolver.close)
        stack.callback(responders.close)
        keys = [EndpointId(f"far{n}", 0) for n in range(TARGETS)]
        places = zip(keys, far, strict=True)
        responders.set_endpoints({key: (side.place, FLOWS) for key, side in places})
        responders.aim({key: [side.gid for side in near] for key in keys})
        while len(responders.opened) < TARGETS:
            select.select([responders.fileno()], [], [], 0.1)
            responders.step()
        probers = [_Prober(n, side, resolver, responders) for n, side in enumerate(near)]
        for prober in probers:
            stack.callback(prober.transport.close)
        return _drive(probers, resolver, responders)


class _Prober:
    def __init__(
        self, number: int, side: Side, resolver: Resolver, answer: ResponderClient
    ) -> None:
        own = EndpointId(f"near{number}", 0)
        self.transport = open_transport(side, resolver)
        self.targets = [Target(own, key, "", "", rdma) for key, rdma in answer.opened.items()]
        self.transport.aim(self.targets)
        self.session = ProbeSession(session=number + 1, timeout_ns=500_000_000)
        self.ready: list[Target] = []
        self.sent = self.replied = self.lost = 0
        self.network_ns: list[int] = []

    def send(self, target: Target, number: int) -> bool:
        flow = number % FLOWS
        name = FlowId(target.source, target.target, self.transport.ports[flow])
        probe = self.session.send(name, 0, now_ns=now_ns(), wall_ns=wall_ns())
        sent = self.transport.send(target, flow, frame.encode(probe, size=64))
        if sent.outcome is not Outcome.SENT:
            self.session.withdraw(probe.seq)
            return False
        if sent.left_wall_ns is not None:
            self.session.transmitted(probe.seq, left_wall_ns=sent.left_wall_ns)
        self.sent += 1
        return True

    def settle(self) -> list[Target]:
        self.session.expire(now_ns=now_ns())
        free = []
        while (event := self.session.next_event()) is not None:
            if isinstance(event, ProbeMeasured):
                self.network_ns.append(event.network_ns)
                continue
            self.replied += isinstance(event, ProbeReplied)
            self.lost += not isinstance(event, ProbeReplied)
            free.append(next(t for t in self.targets if t.target == event.flow.target))
        return free


def _drive(
    probers: list[_Prober], resolver: Resolver, responders: ResponderClient
) -> dict[str, object]:
    # Each endpoint always has one probe to each of its targets under way.
    by_fd = {prober.transport.descriptors()[0]: prober for prober in probers}
    _fill(probers, resolver)
    with select.epoll() as waiting:
        for fd in by_fd:
            waiting.register(fd, select.EPOLLIN)
        _turn(waiting, by_fd, FLEET_S)  # it warms up
        for prober in probers:
            prober.replied = prober.lost = 0
            prober.network_ns.clear()
        began_ns = now_ns()
        _turn(waiting, by_fd, FLEET_S)
        seconds = (now_ns() - began_ns) / 1e9
    responders.step()
    return {
        "endpoints": len(probers),
        "targets_per_endpoint": TARGETS,
        "in_flight": len(probers) * TARGETS,
        "probes_per_s": round(sum(p.replied for p in probers) / seconds),
        "lost": sum(p.lost for p in probers),
        "rtt_told_us": round(median_us([ns for p in probers for ns in p.network_ns]), 1),
        "seconds": round(seconds, 1),
    }


def _fill(probers: list[_Prober], resolver: Resolver) -> None:
    for prober in probers:
        for target in prober.targets:
            while not prober.send(target, 0):
                select.select([resolver.fileno()], [], [], 0.01)
                resolver.step()


def _turn(waiting: select.epoll, by_fd: dict[int, _Prober], seconds: float) -> None:
    until_ns, number = now_ns() + int(seconds * 1e9), 0
    while now_ns() < until_ns:
        ready, woken_ns = waiting.poll(0.05), wall_ns()
        for fd, events in ready:
            prober = by_fd[fd]
            prober.transport.read(fd, events, prober.session, woken_ns=woken_ns, due_ns=woken_ns)
            for target in prober.settle():
                number += 1
                prober.send(target, number)
        for prober in by_fd.values():
            deadline_ns = prober.session.deadline_ns()
            if deadline_ns is not None and deadline_ns < now_ns():
                for target in prober.settle():
                    prober.send(target, number)
