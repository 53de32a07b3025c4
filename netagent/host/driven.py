# SPDX-License-Identifier: Apache-2.0
"""A host's part of the controller that drives its virtual switch: what that writes, and what is so.

It is what the analyzer compares with what the controller wants, so nothing is guessed or cut: a
value that is no name or too long is left out, and told. No I/O, no clock.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from netagent.host.facts import Bridge, Link, VswitchView
from netagent.host.ports import is_tunnel
from netagent.model.address import canonical
from netagent.model.vswitch import GENERATION, drives
from netagent.wire.controller import (
    MOST_ADDRESSES,
    MOST_GENERATION,
    MOST_PORTS,
    MOST_TEXT,
    ControllerState,
    PluggedPort,
    Working,
)

MOST_INSIDE = 16
"""Most addresses of an interface in a container that are told, the first as text. Chosen: a pod has
two, and what a tenant adds must not fill its host's messages."""
MOST_ODD = 8
"""Most things that are told to be odd. Chosen: to be read."""
_SHOWN = 80
"""Characters of an odd value that are told. Chosen: to be read."""


@dataclass(frozen=True, slots=True)
class Driven:
    """What is told of a virtual switch that a controller drives."""

    state: ControllerState
    odd: tuple[str, ...] = ()
    """What was left out of it, and why."""


def is_driven(view: VswitchView, bridge: str) -> bool:
    """Return whether a controller drives `bridge`, or is set to."""
    found = view.bridge(bridge)
    if found and drives(found.external_ids):
        return True
    ids = view.external_ids
    is_ours = _set(ids, "ovn-bridge") in {"", bridge}
    return bool(bridge and is_ours and _set(ids, "ovn-remote"))


def driven(
    view: VswitchView,
    bridge: str,
    *,
    host: Mapping[str, Link],
    inside: Mapping[str, Link],
    working: Working = Working.UNKNOWN,
    databases: bool = False,
) -> Driven | None:
    """Return what is told of `bridge`; None where no controller drives it.

    `host` are the devices outside of containers by name, `inside` those within by the name of the
    interface that leads there. `databases` says whether the controller's are on this host.
    """
    if not is_driven(view, bridge):
        return None
    ids, odd = view.external_ids, _Odd()
    offered = tuple(_offered(_listed(ids, "ovn-encap-ip", odd)))
    row = view.bridge(bridge) or Bridge(bridge)
    state = ControllerState(
        source="ovn",
        chassis=odd.text("system-id", ids.get("system-id", "")),
        central=odd.text("ovn-remote", _set(ids, "ovn-remote")),
        kinds=tuple(_listed(ids, "ovn-encap-type", odd)),
        encapsulations=offered,
        # Some hosts have an address for each service of a cluster: those that count come first.
        addresses=_addresses(host.values(), first=offered)[:MOST_ADDRESSES],
        working=working,
        generation=_generation(row.external_ids.get(GENERATION), odd),
        ports=_ports(row, inside, odd),
        databases=databases,
    )
    return Driven(state, tuple(odd.told))


def driven_by(
    name: str,
    view: VswitchView,
    bridge: str,
    *,
    chassis: str,
    host: Mapping[str, Link],
    inside: Mapping[str, Link],
) -> Driven | None:
    """Return what is told of `bridge` where controller `name` drives it by OpenFlow.

    None where there is no such bridge. The host is called `chassis` there; else as `driven` has it.
    """
    row = view.bridge(bridge)
    if row is None:
        return None
    odd = _Odd()
    tunnels = [each for of in view.bridges for each in of.interfaces() if is_tunnel(each)]
    local = (canonical(each.options.get("local_ip", "")) for each in tunnels)
    offered = tuple(dict.fromkeys(filter(None, local)))[:MOST_ADDRESSES]
    state = ControllerState(
        source=name,
        chassis=chassis,
        kinds=tuple(sorted({each.type for each in tunnels})),
        encapsulations=offered,
        addresses=_addresses(host.values(), first=offered)[:MOST_ADDRESSES],
        working=_connected(row) if view.connected else Working.UNKNOWN,
        ports=_ports(row, inside, odd),
    )
    return Driven(state, tuple(odd.told))


def _connected(bridge: Bridge) -> Working:
    """Return whether a controller of the bridge is connected; where it has none, nobody knows."""
    if not bridge.connected:
        return Working.UNKNOWN
    return Working.CONNECTED if any(bridge.connected) else Working.CUT_OFF


class _Odd:
    """Notes what is left out."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        if len(self.told) < MOST_ODD:
            self.told.append(text)

    def text(self, what: str, value: str) -> str:
        """Return a text that can be told; else "", and note it."""
        if len(value) <= MOST_TEXT and value.isprintable():
            return value
        self.note(f"cannot use {what} {value[:_SHOWN]!r}")
        return ""


def _set(ids: Mapping[str, str], key: str) -> str:
    """Return what `key` is set to, by preference for this chassis (ovn-controller(8))."""
    return ids.get(f"{key}-{ids.get('system-id', '')}") or ids.get(key, "")


def _listed(ids: Mapping[str, str], key: str, odd: _Odd) -> list[str]:
    """Return what a list separated by commas holds, each once."""
    words = dict.fromkeys(word.strip() for word in _set(ids, key).split(","))
    found = [word for word in words if odd.text(key, word)]
    if len(found) > MOST_ADDRESSES:
        odd.note(f"{key} has {len(found)}: {MOST_ADDRESSES} are told")
    return found[:MOST_ADDRESSES]


def _offered(words: Iterable[str]) -> Iterable[str]:
    """Return tunnel addresses; what is none is told as it is, since others go by it."""
    return dict.fromkeys(canonical(word) or word for word in words)


def _addresses(links: Iterable[Link], *, first: tuple[str, ...]) -> tuple[str, ...]:
    found = {address for link in links for address in _wide(link.addresses)}
    return tuple(sorted(found, key=lambda each: (each not in first, each)))


def _wide(addresses: Iterable[str]) -> Iterator[str]:
    """Yield the addresses that hold beyond this host and beyond a link."""
    for text in filter(None, map(canonical, addresses)):
        address = ipaddress.ip_address(text)
        if not (address.is_loopback or address.is_link_local):
            yield text


def _generation(text: str | None, odd: _Odd) -> int | None:
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) < _SHOWN and int(text) <= MOST_GENERATION:
        return int(text)
    odd.note(f"cannot use {GENERATION} {text[:_SHOWN]!r}")
    return None


def _ports(bridge: Bridge, inside: Mapping[str, Link], odd: _Odd) -> tuple[PluggedPort, ...]:
    ports: dict[str, PluggedPort] = {}
    for each in bridge.interfaces():
        name = each.external_ids.get("iface-id", "")
        if not name or not odd.text(f"iface-id of {each.name[:_SHOWN]!r}:", name):
            continue
        if not odd.text("interface", each.name):
            continue
        link = inside.get(each.name)
        ports[each.name] = PluggedPort(
            name=name,
            interface=each.name,
            is_installed=each.external_ids.get("ovn-installed") == "true",
            mac=link.mac.lower() if link else "",
            addresses=_addresses([link] if link else [], first=())[:MOST_INSIDE],
        )
    if len(ports) > MOST_PORTS:
        odd.note(f"{len(ports)} ports: {MOST_PORTS} are told")
    return tuple(ports[key] for key in sorted(ports)[:MOST_PORTS])
