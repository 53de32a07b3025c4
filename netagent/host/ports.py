# SPDX-License-Identifier: Apache-2.0
"""Which ports of the integration bridge are containers', and what their external_ids say."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from netagent.model.address import canonical, is_six
from netagent.model.ids import EndpointId
from netagent.model.vswitch import Interface
from netagent.wire.unprobed import Why

TUNNELS = frozenset({"vxlan", "geneve", "gre", "ip6gre", "stt", "gtpu", "erspan", "srv6"})
"""Interface types that are tunnels."""

OF_THE_HOST = frozenset({"internal", "patch"})
"""Interface types by which a host itself, or another bridge, is connected: gateways, DHCP servers,
management ports. Controllers give some of them an iface-id."""

_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}")
_MAX_TASK = 128
"""Characters of a task's name. Chosen: as for a container's."""
_MAX_RAIL = 255
"""Largest rail number accepted. Chosen: far more RNICs than a host has, so a larger number is a
mistake."""
_OVERLAY_MTU = 1450
"""Bytes of the MTU to assume of a container's interface: 1500 less VXLAN's 50 (RFC 7348: outer
IPv4, UDP, VXLAN, inner Ethernet). An outer IPv6 header takes the difference more."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """Something about `port` is missing or odd."""

    port: str
    text: str
    what: str = "port"
    """What `port` names: a ``port`` of the virtual switch; else an ``interface`` or a ``file``,
    with which no virtual switch has anything to do."""
    about: str = ""
    """Which of several things of it is meant, where more than one may be odd at once."""
    why: Why = Why.ODD
    """Why it is no endpoint."""
    container: str = ""
    task: str = ""
    """Whose it is, as far as that is said."""


@dataclass(frozen=True, slots=True)
class ContainerPort:
    """A container's port, as the orchestrator configured it.

    Where nobody says the address or the hardware address, they are "", and are those that the
    interface has. Without `bridged` no virtual switch carries it, and `interface` is its name in
    the container.
    """

    id: EndpointId
    task: str
    interface: str
    address: str
    """Overlay address, IPv4 or IPv6."""
    mac: str
    netns: str = ""
    """Path of the container's network namespace, where that is said."""
    netdev: str = ""
    """Name of the interface in there, where that is said."""
    bridged: bool = True
    """Whether it is a port of the virtual switch."""
    error: str = ""
    """Why Open vSwitch cannot use it."""
    mtu: int = _OVERLAY_MTU
    """Bytes; what to assume where the container's interface cannot be read, over IPv4."""


def unusable(port: ContainerPort, text: str) -> Unusable:
    """Return what is odd about `port`; two containers may have interfaces of one name."""
    if port.bridged:
        return Unusable(port.interface, text)
    return Unusable(f"{port.interface} of {port.id.container}", text, "interface")


def waiting(port: ContainerPort, why: Why, text: str) -> Unusable:
    """Return why `port` is no endpoint, whosever it is."""
    return replace(unusable(port, text), why=why, container=port.id.container, task=port.task)


def is_tunnel(interface: Interface) -> bool:
    """Whether `interface` leads to other hosts."""
    return interface.type in TUNNELS


def container_ports(
    interfaces: Iterable[Interface],
) -> tuple[tuple[ContainerPort, ...], tuple[Unusable, ...]]:
    """Return the container ports, one per endpoint, sorted by id; and what cannot be used.

    A port that names neither task nor rail belongs to others and is passed over.
    """
    ports: dict[EndpointId, ContainerPort] = {}
    unusable = []
    for interface in sorted(interfaces, key=lambda each: each.name):
        keys = interface.external_ids
        if is_tunnel(interface) or not ("task" in keys or "rail" in keys):
            continue
        port = _container_port(interface)
        if isinstance(port, ContainerPort) and port.id in ports:
            other = ports[port.id].interface
            port = Unusable(interface.name, f"{port.id} is already on port {other}")
        if isinstance(port, Unusable):
            unusable.append(port)
        else:
            ports[port.id] = port
    return tuple(ports[key] for key in sorted(ports)), tuple(unusable)


def parse_rail(text: str | None) -> int | None:
    """Return the rail that `external_ids:rail` says, None if it says none."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 4:
        return None
    return int(text) if int(text) <= _MAX_RAIL else None


def is_container(text: str) -> bool:
    """Whether `text` can be a container's name."""
    return _CONTAINER.fullmatch(text) is not None


def is_task(text: str) -> bool:
    """Whether `text` can be a task's name."""
    return 0 < len(text) <= _MAX_TASK and text.isprintable()


def _container_port(interface: Interface) -> ContainerPort | Unusable:
    keys = interface.external_ids
    wanted = ("sandbox", "task", "rail", "attached_mac", "ip_addresses")
    if missing := [key for key in wanted if not keys.get(key)]:
        return Unusable(interface.name, f"external_ids lack {', '.join(missing)}")
    rail, address = parse_rail(keys["rail"]), first_address(keys["ip_addresses"])
    if rail is None or address is None:
        key = "rail" if rail is None else "ip_addresses"
        return Unusable(interface.name, f"cannot use {key} {keys[key]!r}")
    if odd := _oddity(interface):
        return Unusable(interface.name, f"cannot use {odd} {keys.get(odd, interface.type)!r}")
    unopened = "it could not be opened" if interface.ofport == -1 else ""
    return ContainerPort(
        id=EndpointId(keys["sandbox"], rail),
        task=keys["task"],
        interface=interface.name,
        address=address,
        mac=keys["attached_mac"].lower(),
        error=interface.error or unopened,
    )


def _oddity(interface: Interface) -> str | None:
    """Name what of `interface` makes no sense: its type, or one of its external_ids."""
    if interface.type not in {"", "system"}:
        return "type"
    if not is_task(interface.external_ids["task"]):
        return "task"
    if not _MAC.fullmatch(interface.external_ids["attached_mac"].lower()):
        return "attached_mac"
    return None if is_container(interface.external_ids["sandbox"]) else "sandbox"


def first_address(text: str) -> str | None:
    """Return the first IPv4 address of a list such as ``10.0.0.10/24, fd00::1``, or the first of
    IPv6 where there is none.
    """  # noqa: D205 - one sentence
    words = (word.partition("/")[0] for word in re.split(r"[\s,]+", text.strip()))
    found = [address for address in map(canonical, words) if address]
    return min(found, key=is_six, default=None)
