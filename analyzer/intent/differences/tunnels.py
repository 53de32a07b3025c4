# SPDX-License-Identifier: Apache-2.0
"""Whether the addresses at which hosts offer tunnels are their own, and nobody else's.

A controller's record of an address follows what the host offers within seconds, so only the latter
counts. Of two that offer one address, the controller takes the first, and all that the other's
instance writes is refused: that one looks as if it stood still.
"""

from collections import defaultdict
from collections.abc import Iterator

from analyzer.intent.differences.contract import SHARED, Mismatch, Sight, quoted
from netagent.model.address import canonical
from netagent.model.finding import FindingKind
from netagent.wire.controller import MOST_ADDRESSES, ControllerState

TUNNEL_NS = 60_000_000_000
"""Nanoseconds for which a tunnel's address is wrong. Chosen: addresses and settings are changed one
after the other; a host's word is half as old at most."""


def wrong(sight: Sight) -> Iterator[Mismatch]:
    """Yield hosts that offer an address that they have not."""
    readable = {h: state for h, state in sight.heard.items() if _is_readable(state)}
    strange = {host: sorted(offered(s) - own(s)) for host, s in readable.items()}
    strange = {host: addresses for host, addresses in strange.items() if addresses}
    if len(strange) > SHARED * len(readable):
        return  # the cluster is made so: its tunnels end elsewhere
    for host, addresses in strange.items():
        state = readable[host]
        text = f"{host} offers tunnels at {quoted(addresses)}, which it has not"
        read = {"offered": quoted(offered(state)), "addresses": quoted(own(state))}
        yield Mismatch(
            FindingKind.TUNNEL_ADDRESS_WRONG, f"tunnel {host}", text, TUNNEL_NS, read, (host,),
            is_whole=True,
        )  # fmt: skip


def taken(sight: Sight) -> Iterator[Mismatch]:
    """Yield hosts that offer an address which is another one's."""
    by_address: dict[str, list[str]] = defaultdict(list)
    for host, state in sight.heard.items():
        for address in offered(state):
            by_address[address].append(host)
    told: set[str] = set()
    for address, hosts in sorted(by_address.items()):
        holder, *others = sorted(hosts, key=lambda host: _strangeness(host, address, sight))
        for host in others:
            if host in told:
                continue
            told.add(host)
            text = f"{host} offers tunnels at {address}, and so does {holder}"
            read = {
                "address": address,
                f"addresses of {host}": quoted(own(sight.heard[host])),
                f"addresses of {holder}": quoted(own(sight.heard[holder])),
            }
            # What is recorded for a host is not refused, whoever else says that it offers it.
            concerned = (host,) if address in _recorded(holder, sight) else (host, holder)
            yield Mismatch(
                FindingKind.TUNNEL_ADDRESS_TAKEN, f"tunnel {host}", text, TUNNEL_NS, read,
                concerned, ports=sight.unplaced(concerned),
            )  # fmt: skip


def _strangeness(host: str, address: str, sight: Sight) -> tuple[bool, bool, str]:
    """Return what puts the host first whose address it is."""
    return address not in own(sight.heard[host]), address not in _recorded(host, sight), host


def _recorded(host: str, sight: Sight) -> set[str | None]:
    """Return the addresses at which a host offers tunnels, as its controller knows."""
    chassis = sight.chassis_of(host)
    return {canonical(each.address) for each in chassis.encapsulations} if chassis else set()


def _is_readable(state: ControllerState) -> bool:
    """Return whether a host says all addresses that it has."""
    return bool(state.encapsulations) and 0 < len(state.addresses) < MOST_ADDRESSES


def offered(state: ControllerState) -> set[str]:
    """Return the addresses at which a host offers tunnels."""
    return set(filter(None, map(canonical, state.encapsulations)))


def own(state: ControllerState) -> set[str]:
    """Return the addresses that a host has."""
    return set(filter(None, map(canonical, state.addresses)))
