# SPDX-License-Identifier: Apache-2.0
"""Two Soft-RoCE devices at the ends of a cable, and all of ours that probes from one to the other.

Both are in the initial network namespace, where alone Soft-RoCE works: policy routing makes their
packets cross the cable instead of the loopback interface.
"""

import json
import os
import secrets
import select
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netagent.adapters.clock import now_ns, wall_ns
from netagent.adapters.rdma.messages import Place, RdmaEvent
from netagent.adapters.rdma.resolver import Resolver
from netagent.adapters.rdma.responder_client import ResponderClient
from netagent.adapters.rdma.transport import RdmaTransport, open_rdma
from netagent.model.ids import EndpointId, FlowId
from netagent.model.pinglist import Target
from netagent.probing.session import (
    ProbeEvent,
    ProbeLost,
    ProbeMeasured,
    ProbeReplied,
    ProbeSession,
)
from netagent.probing.transport import Outcome, Sent
from netagent.wire import frame
from tests.waiting import wait_until

ETH_P_ALL, ROCE_PORT = 0x0003, 4791
PATIENCE_S = 60.0
"""An emulated machine that others load as well is slow."""
TIMEOUT_NS = 3_000_000_000
FLOWS = 4
_SYSCTLS = ("rp_filter=0", "accept_local=1", "arp_ignore=1", "arp_announce=2")
_LOCAL, _LOCAL_PREFERENCE = "local", "100"
_FIRST_RULE = ("ip", "rule", "add", "pref", "0", "lookup", _LOCAL, "protocol", "kernel")


def run(*words: str) -> str:
    """Run a command; return what it prints."""
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


def eventually(condition: Callable[[], object], what: str = "it") -> None:
    """Wait until `condition` holds."""
    wait_until(condition, what, PATIENCE_S)


def opened(responders: ResponderClient, key: EndpointId) -> None:
    """Step the responder until it answers for `key`."""

    def answers() -> bool:
        responders.step()
        return key in responders.opened

    eventually(answers, "an opening")


@dataclass(frozen=True)
class Side:
    """One end of the cable."""

    netdev: str
    device: str
    address: str
    table: str
    network: str

    @property
    def gid(self) -> str:
        """The RoCE v2 GID that its address makes."""
        return f"::ffff:{self.address}"

    @property
    def place(self) -> Place:
        """Where it is opened: Soft-RoCE needs no namespace."""
        return Place(device=self.device, gid=self.gid, path="")

    def route(self) -> None:
        """Let what it sends cross the cable; to be done again after the link was down."""
        words = ("route", "replace", self.network, "dev", self.netdev, "src", self.address)
        run("ip", *words, "table", self.table)

    def add_device(self) -> None:
        """Make its RDMA device, and wait for its GID."""
        run("rdma", "link", "add", self.device, "type", "rxe", "netdev", self.netdev)
        gids = Path(f"/sys/class/infiniband/{self.device}/ports/1/gids")
        last = "".join(f"{int(part):02x}" for part in self.address.split("."))
        wanted = f"ffff:{last[:4]}:{last[4:]}"
        eventually(lambda: any(_read(gid).endswith(wanted) for gid in gids.iterdir()), "the GID")


def resources(sides: Iterable[Side]) -> dict[str, Any]:
    """Return how many objects of each kind the kernel holds, by device of `sides`.

    Two counts can be compared where nobody else opens a device in between. The helpers of an open
    pair do: for a moment, each time they resolve a neighbour, which is once a minute at least.
    """
    devices = {side.device for side in sides}
    rows = json.loads(run("rdma", "-j", "resource", "show"))
    return {row["ifname"]: row for row in rows if row["ifname"] in devices}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:  # an empty entry
        return ""


@contextmanager
def cabled(number: int = 0) -> Iterator[tuple[Side, Side]]:
    """Make two devices at the ends of a cable; `number` tells several cables apart."""
    tag, network = secrets.token_hex(2), f"10.78.{number}.0/24"
    sides = tuple(
        Side(
            f"v{tag}{end}",
            f"rxe{tag}{end}",
            f"10.78.{number}.{n}",
            f"{7200 + 2 * number + n}",
            network,
        )
        for n, end in ((1, "a"), (2, "b"))
    )
    with ExitStack() as cleanup:
        _prepare(cleanup)
        run("ip", "link", "add", sides[0].netdev, "type", "veth", "peer", "name", sides[1].netdev)
        cleanup.callback(run, "ip", "link", "del", sides[0].netdev)
        for side in sides:
            _address(side, cleanup)
        for side in sides:
            side.add_device()
            cleanup.callback(_remove_device, side.device)
        yield sides[0], sides[1]


