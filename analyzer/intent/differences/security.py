# SPDX-License-Identifier: Apache-2.0
"""Whether each container sends from addresses that its port may use."""

from collections.abc import Iterator
from ipaddress import ip_address, ip_interface

from analyzer.intent.differences.contract import Mismatch, Sight, quoted
from analyzer.intent.model import Allowed, Port
from netagent.model.address import canonical
from netagent.model.finding import FindingKind
from netagent.wire.controller import PluggedPort

REFUSED_NS = 60_000_000_000
"""Nanoseconds for which a container has an address that it may not use. Chosen: it is configured
while its port is being changed; a host's word is half as old at most."""


def refused(sight: Sight) -> Iterator[Mismatch]:
    """Yield ports whose container has an address that port security drops."""
    if sight.is_blind:
        return
    for host, state in sight.heard.items():
        for plugged in state.ports:
            port = sight.intent.ports.get(plugged.name)
            if port is None or not port.allowed or not port.is_enabled:
                continue
            if not _is_here(plugged.name, host, sight):
                continue
            if strange := _strange(port, plugged):
                yield _refused(port, plugged, host, strange, sight)


def _is_here(name: str, host: str, sight: Sight) -> bool:
    """Return whether a port is bound at this host, as far as its controller says."""
    placement = sight.intent.placements.get(name)
    return placement is not None and placement.chassis == sight.heard[host].chassis


def _refused(
    port: Port, plugged: PluggedPort, host: str, strange: list[str], sight: Sight
) -> Mismatch:
    text = f"{plugged.interface} of {host} has {quoted(strange)}, which port {port.name} refuses"
    allowed = (" ".join((each.mac, *each.addresses)) for each in port.allowed)
    read = {
        "interface": f"{host} {plugged.interface}", "hardware address": plugged.mac,
        "addresses": quoted(plugged.addresses), "allowed": quoted(allowed),
    }  # fmt: skip
    return Mismatch(
        FindingKind.ADDRESS_REFUSED, f"port {port.name}", text, REFUSED_NS, read, (host,),
        ports=(port.name,) if _is_used(port, plugged, strange, sight) else (),
        interface=(host, plugged.interface),
    )  # fmt: skip


def _is_used(port: Port, plugged: PluggedPort, strange: list[str], sight: Sight) -> bool:
    """Return whether all traffic is from what is refused: a second address costs only its own."""
    ends = sight.ends.of(port.name)
    used = {end.address for end in ends}
    used |= {end.rdma.gid.removeprefix("::ffff:") for end in ends if end.rdma}
    return plugged.mac in strange or not used.isdisjoint(canonical(each) or "" for each in strange)


def _strange(port: Port, plugged: PluggedPort) -> list[str]:
    """Return the addresses of an interface that its port refuses; what was not read is none."""
    mac = plugged.mac.lower()
    fitting = [each for each in port.allowed if not mac or each.mac.lower() == mac]
    if not fitting:
        return [plugged.mac]
    if any(not each.addresses for each in fitting):
        return []
    return [a for a in plugged.addresses if not any(_may(a, each) for each in fitting)]


def _may(text: str, allowed: Allowed) -> bool:
    """Return whether an address is allowed: link-local ones always, and what nobody can read."""
    try:
        address = ip_address(text)
        return address.is_link_local or any(_within(text, each) for each in allowed.addresses)
    except ValueError:
        return True


def _within(address: str, rule: str) -> bool:
    """Return whether a rule is of this address.

    A rule with a mask is all of its network where the host's part is zero, else the one address.
    """
    known = ip_interface(rule)
    if known.ip == known.network.network_address:
        return ip_address(address) in known.network
    return ip_address(address) == known.ip
