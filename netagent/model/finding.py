# SPDX-License-Identifier: Apache-2.0
"""What a host states about its own parts, beside its probes."""

from dataclasses import dataclass, field

from netagent.model.path import Component
from netagent.model.strenum import StrEnum


class FindingKind(StrEnum):
    """What was found."""

    RNIC_DOWN = "rnic-down"
    RNIC_FLAPPING = "rnic-flapping"
    RNIC_ERRORS = "rnic-errors"
    """The device counts bad bits on the cable, or reported an error of its own."""
    RNIC_RETRANSMITS = "rnic-retransmits"
    RNIC_RNR = "rnic-rnr"
    """Receivers were not ready: no buffer was posted where a message came in."""
    GID_CHANGED = "gid-changed"
    """The GID by which others know an endpoint left its port, or moved."""
    WRONG_MTU = "wrong-mtu"
    RAIL_ON_SPARE = "rail-on-spare"
    """A member of a rail's bond carries nothing, and the others do its work."""
    RATE_REDUCED = "rate-reduced"
    """A port runs slower than it did, or than the host's others."""
    NOT_RDMA = "not-rdma"
    """An endpoint sends by TCP what it, or the others of its container, send by RDMA."""
    PCIE_REDUCED = "pcie-reduced"
    """A card has fewer lanes, or slower ones, than it and its slot can have."""
    PCIE_ERRORS = "pcie-errors"
    """A card, or a port above it, counts errors that PCIe could not correct."""
    MISCONFIGURED = "misconfigured"
    """A setting of the host that costs tasks bandwidth or latency, and no probe."""
    CONTAINER_CRASHED = "container-crashed"
    ENDPOINT_DOWN = "endpoint-down"
    """The container lives, but one of its interfaces is down, gone or without its address."""
    FLOODED = "flooded"
    """An endpoint is asked for more replies than it may give: probes to it are lost for that."""
    VSWITCH_DOWN = "vswitch-down"
    TOPOLOGY_DIFFERS = "topology-differs"
    UNKNOWN_INPUT = "unknown-input"
    CONTROLLER_AWAY = "controller-away"
    """The analyzer cannot read what a controller says."""
    CONTROLLER_STALE = "controller-stale"
    """A host's instance of a controller installs nothing of what is new."""
    TRANSLATION_STALE = "translation-stale"
    """A controller does not make flows of what it is asked for."""
    PORT_UNBOUND = "port-unbound"
    """A logical port is at no host, though a container is plugged in for it."""
    PORT_CONTESTED = "port-contested"
    """Two hosts claim one logical port."""
    PORT_MISPLACED = "port-misplaced"
    """A logical port is plugged in at a host that the controller does not want it at."""
    TUNNEL_ADDRESS_WRONG = "tunnel-address-wrong"
    """A host offers tunnels at an address that it has not."""
    TUNNEL_ADDRESS_TAKEN = "tunnel-address-taken"
    """Two hosts offer tunnels at one address."""
    GHOST_CHASSIS = "ghost-chassis"
    """A controller's record of a host that is not there any more, or has another name now."""
    ADDRESS_REFUSED = "address-refused"
    """A container sends from an address that its logical port may not use."""

    @classmethod
    def _missing_(cls, value: object) -> "FindingKind | None":
        """Take what a newer agent found for something unknown, and lose nothing else it says."""
        return cls.UNKNOWN_INPUT if isinstance(value, str) else None


MASKED = frozenset({
    FindingKind.RAIL_ON_SPARE, FindingKind.RATE_REDUCED, FindingKind.NOT_RDMA,
    FindingKind.PCIE_REDUCED, FindingKind.PCIE_ERRORS,
})  # fmt: skip
"""What costs no probe: the network works, but a part is not what it should be."""

MAX_TEXT = 2_000
"""Most characters of a finding's text, and of each thing that was read. Chosen: to be read."""


FindingKey = tuple[FindingKind, Component, str, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """A state that holds at `wall_ns`; it stays true until a summary comes without it."""

    kind: FindingKind
    component: Component
    text: str
    """One sentence for a human, quoting what was read."""
    wall_ns: int
    evidence: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> FindingKey:
        """What makes it the same finding as one before: all but its words and its time.

        Of one component several may hold at once where evidence says which ``port`` is meant, and
        what ``about`` it.
        """
        read = self.evidence
        return self.kind, self.component, read.get("port", ""), read.get("about", "")
