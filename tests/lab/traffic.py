# SPDX-License-Identifier: Apache-2.0
"""Training-like traffic: every endpoint bursts to the next one of its task on its rail.

One process serves the whole lab. It follows the state file, opens its sockets inside the
containers' namespaces, bound to their interfaces, and lives with containers that vanish. Run by
the lab as a background process: ``python -m tests.lab.traffic --help``.
"""

import argparse
import json
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from netagent.model.address import is_six
from tests.lab.errors import LabError
from tests.lab.namespaces import in_thread, path
from tests.lab.state import State, Store
from tests.lab.workload import Container, Endpoint

PORT = 20000
FLOWS = 4
"""Source ports of an endpoint, from `PORT` on: like several queue pairs, they use all spines."""

PAYLOAD = bytes(1400)
TICK_S = 0.02
FOLLOW_S = 0.5
"""How often the state file is looked at and lost sockets are opened again."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When and how much to send."""

    period_s: float
    duty: float
    """Share of the period that a burst lasts."""

    packets: int
    """Packets of each endpoint per tick of 20 ms, while bursting."""

    def bursting(self, now_s: float) -> bool:
        """Tell whether a burst is on."""
        return now_s % self.period_s < self.duty * self.period_s

    def wait_s(self, now_s: float) -> float:
        """Return how long to sleep: a tick in a burst, else until the next one, at most 0.5 s."""
        if self.bursting(now_s):
            return TICK_S
        return min(self.period_s - now_s % self.period_s, FOLLOW_S)


def ring(containers: Iterable[Container], rails: int) -> dict[Endpoint, Endpoint]:
    """Return, per endpoint, whom it sends to: the next container of its task, same rail."""
    pairs: dict[Endpoint, Endpoint] = {}
    everyone = sorted(containers)
    for task in {container.task for container in everyone}:
        members = [container for container in everyone if container.task == task]
        if len(members) < 2:
            continue
        for here, there in zip(members, members[1:] + members[:1], strict=True):
            pairs |= {here.endpoint(rail): there.endpoint(rail) for rail in range(rails)}
    return pairs


class Generator:
    """The sockets, a few per endpoint, and what went through them."""

    def __init__(self) -> None:
        self._targets: dict[Endpoint, Endpoint] = {}
        self._sockets: dict[Endpoint, list[socket.socket]] = {}
        self._turn = 0
        self.counts: dict[str, dict[str, int]] = {}

    def follow(self, state: State) -> None:
        """Close what is no longer wanted and open what is missing."""
        self._targets = ring(state.containers, state.shape.rails)
        # An application's sockets die with it; ours would keep its namespace alive.
        dead = {each for each in self._sockets if not path(each.container.namespace).exists()}
        for endpoint in self._sockets.keys() - self._targets.keys() | dead:
            self._forget(endpoint)
        for endpoint in self._targets.keys() - self._sockets.keys():
            self._open(endpoint)

    def send(self, packets: int) -> None:
        """Send some packets from each endpoint, and take out what arrived."""
        self._turn += 1
        for endpoint, flows in tuple(self._sockets.items()):
            count = self.counts.setdefault(endpoint.container.task, {"sent": 0, "received": 0})
            there = (self._targets[endpoint].address, PORT)
            try:
                for number in range(packets):
                    flows[(self._turn * packets + number) % FLOWS].sendto(PAYLOAD, there)
                    count["sent"] += 1
            except BlockingIOError:
                pass  # the queue is full: this tick sends less
            except OSError:
                self._forget(endpoint)  # its interface or address is gone
                continue
            count["received"] += _drain(flows[0])

    def _open(self, endpoint: Endpoint) -> None:
        def bound() -> list[socket.socket]:
            with ExitStack() as opened:
                flows = [opened.enter_context(_bound(endpoint, n)) for n in range(FLOWS)]
                opened.pop_all()  # all are bound: keep them open
            return flows

        try:
            self._sockets[endpoint] = in_thread(endpoint.container.namespace, bound)
        except OSError:
            return  # no such namespace or address: crashed, or not ready yet

    def _forget(self, endpoint: Endpoint) -> None:
        for flow in self._sockets.pop(endpoint):
            flow.close()


def _bound(endpoint: Endpoint, flow: int) -> socket.socket:
    family = socket.AF_INET6 if is_six(endpoint.address) else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        # Where endpoints share a namespace, the address alone would lead over the loopback.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, endpoint.interface.encode())
        opened.bind((endpoint.address, PORT + flow))
    except OSError:
        opened.close()
        raise
    return opened


def _drain(receiver: socket.socket) -> int:
    received = 0
    try:
        while True:
            receiver.recv(2048)
            received += 1
    except OSError:  # nothing left, or an ICMP error that the next send will meet
        return received


def _publish(path: Path, text: str) -> None:
    """Replace a file at once: who reads it meanwhile sees the old text or the new, never half."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)


def run(directory: Path, rhythm: Rhythm) -> None:
    """Send until the lab goes away."""
    store, generator = Store(directory), Generator()
    next_look_s = 0.0
    while True:
        now_s = time.monotonic()
        if now_s >= next_look_s:
            next_look_s = now_s + FOLLOW_S
            try:
                generator.follow(store.read())
            except LabError:
                return
            _publish(directory / "traffic.json", json.dumps(generator.counts))
        if rhythm.bursting(now_s):
            generator.send(rhythm.packets)
        time.sleep(rhythm.wait_s(time.monotonic()))


def main() -> None:
    """Parse the arguments and send."""
    parser = argparse.ArgumentParser(description="Send training-like bursts in a lab.")
    parser.add_argument("--lab", required=True, type=Path, metavar="DIR", help="the lab")
    parser.add_argument("--period-s", type=float, default=4, help="of the bursts (default: 4)")
    parser.add_argument("--duty", type=float, default=0.25, help="share of it (default: 0.25)")
    parser.add_argument(
        "--packets", type=int, default=2, help="per endpoint and 20 ms (default: 2)"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    run(options.lab, Rhythm(options.period_s, options.duty, options.packets))


if __name__ == "__main__":
    main()
