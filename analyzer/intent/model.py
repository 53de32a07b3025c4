# SPDX-License-Identifier: Apache-2.0
"""The contract of controllers: what should be, as values. Every controller says it in these words.

What a controller does not know is empty, or None where nothing and zero differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Allowed:
    """Source addresses that a port may send from (port security)."""

    mac: str
    addresses: tuple[str, ...] = ()
    """Empty: any, with this hardware address."""


@dataclass(frozen=True, slots=True)
class Port:
    """A logical port: one interface of a container, as the controller wants it."""

    name: str
    """The controller's name of it (iface-id)."""
    network: str = ""
    pod: str = ""
    """``namespace/name``, where it is a pod's."""
    container: str = ""
    """As endpoints are known here; "" where the controller does not say."""
    macs: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Chassis that may have it, in order of preference; empty: any."""
    is_enabled: bool = True
    allowed: tuple[Allowed, ...] = ()
    """Empty: no port security."""
    owner: str = ""
    """The object behind it, to look it up by: its table and identity in the controller."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a port was put."""

    port: str
    chassis: str = ""
    """Empty: nowhere."""
    is_up: bool = False
    encapsulation: str = ""
    """Tunnel address that it asks for; empty: any of its chassis."""
    since_ns: int = 0
    """Unix nanoseconds since when it is there, as far as was watched."""
    moves: int = 0
    """How often it changed its chassis in the last `MOVES_NS`."""


MOVES_NS = 60 * 10**9
"""Nanoseconds for which a move of a port counts. Chosen: OVN lets two that fight over a port claim
it twice a second and more; a migration moves it once or twice."""


@dataclass(frozen=True, slots=True)
class Encapsulation:
    """A tunnel's end."""

    kind: str
    """``geneve`` or ``vxlan``."""
    address: str


@dataclass(frozen=True, slots=True)
class Chassis:
    """A host as its controller knows it."""

    name: str
    """The controller's name (system-id)."""
    hostname: str = ""
    encapsulations: tuple[Encapsulation, ...] = ()
    is_registered: bool = True
    """Whether its own instance wrote of itself, beside what it can be listed by."""
    installed: int | None = None
    """Generation that it has installed; None where it never said."""
    installed_ns: int = 0
    """Unix nanoseconds at which it said so."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """How far what was asked has come; `Chassis.installed` is its last step."""

    asked: int | None = None
    translated: int | None = None
    asked_ns: int = 0
    """Unix nanoseconds since when that is asked, as far as was watched."""


@dataclass(frozen=True, slots=True)
class Intent:
    """All that one controller says at one instant."""

    source: str
    """Which kind of controller, ``ovn``."""
    wall_ns: int
    """Unix nanoseconds at which it was read."""
    away: Mapping[str, str] = field(default_factory=dict)
    """Database that cannot be read now -> why; what is said of it is what was read last."""
    ports: Mapping[str, Port] = field(default_factory=dict)
    placements: Mapping[str, Placement] = field(default_factory=dict)
    """By port."""
    chassis: Mapping[str, Chassis] = field(default_factory=dict)
    ladder: Ladder = Ladder()
    zone: str = ""
    """Host whose own databases say this: it is of that host's part alone. Empty: of all hosts."""
    believed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Chassis of other zones, by name -> tunnel addresses that this one sends to."""
    hostnames: Mapping[str, str] = field(default_factory=dict)
    """Of those chassis, what their hosts are called."""
