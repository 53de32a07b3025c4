# SPDX-License-Identifier: Apache-2.0
"""What a question about controllers sees, and what it answers. One file each, one line in `ASKED`.

A host that is silent, or does not know how its instance is, is seen by no question.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from analyzer.intent.endpoints import Ends
from analyzer.intent.model import Chassis, Intent
from analyzer.intent.ovn import SOURCE as OVN
from analyzer.intent.owners import owners
from netagent.model.endpoint import Endpoint
from netagent.model.finding import Finding, FindingKind
from netagent.model.ids import EndpointId
from netagent.wire.controller import ControllerState, Working

FRESH_NS = 30_000_000_000
"""Nanoseconds after which what a host said counts no more. Chosen: some windows, in which a late
summary may come; less than any difference has to last, so that nobody is accused by old words."""
SHARED = 0.5
"""Share of the hosts from which a difference is nobody's own. Chosen, as for silent hosts: then it
is something that they share, or how the cluster is made."""
MOST_QUOTED = 8
"""Most names of a list that a finding quotes. Chosen: to be read."""


@dataclass(frozen=True, slots=True)
class HostSaid:
    """What a host said last."""

    state: ControllerState
    wall_ns: int
    """Unix nanoseconds."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A finding on a controller, and whom it may cost traffic."""

    finding: Finding
    hosts: tuple[str, ...] = ()
    """Hosts whose instances of the controller are concerned; the first one is at fault."""
    is_whole: bool = False
    """Whether all traffic of the first of `hosts` with others may be lost."""
    ports: tuple[str, ...] = ()
    """Logical ports whose traffic may be lost."""
    endpoints: tuple[EndpointId, ...] = ()
    """Those that `ports` are, as far as anybody can tell."""
    lasts: bool = True
    """Whether it stood for as long as its question says; one that did not yet says nothing by
    itself, but why those lose all that it concerns."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What differs at one instant; it counts once it has lasted."""

    kind: FindingKind
    part: str
    """As `netagent.model.path.controller` has it."""
    text: str
    after_ns: int
    """Nanoseconds for which it has to last."""
    evidence: Mapping[str, str]
    hosts: tuple[str, ...] = ()
    """As `Difference` has these three."""
    is_whole: bool = False
    ports: tuple[str, ...] = ()
    interface: tuple[str, str] | None = None
    """The interface that is not as it should be, and its host first."""
    mark: str = ""
    """What has to stay the same meanwhile: where it moves, something works."""
    some: frozenset[str] = frozenset()
    """One of these has to be among them all the while, where there are any: else each is only late,
    one after the other."""

    @property
    def key(self) -> tuple[FindingKind, str, str]:
        """What makes it the same mismatch as one before."""
        return self.kind, self.part, self.mark


@dataclass(slots=True)
class Sight:
    """All that is known at an instant."""

    intent: Intent
    states: Mapping[str, HostSaid]
    """Newest of each host, the silent ones' too."""
    endpoints: Iterable[Endpoint]
    now_ns: int
    heard: dict[str, ControllerState] = field(init=False)
    """Hosts that speak, know how their instance is, and say no other's name."""
    ends: Ends = field(init=False)
    owners: dict[str, str] = field(init=False)
    """Chassis -> its host, the silent ones' too, as `analyzer.intent.owners` has it."""
    hosts: set[str] = field(init=False)
    """Names of all hosts that were ever heard."""
    knows_installed: bool = field(init=False)
    """Whether any port is said to have its flows. Only OVN says so, from 21.03 on (its NEWS)."""

    def __post_init__(self) -> None:
        endpoints = tuple(self.endpoints)
        self.hosts = {*self.states, *(end.host for end in endpoints)}
        claims = {
            host: said.state.chassis
            for host, said in self.states.items()
            if said.state.source == self.intent.source
        }
        self.owners = owners(claims, self.intent.chassis, self.hosts)
        self.heard = {
            host: self.states[host].state
            for host, chassis in sorted(claims.items())
            if self.states[host].wall_ns > self.now_ns - FRESH_NS
            and self.states[host].state.working is not Working.UNKNOWN
            and (not chassis or self.owners.get(chassis) == host)
        }
        self.ends = Ends(self.intent.ports, self.heard, endpoints)
        every = (port for state in self.heard.values() for port in state.ports)
        is_known = any(port.is_installed for port in every)
        self.knows_installed = is_known and self.intent.source == OVN

    @property
    def is_blind(self) -> bool:
        """Whether what the controller says may be old."""
        return bool(self.intent.away)

    def connected(self, host: str) -> bool:
        """Return whether a host's instance works, as the host says."""
        return host in self.heard and self.heard[host].working is Working.CONNECTED

    def chassis_of(self, host: str) -> Chassis | None:
        """Return a host's record at the controller."""
        return self.intent.chassis.get(self.heard[host].chassis)

    def names_of(self, host: str) -> set[str]:
        """Return all names that a controller may have for a host."""
        chassis = self.chassis_of(host)
        return {host, self.heard[host].chassis, chassis.hostname if chassis else ""} - {""}

    def unplaced(self, hosts: Iterable[str]) -> tuple[str, ...]:
        """Return ports that are plugged in at some hosts, and that the controller has nowhere."""
        placements = self.intent.placements
        return tuple(
            each.name
            for host in hosts
            for each in self.heard[host].ports
            if each.name in self.intent.ports
            and not (each.name in placements and placements[each.name].chassis)
        )


def quoted(names: Iterable[str]) -> str:
    """Return names as a finding quotes them."""
    known = sorted(names)
    more = f" and {len(known) - MOST_QUOTED} more" if len(known) > MOST_QUOTED else ""
    return ", ".join(known[:MOST_QUOTED]) + more
