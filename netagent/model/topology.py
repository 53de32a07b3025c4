# SPDX-License-Identifier: Apache-2.0
"""The fabric as somebody declared it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netagent.model.strenum import StrEnum


class Fabric(StrEnum):
    """How switches choose among ways of equal cost."""

    ECMP = "ecmp"
    """By a hash of the outer header: all packets of a flow take one way."""
    SPRAY = "spray"
    """For each packet anew: a flow has no way of its own, and a trace shows hops of several."""
    SOURCE_ROUTED = "source-routed"
    """As the sender says: all packets of a flow take one way until it says otherwise."""


@dataclass(frozen=True, slots=True, order=True)
class Uplink:
    """A host's RNIC and the leaf that it is cabled to."""

    host: str
    rnic: str
    """Netdev of the RNIC."""
    leaf: str
    """Name of the switch."""


@dataclass(frozen=True, slots=True)
class DeclaredTopology:
    """What the operator says is cabled; empty where nothing was declared."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Address a router answers TTL-exceeded with -> name of the switch; several may lead to one."""
    links: frozenset[tuple[str, str]] = frozenset()
    """Pairs of switch names, each pair sorted."""
    uplinks: tuple[Uplink, ...] = ()
    fabric: Fabric = Fabric.ECMP

    def name(self, address: str) -> str:
        """Return the name of the switch that answers from `address`, or else the address."""
        return self.names.get(address, address)

    def leaf(self, host: str, rnic: str) -> str | None:
        """Return the leaf that `rnic` of `host` is cabled to, or None where nobody said."""
        for uplink in self.uplinks:
            if uplink.host == host and uplink.rnic == rnic:
                return uplink.leaf
        return None
