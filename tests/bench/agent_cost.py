# SPDX-License-Identifier: Apache-2.0
"""What an agent costs its host: 8 endpoints x 9 targets, and as many probes to answer as to send.

Three times: at a probe a second to each target (72 in all), at the default rate (160), and at 10
probes/s to each of eight (640).
Ten hosts of eight rails in the lab. One agent is measured, with the processes that it started; the
others hardly probe. A generator sends it the visits that nine such peers would pay it, sealed and
marked as theirs. By RDMA
there are two hosts, and the other one's agent pays them: each endpoint has one target. With
NETAGENT_BENCH_BEFORE, a checkout of an earlier version in which `make setup` was run, that one is
measured as well, first and last in turn, so that what drifts meanwhile favours neither. Needs root
and Open vSwitch.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from netagent.adapters.peers.uplink import Uplink
from netagent.adapters.probes import udp
from netagent.config import ProbeConfig, load
from netagent.model.errors import NetAgentError
from netagent.model.ids import EndpointId
from netagent.probing.prober import MARK_SELDOM_NS
from netagent.probing.roster import Roster
from netagent.wire import frame
from tests.bench.receiving import cpu_times_s
from tests.conftest import RDMA
from tests.lab import Lab, Shape
from tests.lab.processes import children, family
from tests.lab.shape import Transport, namespace

ENDPOINTS, TARGETS = 8, 9
RATES = {
    "one to each target": 9,
    "the default": ProbeConfig().rate_per_endpoint,
    "ten to each of eight targets": 80,
}
"""Probes a second -> what they are of each endpoint."""
SHAPE = Shape(hosts=TARGETS + 1, rails=ENDPOINTS, segments=1, spines=1)
WARM_S, MEASURE_S = 30.0, 30.0
"""Seconds before measuring, in which pairs are new and looked at more often, and of measuring."""
ROUNDS = 4
"""Of both versions; an even number, so that each is as often the first."""
PORT = 18515
WINDOW_S = 5
AGENT_URL = "https://198.18.0.10:8421"
AGENT = "h0/agent"
PINGS = ProbeConfig().pings_per_visit
Drive = Callable[[float], object]
"""Has the agent answer probes for some seconds."""
PAGE_KB = os.sysconf("SC_PAGESIZE") / 1024


def _configure(lab: Lab, rate: float, *, others: float) -> None:
    for host in range(lab.state().shape.hosts):
        path = lab.directory / f"h{host}" / "agent.toml"
        settings = (
            f"rate_per_endpoint = {rate if host == 0 else others}\n"
            f"rate_per_host = {ENDPOINTS * rate * 1.1}\n"
            f"bytes_per_second_per_endpoint = {1 << 20}\n"
            f"bytes_per_second_per_host = {16 << 20}\n"
        )
        text = path.read_text()
        if "[probe]\n" in text:
            text = text.replace("rate_per_endpoint = 16\n", settings)
        else:
            text += f"\n[probe]\n{settings}"
        path.write_text(text)


@dataclass(slots=True)
class _Peer:
    """Another host's endpoint of a rail, and the one that it probes."""

    socket: socket.socket
    target: EndpointId
    address: str
    key: bytes
    session: int
    sent: int = 0
    marked_ns: dict[int, int] = field(default_factory=dict)
    """Port -> when a probe from it was marked."""

    def probe(self, port: int) -> None:
        """Send a probe as a prober does: its outer header is looked at now and then."""
        now_ns = time.monotonic_ns()
        is_marked = now_ns - self.marked_ns.get(port, -MARK_SELDOM_NS) >= MARK_SELDOM_NS
        if is_marked:
            self.marked_ns[port] = now_ns
        flags = frame.MARKED if is_marked else 0
        payload = frame.sealed(
            frame.Frame(self.session, self.sent, port=port, flags=flags),
            self.key, str(self.target),
            size=(36, 1072, 1422)[self.sent % 3], wall_ns=time.time_ns(),
        )  # fmt: skip
        self.sent += 1
        udp.send(self.socket, payload, (self.address, PORT))


def _keys(lab: Lab) -> dict[int, bytes]:
    """Return the key of each rail's group, as the analyzer gives it to the host h1."""

    async def ask() -> dict[EndpointId, bytes]:
        roster, uplink = Roster("h1"), Uplink(load(lab.directory / "h1" / "agent.toml"))
        try:
            news = await uplink.follow(roster.asks())
        finally:
            await uplink.close()
        if news is not None:
            roster.take(news)
        return roster.keys

    keys = {endpoint.rail: key for endpoint, key in asyncio.run(ask()).items()}
    if len(keys) != ENDPOINTS:
        raise NetAgentError(f"the analyzer gives h1 keys for {len(keys)} rails of {ENDPOINTS}")
    return keys


def _peers(keys: dict[int, bytes]) -> list[_Peer]:
    made: list[_Peer] = []
    for host in range(1, SHAPE.hosts):
        for rail in range(ENDPOINTS):
            path = f"/run/netns/na-train-a-{host}"
            sockets = udp.open_endpoint(path, f"10.0.{rail}.{10 + host}", port=0, flows=0)
            target = EndpointId("train-a-0", rail)
            made.append(_Peer(sockets.responder, target, f"10.0.{rail}.10", keys[rail], len(made)))
    return made


