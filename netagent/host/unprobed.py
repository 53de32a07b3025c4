# SPDX-License-Identifier: Apache-2.0
"""Which ports of the virtual switch are no endpoint, and why. No I/O, no clock.

A port that is passed over in silence looks like one that is probed. What connects the host itself
is left out: tunnels, patch and internal ports, and RNICs that carry rails.
"""

from collections.abc import Iterable, Iterator, Mapping

from netagent.host.facts import HostView, Link, Port, VswitchView
from netagent.host.ports import OF_THE_HOST, Unusable, is_tunnel
from netagent.host.sources import Found
from netagent.model.vswitch import Interface
from netagent.wire.unprobed import MOST_PORTS, MOST_TEXT, Unprobed, UnprobedPort, Why

_OWN = frozenset({"task", "rail"})
_MARKS: Mapping[str, frozenset[str]] = {
    "kube-ovn": frozenset({"pod_namespace", "pod_name"}),
    "antrea": frozenset({"pod-namespace", "pod-name", "container-id"}),
    "ovs-cni": frozenset({"contPodUid", "contIface"}),
    "neutron": frozenset({"vm-uuid", "iface-id"}),
    "ovn-kubernetes": frozenset({"sandbox", "iface-id"}),
    "ovn": frozenset({"iface-id"}),
}
"""Keys by which a controller's ports are known (`netagent.host.controllers`), the most special
ones first."""


def looks_like(keys: Iterable[str]) -> str:
    """Return which controller writes external_ids with these keys; "" for none that is known."""
    here = frozenset(keys)
    return next((name for name, marks in _MARKS.items() if marks <= here), "")


def unprobed(
    view: VswitchView,
    bridge: str,
    found: Found,
    waiting: Iterable[Unusable],
    seen: HostView,
    links: Mapping[str, Link],
    *,
    has_rules: bool,
) -> Unprobed:
    """Return what is no endpoint.

    `found` is what sources read, `waiting` what of it was never announced, `seen` what is, `links`
    are the devices of the host's namespace by name. With `has_rules` a controller's external_ids
    are read.
    """
    whys = {each.port: each for each in (*found.passed, *found.unusable, *waiting)}
    announced = {each.port for each in seen.endpoints if each.bridge}
    rnics = {name for uplink in seen.uplinks for name in (*uplink.members, uplink.device)}
    told = []
    for at, port, interface in _interfaces(view):
        keys = {**port.external_ids, **interface.external_ids}
        if _is_the_hosts(interface, keys, links.get(interface.name)) or interface.name in rnics:
            continue
        if at == bridge and interface.name in announced:
            continue
        why = whys.pop(interface.name, None) if at == bridge else None
        if at != bridge:
            why = _elsewhere(interface.name, keys, bridge)
        elif why is None:
            why = _unread(interface.name, keys, has_rules=has_rules)
        if why is not None:
            told.append(_told(why, at, keys.get("iface-id", "")))
    told += [_told(why, "", "") for why in whys.values() if why.what != "port"]
    told.sort(key=lambda each: (not each.task, each.bridge, each.port))
    return Unprobed(ports=tuple(told[:MOST_PORTS]), count=len(told))


def _interfaces(view: VswitchView) -> Iterator[tuple[str, Port, Interface]]:
    for bridge in view.bridges:
        for port in bridge.ports:
            for interface in port.interfaces:
                yield bridge.name, port, interface


def _is_the_hosts(interface: Interface, keys: Mapping[str, str], link: Link | None) -> bool:
    if is_tunnel(interface) or interface.type in OF_THE_HOST:
        return True
    # A device of the hardware that nobody labelled, and that stands for no function, is an RNIC.
    is_hardware = link is not None and link.kind is None and link.netnsid is None
    stands_for = link.switch_port if link else ""
    return is_hardware and not keys and not ("vf" in stands_for or "sf" in stands_for)


def _elsewhere(name: str, keys: Mapping[str, str], bridge: str) -> Unusable | None:
    """Say that a port of a container is on a bridge that is not read; None for any other port."""
    if not looks_like(keys) and not keys.keys() & _OWN:
        return None
    text = f"only ports of {bridge or 'no bridge'} are read (integration_bridge of [ovs])"
    return Unusable(name, text, why=Why.OTHER_BRIDGE)


def _unread(name: str, keys: Mapping[str, str], *, has_rules: bool) -> Unusable:
    text = "external_ids have neither task nor rail"
    if not has_rules and (like := looks_like(keys)):
        text += f"; they are like those of {like}: see controller of [endpoints]"
    return Unusable(name, text, why=Why.NO_TASK)


def _told(why: Unusable, bridge: str, name: str) -> UnprobedPort:
    return UnprobedPort(
        port=_plain(why.port if why.what == "port" else f"{why.what} {why.port}"),
        why=why.why,
        text=_plain(why.text),
        bridge=_plain(bridge),
        name=_plain(name),
        container=_plain(why.container),
        task=_plain(why.task),
    )


def _plain(text: str) -> str:
    """Return a text as it can be told: whoever labelled a port may have written anything."""
    cut = text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."
    return "".join(each if each.isprintable() else "?" for each in cut)
