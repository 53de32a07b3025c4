# SPDX-License-Identifier: Apache-2.0
"""How each rail leaves the host: tunnel port, underlay address, device, bond, RNIC."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from netagent.host.facts import Bridge, Link, LinkView, Port, Uplink, VswitchView
from netagent.host.ports import Unusable, is_tunnel, parse_rail
from netagent.model.address import canonical, is_six
from netagent.model.encapsulation import KNOWN, Encapsulation
from netagent.model.vswitch import Interface

_PHYSICAL = frozenset({"", "system", "dpdk", "afxdp", "afxdp-nonpmd"})
"""Interface types of OVS that are devices of the host."""


class Uplinks:
    """Finds the uplinks, and remembers them while they cannot be found.

    When ovs-vswitchd dies, so do its internal ports and with them the device that holds the
    underlay address: what leads where has not changed by that.
    """

    def __init__(self, rnics: Sequence[str] = ()) -> None:
        self._rnics = rnics
        """Netdevs of the RNICs of rails 0, 1, ..., for tunnels that name no rail."""
        self._known: dict[int, Uplink] = {}

    def observe(
        self,
        view: VswitchView,
        interfaces: Collection[Interface],
        links: LinkView,
        *,
        rails: AbstractSet[int],
    ) -> tuple[tuple[Uplink, ...], tuple[Unusable, ...]]:
        """Return the uplinks sorted by rail, and what cannot be used.

        `interfaces` are those of the integration bridge. Of rails that lost their tunnel those in
        `rails`, which still have endpoints, are kept as they were.
        """
        found: dict[int, Uplink] = {}
        unusable = []
        for tunnel in sorted(filter(is_tunnel, interfaces), key=lambda each: each.name):
            uplink = self._uplink(tunnel, view, links)
            if isinstance(uplink, Uplink) and uplink.rail in found:
                text = f"rail {uplink.rail} already has {found[uplink.rail].tunnel}"
                uplink = Unusable(tunnel.name, text)
            if isinstance(uplink, Unusable):
                unusable.append(uplink)
            elif uplink is not None:
                found[uplink.rail] = uplink
                if (kind := uplink.encapsulation.kind) not in KNOWN:
                    text = f"outer headers of {kind} are not read: no path over it is traced"
                    unusable.append(Unusable(tunnel.name, text))
        for each in _by_rnics(self._rnics, interfaces, view, links):
            if isinstance(each, Unusable):
                unusable.append(each)
            else:
                found.setdefault(each.rail, each)
        for rail in sorted(self._known.keys() & rails - found.keys()):
            found[rail] = self._known[rail]
            name, text = found[rail].tunnel, f"the tunnel of rail {rail} is gone"
            unusable.append(Unusable(name, text, about=f"rail {rail}"))
        self._known = found
        return tuple(found[rail] for rail in sorted(found)), tuple(unusable)

    def _uplink(
        self, tunnel: Interface, view: VswitchView, links: LinkView
    ) -> Uplink | Unusable | None:
        if "rail" not in tunnel.external_ids:
            return None  # a tunnel of others
        rail = parse_rail(tunnel.external_ids["rail"])
        if rail is None:
            text = f"external_ids:rail {tunnel.external_ids['rail']!r} is no rail"
            return Unusable(tunnel.name, text)
        stated = tunnel.options.get("local_ip") or _encapsulation(view)
        address = canonical(stated)
        if address is None:
            return Unusable(tunnel.name, f"options:local_ip {stated!r} is no address of a host")
        device = next((link for link in links.host.values() if address in link.addresses), None)
        if device is not None:
            bond, members = _carriers(device, view, links)
            if members:
                return Uplink(
                    rail, members[0], address, device.name, tunnel.name, members, bond,
                    _encapsulation_of(tunnel),
                )  # fmt: skip
        known = self._known.get(rail)
        if known is not None and (known.tunnel, known.address) == (tunnel.name, address):
            return known
        text = f"no device holds {address}" if device is None else f"{device.name} has no RNIC"
        return Unusable(tunnel.name, text)


def _encapsulation(view: VswitchView) -> str:
    """Return the host's only tunnel address, where the orchestrator states it for all tunnels."""
    return view.external_ids.get("ovn-encap-ip", "")