def _send(peers: list[_Peer], seconds: float, rate: float) -> int:
    # All peers together send as many probes as the agent does, in visits; sizes in turn as its are.
    interval = PINGS / (ENDPOINTS * rate)
    began, visits = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        while visits * interval < elapsed:
            peer = peers[visits % len(peers)]
            for ping in range(PINGS):
                peer.probe(1024 + ping // 2)
            while udp.receive(peer.socket) is not None:
                pass
            while udp.notice(peer.socket) is not None:
                pass
            visits += 1
        time.sleep(0.002)  # pacing, not synchronisation
    return visits * PINGS


def _watch(lab: Lab, drive: Drive) -> dict[int, dict[str, int]]:
    """Return the health of each whole window while the agent is driven."""
    seen: dict[int, dict[str, int]] = {}
    began = time.monotonic()
    # One connection, asked seldom: a TLS handshake costs the agent more than many probes.
    with lab.services().client(AGENT_URL) as client:
        while time.monotonic() - began < MEASURE_S:
            drive(WINDOW_S / 2)
            status = client.get("/v1/status").json()
            seen[status["last_window_ns"]] = status["health"]
    return dict(sorted(seen.items())[1:])


def run() -> Iterator[dict[str, object]]:
    """Yield a row per rate and round: CPU share of one core, memory, and probes sent late."""
    for what, rate in RATES.items():
        with _lab(SHAPE, rate) as lab, ExitStack() as stack:
            peers = _peers(_keys(lab))
            for peer in peers:
                stack.enter_context(peer.socket)
            drive = partial(_send, peers, rate=rate)
            yield from _rows(lab, what, drive)


def run_rdma() -> Iterator[dict[str, object]]:
    """Yield such rows by RDMA; raises SystemExit where the kernel has no Soft-RoCE."""
    if not RDMA.present():
        raise SystemExit(f"agent-cost-rdma: {RDMA.remedy}")
    what, rate = next(iter(RATES.items()))
    shape = replace(SHAPE, hosts=2, transport=Transport.RDMA)
    with _lab(shape, rate, others=rate) as lab:
        yield from _rows(lab, what, time.sleep)


@contextmanager
def _lab(shape: Shape, rate: float, *, others: float = 0.1) -> Iterator[Lab]:
    lab = Lab()
    lab.up(shape, agents=False, tasks=(), traffic=None)
    try:
        _configure(lab, rate, others=others)
        lab.services().start()
        lab.start_task("train-a")
        yield lab
    finally:
        lab.down()


def _rows(lab: Lab, what: str, drive: Drive) -> Iterator[dict[str, object]]:
    before = os.environ.get("NETAGENT_BENCH_BEFORE")
    versions = {"this": Path.cwd()} | ({"before": Path(before)} if before else {})
    for version in in_turn(list(versions)):
        restart(lab, versions[version])
        yield {"version": version, "probes_a_second": what, **_measure(lab, drive)}


def in_turn(versions: Sequence[str]) -> list[str]:
    """Return the versions of all rounds, in the order of measuring: A, B, B, A, and so on."""
    return [each for n in range(ROUNDS) for each in (versions if n % 2 == 0 else versions[::-1])]


def restart(lab: Lab, checkout: Path) -> None:
    """Have a version's agent run on the measured host, whose own ends."""
    lab.processes.kill(AGENT)
    program = str(checkout / ".venv" / "bin" / "netagent")
    config = str(lab.directory / "h0" / "agent.toml")
    lab.processes.start(AGENT, program, "run", "--config", config, namespace=namespace("h0"))


def _measure(lab: Lab, drive: Drive) -> dict[str, object]:
    drive(WARM_S)
    pid = lab.processes.pid(AGENT)
    if pid is None:
        raise RuntimeError("the agent of h0 is not running")
    everybody = list(family(pid, children()))
    before_s, began = _cpu_s(everybody), time.monotonic()
    windows = list(_watch(lab, drive).values())
    took_s, after_s = time.monotonic() - began, _cpu_s(everybody)
    user, kernel = (
        (after - before) / took_s for before, after in zip(before_s, after_s, strict=True)
    )
    seconds = WINDOW_S * len(windows)
    return {
        "endpoints": ENDPOINTS,
        "targets_per_endpoint": lab.state().shape.hosts - 1,
        "probes_per_s": round(sum(w["sent"] for w in windows) / seconds),
        "answered_per_s": round(sum(w["answered"] for w in windows) / seconds),
        "cpu_share_of_a_core": round(user + kernel, 4),
        "of_it_in_the_kernel": round(kernel, 4),
        "rss_mb": round(sum(map(_rss_kb, everybody)) / 1024, 1),
        "processes": len(everybody),
        "probes_delayed_by_the_agent": sum(w["delayed"] for w in windows),
        "probes_held_back_by_caps": sum(w["capped"] for w in windows),
        "seconds": seconds,
        "target_rss_mb": 45,
    }


def _cpu_s(pids: Sequence[int]) -> tuple[float, float]:
    """Return what processes have used themselves, and in the kernel."""
    user, kernel = zip(*map(cpu_times_s, pids), strict=True)
    return sum(user), sum(kernel)


def _rss_kb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_KB
