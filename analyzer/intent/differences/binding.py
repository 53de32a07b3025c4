# SPDX-License-Identifier: Apache-2.0
"""Whether each logical port is where a container is plugged in for it, and nowhere else.

A port that nobody is plugged in for waits for its container; a disabled one is meant to be shut.
"""

from collections.abc import Iterator

from analyzer.intent.differences.contract import Mismatch, Sight, quoted
from analyzer.intent.endpoints import Plugged
from analyzer.intent.model import Placement, Port
from netagent.model.finding import FindingKind

BINDING_NS = 60_000_000_000
"""Nanoseconds for which a port is not where it should be. Chosen: containers start and stop, and
are moved, within seconds; a host's word is half as old at most."""
MOST_MOVES = 4
"""Most moves of a port in a minute that mean nothing. Chosen: a migration moves it once or twice;
two hosts that fought over a port moved it 30 times in 6 s, and every half second from then on."""


def contested(sight: Sight) -> Iterator[Mismatch]:
    """Yield ports that two hosts claim."""
    if sight.is_blind:
        return
    for placement in sight.intent.placements.values():
        if placement.moves <= MOST_MOVES:
            continue
        hosts = sorted({host for host, _ in sight.ends.plugged(placement.port)})
        if len(hosts) < 2 and _hears_all(sight):
            continue  # it was, and its moves still count
        text = (
            f"port {placement.port} moved {placement.moves} times in a minute: "
            f"{quoted(hosts) if len(hosts) > 1 else 'two hosts'} claim it"
        )
        read = {"plugged in at": quoted(hosts), "bound at": placement.chassis or "no host"}
        yield Mismatch(
            FindingKind.PORT_CONTESTED, f"port {placement.port}", text, BINDING_NS, read,
            ports=(placement.port,),
        )  # fmt: skip


def _hears_all(sight: Sight) -> bool:
    return all(
        sight.owners.get(each.name) in sight.heard
        for each in sight.intent.chassis.values()
        if each.is_registered
    )


def unbound(sight: Sight) -> Iterator[Mismatch]:
    """Yield ports that are at no host, though a container is plugged in, maybe at a wrong one."""
    if sight.is_blind:
        return
    for name, port in sight.intent.ports.items():
        placement = sight.intent.placements.get(name)
        if placement is None or placement.chassis or not port.is_enabled:
            continue
        at = sight.ends.plugged(name)
        working = [each for each in at if sight.connected(each[0])]
        if wanted := [each for each in working if _is_wanted(port, each[0], sight)]:
            yield _unbound(port, *wanted)
        elif working:
            yield _misplaced(port, working[0], placement)
        elif not at and (other := sight.ends.elsewhere(port)) and sight.connected(other[0]):
            yield _unbound(port, other)


def _is_wanted(port: Port, host: str, sight: Sight) -> bool:
    return not port.hosts or not sight.names_of(host).isdisjoint(port.hosts)


def _unbound(port: Port, at: Plugged, *others: Plugged) -> Mismatch:
    host, plugged = at
    text = f"port {port.name} is at no host, though {plugged.interface} of {host} is plugged in"
    if plugged.name != port.name:
        text += f" for it and says {plugged.name or 'no name'}"
    read = _where(port, at) | {"iface-id": plugged.name}
    hosts = (host, *(other for other, _ in others))
    if others:
        read["plugged in at"] = quoted(f"{h} {p.interface}" for h, p in (at, *others))
    name = f"port {port.name}"
    return Mismatch(
        FindingKind.PORT_UNBOUND, name, text, BINDING_NS, read, hosts, ports=(port.name,),
        interface=(host, plugged.interface),
    )  # fmt: skip


def _misplaced(port: Port, at: Plugged, placement: Placement) -> Mismatch:
    host, _ = at
    text = (
        f"port {port.name} is plugged in at {host}, and its controller wants it at "
        f"{quoted(port.hosts)}"
    )
    read = _where(port, at) | {"bound at": placement.chassis or "no host"}
    name = f"port {port.name}"
    return Mismatch(
        FindingKind.PORT_MISPLACED, name, text, BINDING_NS, read, (host,), ports=(port.name,)
    )


def _where(port: Port, at: Plugged) -> dict[str, str]:
    host, plugged = at
    read = {
        "plugged in at": f"{host} {plugged.interface}",
        "wanted at": quoted(port.hosts) or "any",
    }
    return read | ({"owner": port.owner} if port.owner else {})
