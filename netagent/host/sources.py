# SPDX-License-Identifier: Apache-2.0
"""Where endpoints come from: whoever says which containers' interfaces this host has."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from netagent.host.facts import DeclaredFile, LinkView, Port, Uplink
from netagent.host.ports import ContainerPort, Unusable, container_ports, unusable
from netagent.model.ids import EndpointId


@dataclass(frozen=True, slots=True)
class Given:
    """What sources read endpoints from."""

    ports: tuple[Port, ...] = ()
    """Those of the integration bridge, tunnels and ports of others among them."""
    links: LinkView = field(default_factory=LinkView)
    uplinks: tuple[Uplink, ...] = ()
    """How rails leave the host, as far as that is known."""
    files: tuple[DeclaredFile, ...] = ()
    """In which endpoints are declared that have no port."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one or several sources say."""

    ports: tuple[ContainerPort, ...] = ()
    """One for each endpoint, sorted by id."""
    unusable: tuple[Unusable, ...] = ()
    passed: tuple[Unusable, ...] = ()
    """Ports that belong to others, as far as is said of them, and why they count as that."""


class EndpointSource(Protocol):
    """Says which containers' interfaces there are. No I/O, no clock."""

    def endpoints(self, given: Given) -> Found:
        """Return the endpoints that `given` says, and what cannot be used.

        What belongs to nobody that the source knows is passed over; what is missing of an endpoint
        is named, never guessed.
        """


class OwnPorts:
    """Ports whose external_ids say container, task and rail in netagent's own keys."""

    def endpoints(self, given: Given) -> Found:
        """Return the endpoints that netagent's own external_ids say."""
        return Found(*container_ports(each for port in given.ports for each in port.interfaces))


def found_by(sources: Sequence[EndpointSource], given: Given) -> Found:
    """Return what all `sources` say; of an endpoint that two name, the first source's holds."""
    found = [source.endpoints(given) for source in sources]
    odd = [why for each in found for why in each.unusable]
    passed = {why.port: why for each in found for why in each.passed}
    return _one_each((port for each in found for port in each.ports), odd, passed)


def _one_each(
    ports: Iterable[ContainerPort], odd: list[Unusable], passed: Mapping[str, Unusable]
) -> Found:
    kept: dict[EndpointId, ContainerPort] = {}
    for port in ports:
        first = kept.setdefault(port.id, port)
        if first is not port:
            what = "port" if first.bridged else "interface"
            odd.append(unusable(port, f"{port.id} is already on {what} {first.interface}"))
    return Found(tuple(kept[key] for key in sorted(kept)), tuple(odd), tuple(passed.values()))
