# SPDX-License-Identifier: Apache-2.0
"""The fabric as somebody declared it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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

    def name(self, address: str) -> str:
        """Return the name of the switch that answers from `address`, or else the address."""
        return self.names.get(address, address)

    def leaf(self, host: str, rnic: str) -> str | None:
        """Return the leaf that `rnic` of `host` is cabled to, or None where nobody said."""
        for uplink in self.uplinks:
            if uplink.host == host and uplink.rnic == rnic:
                return uplink.leaf
        return None
