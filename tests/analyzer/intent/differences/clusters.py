# SPDX-License-Identifier: Apache-2.0
"""A cluster, its controller and what both say, as a toy: slow and literal, with the truth known."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from analyzer.intent.differences.contract import Difference, HostSaid, Sight
from analyzer.intent.differences.lasting import Differences
from analyzer.intent.model import (
    Allowed,
    Chassis,
    Encapsulation,
    Intent,
    Ladder,
    Placement,
    Port,
)
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.wire.controller import ControllerState, PluggedPort, Working

SECOND = 10**9
STEP_NS = 5 * SECOND
START_NS = 1_000 * STEP_NS


@dataclass
class Host:
    """A host, as it is."""

    name: str
    chassis: str
    address: str
    offered: str
    working: Working = Working.CONNECTED
    is_silent: bool = False


@dataclass
class Plug:
    """A container's interface that is plugged in."""

    host: str
    interface: str
    name: str
    """Port that it says."""
    mac: str
    address: str


@dataclass
class Cluster:
    """Hosts, ports, and a controller that puts each port where it is plugged in."""

    seed: int = 0
    hosts: int = 4
    ports: int = 6
    central: str = "tcp:192.0.2.1:6642"
    away: dict[str, str] = field(default_factory=dict)
    frozen: bool = False
    """Whether the translation stands still."""
    asked: int = 7
    translated: int = 7
    now_ns: int = START_NS
    asking: float = 0.0
    """Probability that something is asked for in a look's time."""
    lazy: float = 0.0
    """Probability that a host is busy then, and installs it later."""

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.differences = Differences()
        self.host = {
            f"h{n}": Host(f"h{n}", f"chassis-{n}", f"192.0.2.{n + 10}", f"192.0.2.{n + 10}")
            for n in range(self.hosts)
        }
        self.chassis = {
            host.chassis: Chassis(
                host.chassis, f"{host.name}.example", (Encapsulation("geneve", host.address),),
                installed=self.translated,
            )
            for host in self.host.values()
        }  # fmt: skip
        self.port: dict[str, Port] = {}
        self.known: dict[str, Port] = {}
        """Ports as they were translated last."""
        self.placement: dict[str, Placement] = {}
        self.plugs: dict[str, Plug] = {}
        """By interface, which no two hosts share here."""
        self.soon: tuple[Difference, ...] = ()
        """What does not stand yet."""
        self.said: dict[str, HostSaid] = {}
        self.count = 0
        for _ in range(self.ports):
            self.plug(self.declare())
        self.settle()

    # --- what its people do ---------------------------------------------------------------------

    def declare(self) -> Port:
        """Ask for one more port."""
        self.count += 1
        n = self.count
        mac, address = f"0A:00:00:00:00:{n:02x}", f"10.0.0.{n}"
        allowed = self.rng.choice([(), (Allowed(mac),), (Allowed(mac, (address,)),)])
        port = Port(f"p{n}", "net", macs=(mac,), addresses=(address,), allowed=allowed)
        self.port[port.name] = port
        self.asked += 1
        return port

    def plug(self, port: Port, host: str = "") -> Plug:
        """Start a container for a port."""
        host = host or self.rng.choice(sorted(self.host))
        self.count += 1
        made = Plug(host, f"veth{self.count}", port.name, port.macs[0].lower(), port.addresses[0])
        self.plugs[made.interface] = made
        return made

    def plugged(self, port: str) -> list[Plug]:
        """Return where a port is plugged in."""
        return [each for each in self.plugs.values() if each.name == port]

    # --- what its controller does ---------------------------------------------------------------

    def settle(self) -> None:
        """Let the controller do what it can."""
        if not self.frozen:
            self.translated, self.known = self.asked, dict(self.port)
        self.placement = {name: self.placement.get(name, Placement(name)) for name in self.known}
        for name, port in self.known.items():
            self.placement[name] = self._placed(port, self.placement[name])
        for host in self.host.values():
            record = self.chassis.get(host.chassis)
            if host.working is not Working.CONNECTED or self.rng.random() < self.lazy:
                continue
            if record is not None and self._writes(host):
                record = replace(record, encapsulations=(Encapsulation("geneve", host.offered),))
                self.chassis[host.chassis] = replace(record, installed=self.translated)

    def _writes(self, host: Host) -> bool:
        """Return whether the database takes what a host's instance writes."""
        others = [c for c in self.chassis.values() if c.name != host.chassis]
        return all(e.address != host.offered for c in others for e in c.encapsulations)

    def _placed(self, port: Port, old: Placement) -> Placement:
        there = {each.host for each in self.plugged(port.name)}
        names = {h.chassis for h in self.host.values() if h.name in there} & self.chassis.keys()
        wanted = [name for name in port.hosts or sorted(names) if name in names]
        able = [each for each in wanted if each == old.chassis or self._claims(each)]
        if not port.hosts and len(able) > 1:
            return replace(old, chassis=self.rng.choice(able), moves=30)  # two fight over it
        if not port.hosts and old.chassis in able:
            able = [old.chassis]
        chassis = able[0] if able else ""
        moves = old.moves // 2 + (chassis != old.chassis)
        return replace(old, chassis=chassis, is_up=bool(chassis), moves=moves)

    def _claims(self, chassis: str) -> bool:
        """Return whether a chassis can claim a port."""
        host = next(each for each in self.host.values() if each.chassis == chassis)
        return host.working is Working.CONNECTED and self._writes(host)

    # --- what is said ---------------------------------------------------------------------------

    def intent(self) -> Intent:
        """Return what the controller says."""
        return Intent(
            "ovn", self.now_ns, dict(self.away), dict(self.port), dict(self.placement),
            dict(self.chassis), Ladder(self.asked, self.translated, self.now_ns),
        )  # fmt: skip

    def state(self, host: Host) -> ControllerState:
        """Return what a host says."""
        placed = {p.port for p in self.placement.values() if p.chassis == host.chassis}
        ports = tuple(
            PluggedPort(
                name=each.name, interface=each.interface, is_installed=each.name in placed,
                mac=each.mac, addresses=(each.address, "fe80::1"),
            )
            for each in self.plugs.values()
            if each.host == host.name
        )  # fmt: skip
        return ControllerState(
            source="ovn", chassis=host.chassis, central=self.central, kinds=("geneve",),
            encapsulations=(host.offered,), addresses=("203.0.113.9", host.address),
            working=host.working, ports=ports,
        )  # fmt: skip

    def endpoints(self) -> list[Endpoint]:
        """Return what hosts registered."""
        return [
            Endpoint(
                EndpointId(f"c-{each.interface}", 0), "t", each.host, each.address, each.mac,
                self.host[each.host].address, "rnic0", "br-int", each.interface,
            )
            for each in self.plugs.values()
        ]  # fmt: skip

    def sight(self) -> Sight:
        """Return what is known now, with all that hosts have to say."""
        said = {h.name: HostSaid(self.state(h), self.now_ns) for h in self.host.values()}
        return Sight(self.intent(), said, self.endpoints(), self.now_ns)

    def look(self, *, late: Sequence[str] = ()) -> tuple[Difference, ...]:
        """Let five seconds pass, in which some hosts' words are lost; return what differs."""
        self.asked += self.rng.random() < self.asking
        self.settle()
        for host in self.host.values():
            if not host.is_silent and host.name not in late:
                self.said[host.name] = HostSaid(self.state(host), self.now_ns)
        told = self.differences.step(self.intent(), self.said, self.endpoints(), self.now_ns)
        self.now_ns += STEP_NS
        self.soon = tuple(each for each in told if not each.lasts)
        return tuple(each for each in told if each.lasts)

    def after(self, seconds: int) -> tuple[Difference, ...]:
        """Let time pass; return what differs then."""
        told: tuple[Difference, ...] = ()
        for _ in range(max(1, seconds * SECOND // STEP_NS)):
            told = self.look()
        return told


def named(told: Sequence[Difference]) -> list[tuple[str, str]]:
    """Return kinds and components of differences."""
    return [(each.finding.kind.value, str(each.finding.component)) for each in told]
