# SPDX-License-Identifier: Apache-2.0
"""`agent-attacked`: an agent's probes and memory before, while and after its RPC is attacked.

The lab's usual shape. Strangers knock at the RPC of one host, and somebody with another host's key:
connections held and flooded, heads that do not end, damaged and large bodies, others' names. Each
figure under attack stands beside those before and after it, of the same agent and as long: what
stays when it is over is no cost of the moment. Needs root and Open vSwitch. Minutes by default;
`NETAGENT_ATTACK_S` sets the seconds of each third.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from netagent.server import PEERS_ROUTE
from netagent.wire.codec import encode
from netagent.wire.messages import Announcement
from tests.bench.fleet.hostile import Aim, attacking
from tests.bench.receiving import cpu_s
from tests.lab import Lab, Shape
from tests.lab.certs import Certificates
from tests.lab.config import agent_url
from tests.lab.health import ills
from tests.lab.shape import AGENT_PORT, management_address
from tests.lab.workload import DEFAULT_TASKS

SECONDS = float(os.environ.get("NETAGENT_ATTACK_S", "120"))
WARM_S = 20.0
WINDOW_S = 5
VICTIM = management_address(0)


def announcement(host: str, number: int) -> bytes:
    """Return what agents tell each other."""
    return encode(Announcement(host=host, instance="i", generation=number))


@contextmanager
def _attacked(lab: Lab) -> Iterator[dict[str, int]]:
    folder = lab.directory / "stranger"
    others = Certificates(folder)
    others.make(Shape(hosts=1, segments=1))
    ours = lab.services().certificates
    stolen, stranger = _files(ours, "h1"), _files(others, "h0")
    aim = Aim(AGENT_PORT, PEERS_ROUTE, announcement, "PUT", VICTIM)
    with attacking(aim, str(ours.ca), stolen, stranger) as counts:
        yield counts


def _files(certificates: Certificates, name: str) -> Sequence[str]:
    return str(certificates.cert(name)), str(certificates.key(name))


def _watch(lab: Lab, seconds: float) -> dict[str, Any]:
    """Return what the agent did per second, what it held, and what it was late with."""
    pid = lab.processes.pid("h0/agent")
    if pid is None:
        raise RuntimeError("the agent of h0 is not running")
    windows: dict[int, dict[str, int]] = {}
    peers: dict[tuple[int, int], dict[str, int]] = {}
    since_ns = time.time_ns()
    began, before_s = time.monotonic(), cpu_s(pid)
    with lab.services().client(f"https://{VICTIM}:{AGENT_PORT}") as client:
        while time.monotonic() - began < seconds:
            time.sleep(WINDOW_S / 2)  # pacing: each window is seen
            status = client.get("/v1/status").json()
            windows[status["last_window_ns"]] = status["health"]
            for number in range(1, Shape().hosts):
                told = lab.services().status(agent_url(number))
                peers[number, told["last_window_ns"]] = told["health"]
    share = (cpu_s(pid) - before_s) / (time.monotonic() - began)
    health = [windows[start_ns] for start_ns in sorted(windows)[1:]]
    lasted_s = WINDOW_S * len(health)
    rounds = sorted({start_ns for _, start_ns in peers})[1:-1]
    others = [health for (_, start_ns), health in peers.items() if start_ns in rounds]
    of_it = [pair for task in DEFAULT_TASKS for pair in _pairs(lab, task, since_ns)]
    return {
        "pairs_sent": sum(pair["sent"] for pair in of_it),
        "pairs_lost": sum(pair["lost"] for pair in of_it),
        "peers_sent_per_s": round(sum(w["sent"] for w in others) / (WINDOW_S * len(rounds)), 1),
        "sent_per_s": round(sum(w["sent"] for w in health) / lasted_s, 1),
        "answered_per_s": round(sum(w["answered"] for w in health) / lasted_s, 1),
        "delayed": sum(w["delayed"] for w in health),
        "unanswered": sum(w["unanswered"] for w in health),
        "stalled_ms": max(w["stalled_ms"] for w in health),
        "cpu_share_of_a_core": round(share, 3),
        "rss_mb_first": round(health[0]["rss_kb"] / 1024, 1),
        "rss_mb_by_tenth": [round(kb / 1024, 1) for kb in tenths([w["rss_kb"] for w in health])],
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "seconds": lasted_s,
    }


def tenths(values: Sequence[int]) -> list[int]:
    """Return the last value of each tenth: what levels off can be told from what goes on."""
    return [values[-(-len(values) * n // 10) - 1] for n in range(1, 11)]


def _pairs(lab: Lab, task: str, since_ns: int) -> list[dict[str, Any]]:
    """Return what became of probes from and to the host's containers, as the analyzer knows it."""
    with lab.services().client() as client:
        answer = client.get(f"/v1/tasks/{task}/inquiry", params={"since": since_ns}, timeout=60)
    ends = ("source", "target")
    whole = answer.raise_for_status().json()["pairs"]
    return [pair for pair in whole if any(pair[end].startswith(f"{task}-0/") for end in ends)]


def run() -> list[dict[str, object]]:
    """Return one row: before, under attack, after it, how attempts ended, and who was named."""
    lab = Lab()
    lab.up(Shape(), traffic=None)  # what is probed stays the same: nothing is learned of traffic
    try:
        time.sleep(WARM_S)  # what is measured has begun
        before = _watch(lab, SECONDS)
        with _attacked(lab) as counts:
            attacked = _watch(lab, SECONDS)
        after = _watch(lab, SECONDS)
        with lab.services().client() as client:
            said = named(client)
    finally:
        lab.down()
    rates = ("sent_per_s", "answered_per_s")
    share = {name: round(attacked[name] / before[name], 3) for name in rates}
    attempts = sum(counts.values())
    return [
        {
            "before": before, "attacked": attacked, "after": after, "share_of_before": share,
            "attempts": dict(counts), "attempts_per_s": round(attempts / SECONDS),
            **said,
        }
    ]  # fmt: skip


def named(client: httpx.Client) -> dict[str, list[str]]:
    """Return who was named, and what is wrong with the judge: one that is dead names nobody."""
    incidents = client.get("/v1/incidents").raise_for_status().json()["incidents"]
    status = client.get("/v1/status").raise_for_status().json()
    return {
        "incidents": [str(each["component"]) for each in incidents],
        "judge_ills": list(ills(status)),
    }