@contextmanager
def bridged(count: int) -> Iterator[list[Side]]:
    """Make `count` devices on one network: a bridge."""
    tag, network = secrets.token_hex(2), "10.79.0.0/24"
    sides = [
        Side(f"v{tag}{n}", f"rxe{tag}{n}", f"10.79.0.{n + 1}", f"{7300 + n}", network)
        for n in range(count)
    ]
    with ExitStack() as cleanup:
        _prepare(cleanup)
        run("ip", "link", "add", f"b{tag}", "type", "bridge")
        cleanup.callback(run, "ip", "link", "del", f"b{tag}")
        run("ip", "link", "set", f"b{tag}", "up")
        for n, side in enumerate(sides):
            port = f"p{tag}{n}"
            run("ip", "link", "add", side.netdev, "type", "veth", "peer", "name", port)
            cleanup.callback(run, "ip", "link", "del", side.netdev)
            run("ip", "link", "set", port, "master", f"b{tag}", "up")
            _address(side, cleanup)
            side.add_device()
            cleanup.callback(_remove_device, side.device)
        yield sides


def _prepare(cleanup: ExitStack) -> None:
    # The table of local addresses comes first by default: then all of it would be loopback.
    # Behind another cable it no longer does.
    rules = run("ip", "rule", "show").splitlines()
    if any(rule.startswith("0:\tfrom all lookup local") for rule in rules):
        run("ip", "rule", "add", "pref", _LOCAL_PREFERENCE, "lookup", _LOCAL)
        run("ip", "rule", "del", "pref", "0", "lookup", _LOCAL)
        cleanup.callback(run, "ip", "rule", "del", "pref", _LOCAL_PREFERENCE, "lookup", _LOCAL)
        cleanup.callback(run, *_FIRST_RULE)
    for sysctl in _SYSCTLS:
        key, _, value = sysctl.partition("=")
        path = Path(f"/proc/sys/net/ipv4/conf/all/{key}")
        cleanup.callback(path.write_text, path.read_text(encoding="ascii"), encoding="ascii")
        path.write_text(value, encoding="ascii")


def _address(side: Side, cleanup: ExitStack) -> None:
    for sysctl in _SYSCTLS:
        run("sysctl", "-qw", f"net.ipv4.conf.{side.netdev}.{sysctl}")
    run("ip", "addr", "add", f"{side.address}/24", "dev", side.netdev)
    run("ip", "link", "set", side.netdev, "up")
    side.route()
    for preference, match in (
        ("10", ("iif", "lo", "from", side.address)),
        ("11", ("oif", side.netdev)),
    ):
        rule = ("pref", preference, *match, "lookup", side.table)
        run("ip", "rule", "add", *rule)
        cleanup.callback(run, "ip", "rule", "del", *rule)


def _remove_device(device: str) -> None:
    if device in run("rdma", "link", "show"):
        run("rdma", "link", "del", device)


