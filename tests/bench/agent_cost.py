# SPDX-License-Identifier: Apache-2.0
"""What an agent costs its host: 8 endpoints x 8 targets, and as many probes to answer as to send.

Twice: at 10 probes/s to each target (640 in all), and at 10 probes/s of each endpoint (80). Nine
hosts of eight rails in the lab. One agent is measured; the others hardly probe. A generator sends
it the probes that eight such peers would send it. Needs root and Open vSwitch.
"""

import socket
import time

from netagent.adapters.probes import udp
from netagent.wire import frame
from tests.bench.receiving import cpu_s
from tests.lab import Lab, Shape

ENDPOINTS, TARGETS, RATE = 8, 8, 10
PER_ENDPOINT = {"each target": TARGETS * RATE, "each endpoint": RATE}
SHAPE = Shape(hosts=TARGETS + 1, rails=ENDPOINTS, segments=1, spines=1)
WARM_S, MEASURE_S = 15.0, 30.0
PORT = 18515
WINDOW_S = 5
AGENT_URL = "https://198.18.0.10:8421"


def _configure(lab: Lab, rate: float) -> None:
    total = ENDPOINTS * rate
    for host in range(SHAPE.hosts):
        path = lab.directory / f"h{host}" / "agent.toml"
        per_endpoint = rate if host == 0 else 0.1
        text = path.read_text() + (
            f"\n[probe]\nrate_per_endpoint = {per_endpoint}\nrate_per_host = {total * 1.1}\n"
            f"bytes_per_second_per_endpoint = {1 << 20}\n"
            f"bytes_per_second_per_host = {16 << 20}\n"
        )
        path.write_text(text)


def _peers() -> list[tuple[socket.socket, str]]:
    # One socket per other host and rail, with the address of the measured host's endpoint.
    made = []
    for host in range(1, SHAPE.hosts):
        for rail in range(ENDPOINTS):
            own, target = f"10.0.{rail}.{10 + host}", f"10.0.{rail}.10"
            path = f"/run/netns/na-train-a-{host}"
            sockets = udp.open_endpoint(path, own, port=0, flows=0)
            made.append((sockets.responder, target))
    return made


def _send(peers: list[tuple[socket.socket, str]], seconds: float, rate: float) -> int:
    # Paced: all peers together send as many probes as the agent does; sizes in turn as its are.
    interval = 1.0 / (ENDPOINTS * rate)
    began, sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        while sent * interval < elapsed:
            peer, target = peers[sent % len(peers)]
            size = (36, 1072, 1422)[sent // len(peers) % 3]
            probe = frame.Frame(sent % len(peers), sent)
            udp.send(peer, frame.encode(probe, size=size), (target, PORT))
            if sent % 16 == 0:
                while udp.receive(peer) is not None:
                    pass
            while udp.notice(peer) is not None:
                pass
            sent += 1
        time.sleep(0.002)  # pacing, not synchronisation
    return sent


def _watch(
    lab: Lab, peers: list[tuple[socket.socket, str]], rate: float
) -> dict[int, dict[str, int]]:
    """Return the health of each whole window while the generator runs."""
    seen: dict[int, dict[str, int]] = {}
    began = time.monotonic()
    # One connection, asked seldom: a TLS handshake costs the agent more than many probes.
    with lab.services().client(AGENT_URL) as client:
        while time.monotonic() - began < MEASURE_S:
            _send(peers, WINDOW_S / 2, rate)
            status = client.get("/v1/status").json()
            seen[status["last_window_ns"]] = status["health"]
    return dict(sorted(seen.items())[1:])


def run() -> list[dict[str, object]]:
    """Return a row per rate: CPU share of one core, resident memory, and probes sent late."""
    return [{"ten_probes_per_s_to": what, **_measure(rate)} for what, rate in PER_ENDPOINT.items()]


def _measure(rate: float) -> dict[str, object]:
    lab = Lab()
    lab.up(SHAPE, agents=False, tasks=(), traffic=None)
    try:
        _configure(lab, rate)
        services = lab.services()
        services.start()
        lab.start_task("train-a")
        peers = _peers()
        _send(peers, WARM_S, rate)
        pid = lab.processes.pid("h0/agent")
        if pid is None:
            raise RuntimeError("the agent of h0 is not running")
        before_s, began = cpu_s(pid), time.monotonic()
        windows = list(_watch(lab, peers, rate).values())
        share = (cpu_s(pid) - before_s) / (time.monotonic() - began)
        for peer, _ in peers:
            peer.close()
    finally:
        lab.down()
    seconds = WINDOW_S * len(windows)
    return {
        "endpoints": ENDPOINTS,
        "targets_per_endpoint": TARGETS,
        "probes_per_s": round(sum(w["sent"] for w in windows) / seconds),
        "answered_per_s": round(sum(w["answered"] for w in windows) / seconds),
        "cpu_share_of_a_core": round(share, 4),
        "rss_mb": round(max(w["rss_kb"] for w in windows) / 1024, 1),
        "probes_delayed_by_the_agent": sum(w["delayed"] for w in windows),
        "probes_held_back_by_caps": sum(w["capped"] for w in windows),
        "seconds": seconds,
        "target_cpu_share": 0.03,
        "target_rss_mb": 60,
    }