def _by_rnics(
    rnics: Sequence[str], interfaces: Iterable[Interface], view: VswitchView, links: LinkView
) -> Iterator[Uplink | Unusable]:
    """Yield how tunnels that name no rail leave the host, by the RNICs that carry them.

    ovn-controller makes a tunnel to each other host, names no rail, and makes them anew as it
    likes; before OVN 24.03 it names no local address either, and all those of ``ovn-encap-ip``
    count (ovn-controller(8)). One tunnel of each address stands for all.
    """
    nameless = (i for i in interfaces if is_tunnel(i) and "rail" not in i.external_ids)
    # Antrea's tunnel names no address at all: routing chooses that of the host's own.
    said = _encapsulation(view) or (_only_address(rnics[0], links) if len(rnics) == 1 else "")
    several = [each.strip() for each in said.split(",")]
    first: dict[str, Interface] = {}
    for tunnel in sorted(nameless, key=lambda each: each.name) if rnics else ():
        local = tunnel.options.get("local_ip")
        for address in [local] if local else several:
            first.setdefault(canonical(address) or address, tunnel)
    for address, tunnel in first.items():
        device = next((link for link in links.host.values() if address in link.addresses), None)
        bond, members = _carriers(device, view, links) if device else (None, ())
        names = {device.name, bond, *members} if device and members else set()
        rail = next((rail for rail, name in enumerate(rnics) if name in names), None)
        if device is not None and rail is not None:
            yield Uplink(
                rail, members[0], address, device.name, tunnel.name, members, bond,
                _encapsulation_of(tunnel),
            )  # fmt: skip
        else:
            text = f"its address {address!r} is on no RNIC of [ovs] rails"
            yield Unusable(tunnel.name, text, about=address)


def _only_address(name: str, links: LinkView) -> str:
    """Return the one address of IPv4, or else of IPv6, of a device; "" where it is not one."""
    link = links.host.get(name)
    found = [each for each in map(canonical, link.addresses if link else ()) if each]
    first = [each for each in found if not is_six(each)] or found
    return first[0] if len(first) == 1 else ""


def _encapsulation_of(tunnel: Interface) -> Encapsulation:
    """Return how the tunnel wraps packets (ovs-vswitchd.conf.db(5), ``options:dst_port``)."""
    known = KNOWN.get(tunnel.type)
    port = tunnel.options.get("dst_port", "")
    if port.isdecimal() and len(port) < 6 and 0 < int(port) < 1 << 16:
        return Encapsulation(tunnel.type, int(port))
    return known or Encapsulation(tunnel.type, 0)


def _carriers(
    device: Link, view: VswitchView, links: LinkView
) -> tuple[str | None, tuple[str, ...]]:
    """Return bond (if any) and RNIC netdevs beneath `device`, which holds the VTEP address."""
    bridge = _bridge_of(device.name, view)
    if bridge is None:
        return _slaves(device, links)
    for port in _physical_ports(bridge, device.name):
        if len(port.interfaces) > 1:
            return port.name, tuple(interface.name for interface in port.interfaces)
        link = links.host.get(port.interfaces[0].name)
        return _slaves(link, links) if link else (None, (port.interfaces[0].name,))
    return None, ()


def _bridge_of(device: str, view: VswitchView) -> Bridge | None:
    """Return the OVS bridge that has `device` as its own (internal) port."""
    for bridge in view.bridges:
        if any(each.name == device and each.type == "internal" for each in bridge.interfaces()):
            return bridge
    return None


def _physical_ports(bridge: Bridge, own: str) -> Iterator[Port]:
    for port in bridge.ports:
        kinds = {interface.type for interface in port.interfaces}
        if kinds and kinds <= _PHYSICAL and port.name != own:
            yield port


def _slaves(device: Link, links: LinkView) -> tuple[str | None, tuple[str, ...]]:
    """Return a kernel bond's name and members, or just the device."""
    if device.kind != "bond":
        return None, (device.name,)
    slaves = sorted(link.name for link in links.host.values() if link.master == device.index)
    return device.name, tuple(slaves)
