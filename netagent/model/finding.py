# SPDX-License-Identifier: Apache-2.0
"""What a host states about its own parts, beside its probes."""

from dataclasses import dataclass, field
from enum import StrEnum

from netagent.model.path import Component


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
    CONTAINER_CRASHED = "container-crashed"
    ENDPOINT_DOWN = "endpoint-down"
    """The container lives, but one of its interfaces is down, gone or without its address."""
    VSWITCH_DOWN = "vswitch-down"
    TOPOLOGY_DIFFERS = "topology-differs"
    UNKNOWN_INPUT = "unknown-input"


@dataclass(frozen=True, slots=True)
class Finding:
    """A state that holds at `wall_ns`; it stays true until a summary comes without it."""

    kind: FindingKind
    component: Component
    text: str
    """One sentence for a human, quoting what was read."""
    wall_ns: int
    evidence: dict[str, str] = field(default_factory=dict)
