# SPDX-License-Identifier: Apache-2.0
"""What of a host's virtual switch is no endpoint, and why: so that nobody takes it for probed."""

from typing import Annotated

from msgspec import Meta, Struct

from netagent.model.strenum import StrEnum

MOST_PORTS = 64
"""Most ports that a host names; of more it says how many. Chosen: several times its endpoints."""
MOST_TEXT = 256
"""Most characters of a text in it. Chosen: a sentence, or a name of a pod and its namespace."""
MOST_COUNT = 1 << 20
"""Largest count. Chosen: far more ports than a virtual switch has."""


class Why(StrEnum):
    """Why a port is no endpoint that can be probed."""

    NO_TASK = "no-task"
    """Nobody says whose it is."""
    NO_RAIL = "no-rail"
    """Nothing says by which rail it leaves."""
    NO_CONTAINER = "no-container"
    """No namespace of a container is found behind it, or it cannot be read."""
    NO_ADDRESS = "no-address"
    """Its interface has not the address that it should, or not one alone."""
    NO_UPLINK = "no-uplink"
    """No tunnel of its rail is known."""
    DOWN = "down"
    """Its interface was never up so far."""
    ODD = "odd"
    """What is said of it is incomplete, or makes no sense."""
    MUTE = "mute"
    """It cannot answer probes: no socket or queue pair could be opened."""
    OTHER_BRIDGE = "other-bridge"
    """It is on another bridge than the integration bridge."""
    UNKNOWN = "unknown"
    """What a later agent says."""

    @classmethod
    def _missing_(cls, value: object) -> "Why | None":
        return cls.UNKNOWN if isinstance(value, str) else None


class UnprobedPort(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A port, or an interface without one, that is no endpoint."""

    port: str
    """Its name; of an interface without a port with what it is."""
    why: Why
    text: str = ""
    """One sentence for a human, quoting what was read."""
    bridge: str = ""
    """"" where no virtual switch carries it."""
    name: str = ""
    """The logical port (external_ids:iface-id)."""
    container: str = ""
    task: str = ""
    """As the host reads it; "" where it cannot tell."""


class Unprobed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a host says of them. Tunnels, patch and internal ports, and RNICs are left out."""

    ports: Annotated[tuple[UnprobedPort, ...], Meta(max_length=4 * MOST_PORTS)] = ()
    """Those of a known task first, by name."""
    count: int = 0
    """How many there are, those included that are not named."""
