# SPDX-License-Identifier: Apache-2.0
"""Which RNIC is beneath an interface that a container was given, where no virtual switch is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from netagent.host.facts import Link, LinkView

_STACKED = frozenset({"macvlan", "macvtap", "ipvlan", "ipvtap", "vlan"})
"""Kinds of devices that send by the one that IFLA_LINK names."""
_DEEPEST = 8
"""Devices on top of each other that are followed. Chosen: the kernel nests no deeper
(MAX_NEST_DEV of linux/netdevice.h)."""
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+")
"""Name of a function's port, as devlink_port_phys_port_name_get of net/devlink/port.c makes it."""


@dataclass(frozen=True, slots=True)
class Beneath:
    """What carries an interface."""

    device: str
    """The RNIC: its netdev in the host's namespace, else the address of its PCI function; where
    neither is known, a name that no other interface of the host has."""
    members: tuple[str, ...] = ()
    """Its netdevs in the host's namespace: more than one for a bond."""
    bond: str | None = None


def rnic_beneath(device: Link, nsid: int, links: LinkView, container: str) -> Beneath:
    """Return what carries `device`, which is in the namespace `nsid` of `container`."""
    here = dict(links.inside.get(nsid, {}))
    host = {link.index: link for link in links.host.values()}
    at = host if nsid == links.own else here
    for _ in range(_DEEPEST):
        if device.kind not in _STACKED or device.peer is None:
            break
        if device.netnsid is not None:
            at = host if device.netnsid == links.own else {}
        lower = at.get(device.peer)
        if lower is None:
            return Beneath(f"{container}:{device.name}")
        device = lower
    function = links.functions.get(device.parent, "")
    if function:
        return _of_function(function, host)
    if at is host:
        return _of_netdev(device, host)
    return Beneath(f"{container}:{device.name}")


def _of_function(function: str, host: Mapping[int, Link]) -> Beneath:
    """Return the netdev of a physical function; its address where it is not one on the host."""
    found = [
        link
        for link in host.values()
        if link.parent == function and not _REPRESENTOR.fullmatch(link.switch_port)
    ]
    return _of_netdev(found[0], host) if len(found) == 1 else Beneath(function)


def _of_netdev(device: Link, host: Mapping[int, Link]) -> Beneath:
    master = host.get(device.master) if device.master is not None else None
    bond = next((each for each in (device, master) if each and each.kind == "bond"), None)
    if bond is None:
        return Beneath(device.name, (device.name,))
    members = tuple(sorted(link.name for link in host.values() if link.master == bond.index))
    return Beneath(members[0] if members else bond.name, members, bond.name)
