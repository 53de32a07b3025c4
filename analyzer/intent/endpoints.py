# SPDX-License-Identifier: Apache-2.0
"""Which endpoints a logical port is: controllers name ports, probes containers and rails. Pure.

An interface says it for certain, then a container's name. A hardware address may repeat between
networks, so it tells nothing where two ports, or two endpoints, have it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from analyzer.intent.model import Port
from netagent.model.endpoint import Endpoint
from netagent.wire.controller import ControllerState, PluggedPort

Plugged = tuple[str, PluggedPort]
"""A host, and a port that is plugged in there."""


class Ends:
    """The endpoints of all logical ports at an instant."""

    def __init__(
        self,
        ports: Mapping[str, Port],
        states: Mapping[str, ControllerState],
        endpoints: Iterable[Endpoint],
    ) -> None:
        """Take `states` by host."""
        self._ports = ports
        self._by_interface: dict[tuple[str, str], list[Endpoint]] = defaultdict(list)
        self._by_container: dict[str, list[Endpoint]] = defaultdict(list)
        self._by_address: dict[str, list[Endpoint]] = defaultdict(list)
        self._plugged: dict[str, list[Plugged]] = defaultdict(list)
        self._named: dict[tuple[str, str], str] = {}
        """(host, interface) -> logical port that is plugged in there."""
        self._strangers: dict[str, list[Plugged]] = defaultdict(list)
        """Hardware address -> where it is plugged in for a port that has not that address."""
        self._claims = Counter(mac for port in ports.values() for mac in _hardware(port))
        self._claims.update(a for port in ports.values() for a in port.addresses)
        for host, state in states.items():
            for each in state.ports:
                self._plug(host, each)
        for end in endpoints:
            self._by_interface[end.host, end.port].append(end)
            self._by_container[end.id.container].append(end)
            for key in filter(None, (end.mac.lower(), end.address)):
                self._by_address[key].append(end)

    def _plug(self, host: str, each: PluggedPort) -> None:
        self._plugged[each.name].append((host, each))
        self._named[host, each.interface] = each.name
        if each.mac and not self._is_of(each.name, each.mac):
            self._strangers[each.mac.lower()].append((host, each))

    def plugged(self, port: str) -> list[Plugged]:
        """Return where a port is plugged in by its name."""
        return self._plugged.get(port, [])

    def of(self, port: str) -> list[Endpoint]:
        """Return the endpoints of a logical port; none where nobody can tell."""
        at = ((host, each.interface) for host, each in self.plugged(port))
        if by_interface := [end for place in at for end in self._by_interface.get(place, ())]:
            return by_interface
        known = self._ports.get(port)
        if known is None:
            return []
        return self._in(known.container, known) or self._addressed(known) or self._of_pod(known)

    def elsewhere(self, port: Port) -> Plugged | None:
        """Return where a container is plugged in for a port, though not by its name.

        The interface names another port or none; the container or its hardware address tells.
        """
        for mac in _hardware(port) if self._is_alone(port) else ():
            if len(found := self._strangers.get(mac, [])) == 1:
                return found[0]
        ends = self._in(port.container, port) or (self._addressed(port) if port.macs else [])
        for end in ends if port.macs or len(ends) == 1 else ():  # else it may be any of them
            named = self._named.get((end.host, end.port), "")
            if end.bridge and not (named and self._is_of(named, end.mac)):
                return end.host, PluggedPort(name=named, interface=end.port, mac=end.mac)
        return None

    def _is_of(self, name: str, mac: str) -> bool:
        """Return whether an interface with this hardware address may be a port's own."""
        port = self._ports.get(name)
        return port is not None and (not port.macs or mac.lower() in _hardware(port))

    def _is_alone(self, port: Port) -> bool:
        return all(self._claims[mac] == 1 for mac in _hardware(port))

    def _in(self, container: str, port: Port) -> list[Endpoint]:
        """Return a container's endpoints that may be a port's."""
        macs = _hardware(port)
        inside = self._by_container.get(container, ()) if container else ()
        return [end for end in inside if not macs or end.mac.lower() in macs]

    def _addressed(self, port: Port) -> list[Endpoint]:
        """Return the endpoint of a port's hardware address, or, where it has none, its address."""
        for key in _hardware(port) or port.addresses:
            found = self._by_address.get(key, ())
            if len(found) == 1 and self._claims[key] == 1:
                return list(found)
        return []

    def _of_pod(self, port: Port) -> list[Endpoint]:
        return self._in(port.pod, port) or self._in(port.pod.replace("/", "."), port)


def _hardware(port: Port) -> list[str]:
    return [mac.lower() for mac in port.macs]
