# SPDX-License-Identifier: Apache-2.0
"""What a host says of the controller that drives its virtual switch, and of what it has itself.

The analyzer compares it with what the controller says should be.
"""

from typing import Annotated

from msgspec import Meta, Struct

from netagent.model.strenum import StrEnum

MOST_PORTS = 4096
"""Most ports of a host. Chosen: as many as endpoints that it may register."""
MOST_ADDRESSES = 64
"""Most addresses of a list. Chosen: four for each RNIC of the largest servers."""
MOST_TEXT = 512
"""Most characters of a text in it. Chosen: the names of a pod and its namespace are 253 and 63 at
most, as RFC 1123 has them."""
MOST_GENERATION = (1 << 63) - 1
"""Largest generation. OVSDB's integers have 64 bits, with a sign (RFC 7047, section 3.1)."""

Texts = Annotated[tuple[str, ...], Meta(max_length=4 * MOST_ADDRESSES)]
"""A list that is longer is no message; one of more than agents make costs its summary nothing."""


class Working(StrEnum):
    """How the host's own instance of the controller is."""

    CONNECTED = "connected"
    CUT_OFF = "cut-off"
    """It runs, and does not reach its database."""
    SILENT = "silent"
    """Its process is there and does not answer."""
    STOPPED = "stopped"
    """It has no process."""
    UNKNOWN = "unknown"
    """Nobody could look."""

    @classmethod
    def _missing_(cls, value: object) -> "Working | None":
        return cls.UNKNOWN if isinstance(value, str) else None


class PluggedPort(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An interface that a logical port is plugged into."""

    name: str
    """The logical port (external_ids:iface-id)."""
    interface: str
    is_installed: bool = False
    """Whether the controller says that its flows are there (external_ids:ovn-installed)."""
    mac: str = ""
    """What its interface has inside the container, where that can be read."""
    addresses: Texts = ()


class ControllerState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host's part of a controller."""

    source: str
    """Which kind of controller, ``ovn``."""
    chassis: str = ""
    """The host's name there (external_ids:system-id)."""
    central: str = ""
    """Where its database is said to be (external_ids:ovn-remote)."""
    kinds: Texts = ()
    """Kinds of tunnels that it offers (external_ids:ovn-encap-type)."""
    encapsulations: Texts = ()
    """Tunnel addresses that it offers (external_ids:ovn-encap-ip)."""
    addresses: Texts = ()
    """Addresses that the host has outside of containers; none of loopback, none link-local."""
    working: Working = Working.UNKNOWN
    generation: int | None = None
    """What it installed last, as the integration bridge says (external_ids:ovn-nb-cfg)."""
    ports: Annotated[tuple[PluggedPort, ...], Meta(max_length=4 * MOST_PORTS)] = ()
    databases: bool = False
    """Whether the host has the controller's databases, and its agent reads them (`wire.zone`)."""