@dataclass
class Duet:
    """A prober at the first side and a responder process at the second."""

    sides: tuple[Side, Side]
    resolver: Resolver
    responders: ResponderClient
    transport: RdmaTransport
    target: Target
    session: ProbeSession = field(
        default_factory=lambda: ProbeSession(session=secrets.randbits(32), timeout_ns=TIMEOUT_NS)
    )
    happened: list[ProbeEvent] = field(default_factory=list)
    told: list[RdmaEvent] = field(default_factory=list)
    foreign: int = 0

    def send(
        self, flow: int = 0, *, size: int = 64, flags: int = 0, target: Target | None = None
    ) -> Sent:
        """Send a probe, as the prober does."""
        to, session = target or self.target, self.session
        name = FlowId(to.source, to.target, self.transport.ports[flow])
        probe = session.send(name, 0, now_ns=now_ns(), wall_ns=wall_ns())
        sent = self.transport.send(to, flow, frame.encode(probe._replace(flags=flags), size=size))
        if sent.outcome is Outcome.PENDING:
            session.withdraw(probe.seq)
        elif sent.outcome is Outcome.FAILED:
            session.fail(probe.seq)
        elif sent.left_wall_ns is not None:
            session.transmitted(probe.seq, left_wall_ns=sent.left_wall_ns)
        return sent

    def pump(self, wait_s: float = 0.01) -> None:
        """Read what is there, and wait for it so long at most."""
        ends = (*self.transport.descriptors(), self.resolver.fileno(), self.responders.fileno())
        ready, _, _ = select.select(ends, [], [], wait_s)
        woken_ns = wall_ns()
        for descriptor in self.transport.descriptors():
            if descriptor in ready:
                self.foreign += self.transport.read(
                    descriptor, select.EPOLLIN, self.session, woken_ns=woken_ns, due_ns=woken_ns
                )
        self.resolver.step()
        self.responders.step()
        self.told += self.transport.take_events()
        self.session.expire(now_ns=now_ns())
        while (event := self.session.next_event()) is not None:
            self.happened.append(event)

    def until(self, condition: Callable[[], object], what: str = "it") -> None:
        """Read until `condition` holds."""
        wait_until(condition, what, PATIENCE_S, rest=lambda _: self.pump())

    def probe(self, count: int, *, flow: int | None = None, **how: Any) -> Counter[type]:
        """Send `count` probes, each after the last one settled; return how they ended."""
        before, sent = len(self.happened), 0
        for number in range(count):
            sent += (
                self.send(number % FLOWS if flow is None else flow, **how).outcome
                is not Outcome.PENDING
            )
            self.until(lambda: self._settled(before) == sent, "a verdict")  # noqa: B023 - run at once
        # A reply tells its measurement in the same packet.
        return Counter(type(event) for event in self.happened[before:])

    def _settled(self, since: int) -> int:
        return sum(not isinstance(event, ProbeMeasured) for event in self.happened[since:])

    def works(self) -> bool:
        """Send a probe; return whether it was answered."""
        return self.probe(1)[ProbeReplied] == 1

    def warm(self) -> None:
        """Probe until the way is known: the first packets over a new link may be lost."""
        for flow in range(FLOWS):
            self.until(lambda: self.probe(1, flow=flow)[ProbeReplied], "a reply")  # noqa: B023 - at once
        self.happened.clear()

    def fresh(self) -> None:
        """Begin anew, on a way that works."""
        self.session.abandon()  # what an earlier test left open is no verdict of the next
        self.responders.set_endpoints({FAR: (self.sides[1].place, FLOWS)})
        self.responders.aim({FAR: [self.sides[0].gid]})
        self.target = self.answering(FAR)
        self.transport.aim([self.target])
        self.warm()
        self.told.clear()
        self.foreign = 0

    def measured(self) -> list[ProbeMeasured]:
        """Return the measurements so far."""
        return [event for event in self.happened if isinstance(event, ProbeMeasured)]

    def lost(self) -> int:
        """Return how many probes were lost so far."""
        return sum(isinstance(event, ProbeLost) for event in self.happened)

    def reopen(self) -> None:
        """Do what the prober does with a broken transport."""
        self.transport.close()
        self.transport = open_transport(self.sides[0], self.resolver)
        self.transport.aim([self.target])

    def answering(self, key: EndpointId) -> Target:
        """Wait until the responder answers for `key`; return it as a target."""
        opened(self.responders, key)
        address = self.responders.opened[key]
        return Target(self.target.source, key, self.sides[1].address, "", address)


def open_transport(side: Side, resolver: Resolver) -> RdmaTransport:
    """Open a side to probe from."""
    place = side.place
    return open_rdma(
        place.device, place.gid, flows=FLOWS, path=place.path, inode=place.inode, resolver=resolver
    )


NEAR, FAR = EndpointId("near", 0), EndpointId("far", 0)


@contextmanager
def duet(
    sides: tuple[Side, Side], *, warm: bool = True, module: str | None = None
) -> Iterator[Duet]:
    """Probe from the first side, answer at the second; the way is known when it begins."""
    with ExitStack() as cleanup:
        resolver = Resolver()
        cleanup.callback(resolver.close)
        how = {"module": module} if module else {}
        responders = ResponderClient(replies_per_second=1_000_000, **how)
        cleanup.callback(responders.close)
        responders.set_endpoints({FAR: (sides[1].place, FLOWS)})
        responders.aim({FAR: [sides[0].gid]})
        transport = open_transport(sides[0], resolver)
        target = Target(NEAR, FAR, sides[1].address, "")
        made = Duet(sides, resolver, responders, transport, target)
        cleanup.callback(lambda: made.transport.close())  # noqa: PLW0108 - it may be another by then
        made.target = made.answering(FAR)
        made.transport.aim([made.target])
        if warm:
            made.warm()
        yield made


def sniffer(netdev: str) -> socket.socket:
    """Capture what `netdev` sends and receives; packets begin behind the Ethernet header."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
    made.bind((netdev, ETH_P_ALL))
    made.setblocking(False)
    return made


def roce_ports(wire: socket.socket, source: str) -> set[int]:
    """Return the UDP source ports of RoCE packets from `source` that were captured."""
    ports: set[int] = set()
    while True:
        try:
            packet = wire.recv(2048)
        except BlockingIOError:
            return ports
        if packet[0] >> 4 != 4:  # ARP, IPv6
            continue
        header = (packet[0] & 15) * 4
        port, to = struct.unpack_from("!HH", packet, header)
        roce = packet[9] == socket.IPPROTO_UDP and to == ROCE_PORT
        if roce and packet[12:16] == socket.inet_aton(source):
            ports.add(port)


def spawn(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start Python on `code` in the tree, with a pipe from its standard output."""
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
