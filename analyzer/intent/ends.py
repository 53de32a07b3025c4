# SPDX-License-Identifier: Apache-2.0
"""Which endpoint somebody means who names it in words of its own: a pod, a port, an address.

Theory of operation. The roster knows endpoints; a controller knows logical ports, and pods by
them. An endpoint has the logical port that its host has plugged into its interface, where the host
says so; else the one that the controller describes with its container, or its hardware address.
One name may stand for several endpoints: a pod has a port on each rail, and addresses repeat
between tenants. Then nobody guesses.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta, Struct

from analyzer.intent.model import Intent, Port
from netagent.model.address import canonical
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.wire.controller import ControllerState

Plugged = Mapping[str, Mapping[str, str]]
"""Host -> interface -> logical port (iface-id) that is plugged into it."""

MOST_LISTED = 8
"""Most endpoints or names that an answer lists. Chosen: as many as rails of a large server."""


Name = Annotated[str, Meta(max_length=512)]
"""What somebody calls something. Chosen: names of pods and namespaces are 316 together at most."""


class End(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One end of a pair, named in one of four ways."""

    endpoint: Name = ""
    """``CONTAINER/railN``, as netagent names it."""
    pod: Name = ""
    """``namespace/name``."""
    port: Name = ""
    """The controller's name of the logical port (iface-id)."""
    address: Name = ""
    """IP address in the overlay."""
    task: Name = ""
    """Only an endpoint of this task; addresses repeat between tenants."""
    rail: int | None = None
    """Only an endpoint on this rail; a pod has one on each."""


_Said = tuple[str, Port]
"""A zone, empty for none, and a port that it describes."""
_WAYS = ("endpoint", "pod", "port", "address")


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why an end is not one endpoint."""

    text: str
    remedy: str
    is_unknown: bool = False
    """Whether nothing is known by that name; else it is ambiguous, or makes no sense."""


class Directory:
    """Endpoints by every name that they have."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        intents: Sequence[Intent] = (),
        plugged: Plugged = MappingProxyType({}),
    ) -> None:
        self._plugged = plugged
        self._ports: dict[str, list[_Said]] = defaultdict(list)
        """All that any controller says of a logical port."""
        self._hints: dict[str, list[_Said]] = defaultdict(list)
        """Logical ports by container, or by hardware address where that is not said."""
        for said in ((intent.zone, port) for intent in intents for port in intent.ports.values()):
            _, port = said
            self._ports[port.name].append(said)
            for hint in [port.container] if port.container else map(str.lower, port.macs):
                self._hints[hint].append(said)
        self._by: dict[str, dict[str, dict[EndpointId, Endpoint]]] = {
            way: defaultdict(dict) for way in _WAYS
        }
        for endpoint in endpoints:
            for way, name in self._names(endpoint):
                self._by[way][name][endpoint.id] = endpoint

    def resolve(self, end: End) -> EndpointId | Doubt:
        """Return the one endpoint that is meant, or why there is none."""
        given = [(way, str(getattr(end, way))) for way in _WAYS if getattr(end, way)]
        if len(given) != 1:
            said = " and ".join(way for way, _ in given) or "nothing"
            return Doubt(
                f"an end is named by one of {', '.join(_WAYS)}, not by {said}",
                "give one of them; task and rail narrow it down",
            )
        [(way, name)] = given
        key = _key(way, name)
        if key is None:
            return Doubt(f"{name!r} is no {_SAID[way]}", f"write {_FORM[way]}")
        named = self._by[way].get(key, {}).values()
        found = [each for each in named if _fits(each, end)]
        if len(found) == 1:
            return found[0].id
        what = f"{_SAID[way]} {name}{_narrowed(end)}"
        if found:
            text = f"{what} is {len(found)} endpoints: {_listed(found)}"
            return Doubt(text, "say which of them: add rail or task, or name the endpoint")
        return Doubt(f"no {what}: {self._nearby(way, key, list(named))}", _ELSEWHERE, True)

    def port_of(self, endpoint: Endpoint) -> Port | None:
        """Return what a controller says of the endpoint's logical port; None unless it is one."""
        ports = [port for name in self._port_names(endpoint) for port in self._of(name, endpoint)]
        return ports[0] if len(ports) == 1 else None

    def _of(self, name: str, endpoint: Endpoint) -> list[Port]:
        """Return what may be said of a port of this endpoint: a zone speaks for its own host."""
        return _heard(self._ports.get(name, ()), endpoint)

    def _names(self, endpoint: Endpoint) -> Iterator[tuple[str, str]]:
        yield "endpoint", str(endpoint.id)
        yield "address", endpoint.address
        for name in self._port_names(endpoint):
            yield "port", name
            for port in self._of(name, endpoint):
                if port.pod:
                    yield "pod", port.pod
                for address in port.addresses:
                    yield "address", canonical(address) or address

    def _port_names(self, endpoint: Endpoint) -> list[str]:
        here = self._plugged.get(endpoint.host, {}).get(endpoint.port)
        if here is not None:
            return [here]
        hinted = (
            port
            for hint in (endpoint.id.container, endpoint.mac.lower())
            for port in _heard(self._hints.get(hint, ()), endpoint)
        )
        return sorted({port.name for port in hinted if _agrees(port, endpoint)})

    def _nearby(self, way: str, key: str, elsewhere: Sequence[Endpoint]) -> str:
        """Return what is known that may be meant."""
        if elsewhere:
            return f"it is {_listed(elsewhere)}"
        if way in {"port", "pod"} and (away := self._unplugged(way, key)):
            return away
        near = _near(key, self._by[way])
        if near:
            return f"known are {', '.join(near)}"
        return f"no {_SAID[way]} is known like it" if self._by[way] else f"no {_SAID[way]} is known"

    def _unplugged(self, way: str, key: str) -> str:
        """Return what the controller says of a port that no endpoint has; empty for nothing."""
        for ports in self._ports.values():
            for _, port in ports:
                if key == (port.name if way == "port" else port.pod):
                    return (
                        f"its controller knows port {port.name}, and no host has an endpoint of it"
                    )
        return ""


def _heard(said: Iterable[_Said], endpoint: Endpoint) -> list[Port]:
    return [port for zone, port in said if zone in {"", endpoint.host}]


_SAID = {"endpoint": "endpoint", "pod": "pod", "port": "logical port", "address": "address"}
_FORM = {
    "endpoint": "CONTAINER/railN, or name a pod, port or address",
    "pod": "NAMESPACE/NAME",
    "port": "the logical port's name",
    "address": "an IPv4 or IPv6 address",
}
_ELSEWHERE = (
    "`netagent-analyzer endpoints` lists endpoints; pods and ports are known by controllers"
)


def plugged_of(states: Mapping[str, ControllerState]) -> Plugged:
    """Return what hosts say that they have plugged in, by host."""
    return {
        host: {port.interface: port.name for port in state.ports} for host, state in states.items()
    }


def _agrees(port: Port, endpoint: Endpoint) -> bool:
    """Whether addresses that the controller says of a port are the endpoint's."""
    macs = {each.lower() for each in port.macs}
    addresses = {canonical(each) or each for each in port.addresses}
    return (not macs or endpoint.mac.lower() in macs) and (
        not addresses or endpoint.address in addresses
    )


def _key(way: str, name: str) -> str | None:
    """Return the name as it is looked up; None where it cannot be one."""
    match way:
        case "endpoint":
            try:
                return str(EndpointId.parse(name))
            except ValueError:
                return None
        case "address":
            return canonical(name)
        case "pod":
            namespace, _, pod = name.partition("/")
            return name if namespace and pod and "/" not in pod else None
    return name


def _fits(endpoint: Endpoint, end: End) -> bool:
    return end.task in {"", endpoint.task} and end.rail in {None, endpoint.id.rail}


def _narrowed(end: End) -> str:
    task = f" of task {end.task}" if end.task else ""
    return task + (f" on rail {end.rail}" if end.rail is not None else "")


def _listed(endpoints: Sequence[Endpoint]) -> str:
    ordered = sorted(endpoints, key=lambda each: each.id)
    told = [f"{e.id} (task {e.task or '-'}, host {e.host})" for e in ordered[:MOST_LISTED]]
    more = len(ordered) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")


def _near(name: str, names: Iterable[str]) -> list[str]:
    """Return names like one: with its last part, within or around it, or that begin as it does."""
    last = name.rpartition("/")[2]

    def likeness(other: str) -> tuple[int, int]:
        is_part = other.rpartition("/")[2] == last or name in other or other in name
        return int(is_part), _common(name, other)

    scored = ((likeness(other), other) for other in names)
    like = ((-part, -common, other) for (part, common), other in scored if part or common)
    return [other for *_, other in nsmallest(MOST_LISTED // 2, like)]


def _common(one: str, other: str) -> int:
    """Return how many characters both begin with."""
    differ = (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))
