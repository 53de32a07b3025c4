# SPDX-License-Identifier: Apache-2.0
"""From what OVSDB and netlink say to endpoints and findings. No I/O, no clock.

An endpoint is announced once its interface is up in the container's namespace and carries its
address. From then on it stays announced until its port leaves the vSwitch, as a graceful stop
makes it: an endpoint that merely fails must go on being probed, or its failure would hide itself.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from netagent.host.beneath import rnic_beneath
from netagent.host.carrier import RnicWatch
from netagent.host.facts import (
    HostView,
    Link,
    LinkView,
    Namespace,
    Uplink,
    VswitchView,
)
from netagent.host.inside import Condition, condition_of
from netagent.host.ports import ContainerPort, Unusable, unusable, waiting
from netagent.host.sources import Found
from netagent.host.spares import SpareWatch
from netagent.host.uplinks import Uplinks
from netagent.model.address import canonical, is_six
from netagent.model.encapsulation import IP_BYTES
from netagent.model.endpoint import Endpoint, EndpointState
from netagent.model.finding import Finding, FindingKey, FindingKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, vswitch
from netagent.model.vswitch import Interface
from netagent.wire.unprobed import Why

GRACE_NS = 2_000_000_000
"""Nanoseconds that a vanished namespace may keep its port before that is a crash. Chosen: a
graceful removal takes the port first, or within this time."""

SETTLED_NS = 1_500_000_000
"""Nanoseconds that an interface keeps another address, hardware address or MTU than the announced
one until that is taken for the endpoint's. Chosen: a tenant may change each as often as it likes,
and each change makes new lists for all that probe it; less than `GRACE_NS`, so that one change is
no trouble."""

UNFOUND_NS = 10_000_000_000
"""Nanoseconds that a new port may have no namespace to be found before that is reported. Chosen: a
container's start may take seconds."""

_T = TypeVar("_T", str, int)

_NAMED = 3
"""Addresses of an interface, of several, that are named. Chosen: to be read."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How an endpoint's packets leave the host."""

    underlay: str
    device: str
    bond: str | None
    members: tuple[str, ...] = ()
    """RNICs in the host's namespace, where these are no uplink's."""


@dataclass(slots=True)
class _Known:
    """What is remembered of one endpoint."""

    port: ContainerPort
    condition: Condition
    since_ns: int
    """When the condition last changed between ready, in trouble and gone."""
    way: _Way | None = None
    """None while its interface was never found."""
    endpoint: Endpoint | None = None
    """The endpoint as last announced."""
    inode: int | None = None
    """Namespace it was last found in."""
    netdev: str = ""
    """Name that its interface was last seen to have inside."""
    seen: dict[str, tuple[object, int]] = field(default_factory=dict)
    """What its interface was last seen to have of each that a container may change, since when."""


class Discovery:
    """Remembers what was announced, and returns what to announce now."""

    def __init__(self, *, host: str, bridge: str, rnics: Sequence[str] = ()) -> None:
        self._host = host
        self._bridge = bridge
        self._known: dict[EndpointId, _Known] = {}
        self._uplinks = Uplinks(rnics)
        self._rnics = RnicWatch(host)
        self._spares = SpareWatch(host)
        self._since_wall_ns: dict[FindingKey, int] = {}
        self._deadlines_ns: list[int] = []
        self._waiting: list[Unusable] = []

    def observe(
        self,
        view: VswitchView,
        links: LinkView,
        found_by_sources: Found,
        *,
        now_ns: int,
        wall_ns: int,
        vswitch_down: str | None = None,
        stated: Iterable[Finding] = (),
        complete: bool = True,
    ) -> HostView:
        """Return what holds now.

        `vswitch_down` says why ovs-vswitchd is not at work, None if it is; `stated` is what was
        found of the RNICs' rates and of the board.
        """
        self._deadlines_ns, self._waiting = [], []
        interfaces = self._interfaces(view)
        ports = found_by_sources.ports
        rails = {port.id.rail for port in ports if port.bridged}
        uplinks, unclear = self._uplinks.observe(view, interfaces, links, rails=rails)
        self._forget(ports)
        found = [*(self._unknown(why) for why in (*found_by_sources.unusable, *unclear)), *stated]
        if vswitch_down:
            found.append(self._vswitch_down(vswitch_down))
        by_rail = {uplink.rail: uplink for uplink in uplinks}
        for port in ports:
            uplink = by_rail.get(port.id.rail) if port.bridged else None
            found += self._follow(port, uplink, links, now_ns)
        rnics = {name for uplink in uplinks for name in uplink.members} | self._unswitched()
        self._rnics.observe(rnics, links.host, now_ns=now_ns)
        self._spares.observe(uplinks, links.host, now_ns=now_ns)
        found += self._rnics.findings(wall_ns=wall_ns, covered=self._spares.covered)
        found += self._spares.findings(wall_ns=wall_ns)
        found += self._crashes()
        return HostView(
            endpoints=tuple(each for _, each in sorted(self._announced())),
            namespaces=self._namespaces(),
            netdevs={key: k.netdev for key, k in self._known.items() if k.endpoint and k.netdev},
            findings=self._dated(found, wall_ns),
            uplinks=uplinks,
            complete=complete,
            settings=view.settings,
            rnics=tuple(sorted(rnics)),
        )

    def inside(self) -> dict[str, Link]:
        """Return the interfaces in containers as last seen, by the ports that lead to them."""
        return {
            known.port.interface: known.condition.device
            for known in self._known.values()
            if known.port.bridged and known.condition.device
        }

    def waiting(self) -> tuple[Unusable, ...]:
        """Return what sources name and was never announced, and why, as of the last look."""
        return tuple(self._waiting)

    def deadline_ns(self) -> int | None:
        """Return when to observe again even if nothing changed."""
        watches = (self._rnics.deadline_ns(), self._spares.deadline_ns())
        return min(
            (*self._deadlines_ns, *(due for due in watches if due is not None)), default=None
        )

    def _interfaces(self, view: VswitchView) -> tuple[Interface, ...]:
        bridge = view.bridge(self._bridge)
        return tuple(bridge.interfaces()) if bridge else ()

    def _forget(self, ports: tuple[ContainerPort, ...]) -> None:
        """Drop what left the vSwitch: it was stopped, and on purpose."""
        present = {port.id: port for port in ports}
        self._known = {
            key: known
            for key, known in self._known.items()
            if key in present and present[key].interface == known.port.interface
        }

    def _follow(
        self, port: ContainerPort, uplink: Uplink | None, links: LinkView, now_ns: int
    ) -> Iterator[Finding]:
        """Update the knowledge about `port`; yield a finding for whatever is odd about it."""
        if port.bridged and uplink is None:
            text = f"no tunnel for rail {port.id.rail}"
            yield self._unknown(unusable(port, text))
            self._waiting.append(waiting(port, Why.NO_UPLINK, text))
            self._known.pop(port.id, None)
            return
        known = self._known.get(port.id)
        condition = condition_of(port, links, known.inode if known else None)
        if condition.ready and condition.device and not port.address:
            text = self._unclear(condition.device, known, now_ns)
            condition = replace(condition, ready=not text, text=text)
        if known is None:
            known = self._known[port.id] = _Known(port, condition, now_ns)
        elif _stage(known.condition) != _stage(condition):
            known.since_ns = now_ns
        known.port, known.condition = port, condition
        if condition.namespace:
            known.inode = condition.namespace.inode
        if condition.device:
            known.netdev = condition.device.name
        known.way = _way_of(known, uplink, links)
        self._decide(known, now_ns)
        if known.endpoint is None:
            self._waiting.append(waiting(port, _why(known), condition.text))
        yield from self._doubts(known, now_ns)

    def _unclear(self, device: Link, known: _Known | None, now_ns: int) -> str:
        """Say why it is not clear yet, or any more, which address of `device` is the endpoint's."""
        before = known.endpoint.address if known and known.endpoint else ""
        address = before if before in device.addresses else _sole(device)
        if not address:
            return f"{device.name} has {_several(device)}, and nobody says which is the endpoint's"
        if known is None or self._settled(known, "address", before, address, now_ns) == address:
            return ""
        return f"{device.name} has {address} in place of {before}"

    def _settled(self, known: _Known, what: str, before: _T, now: _T, now_ns: int) -> _T:
        """Return what to announce: `before`, or what the interface has `now` once it lasts."""
        last, since_ns = known.seen.get(what, (None, now_ns))
        if now != last:
            since_ns = now_ns
        known.seen[what] = now, since_ns
        if not before or now == before or self._lasted(since_ns, SETTLED_NS, now_ns):
            return now
        return before

    def _unswitched(self) -> set[str]:
        """Return the RNICs here that carry endpoints which no virtual switch does."""
        return {name for known in self._known.values() if known.way for name in known.way.members}

    def _decide(self, known: _Known, now_ns: int) -> None:
        """Set what is announced of an endpoint; one whose address was never known is not."""
        if known.condition.ready:
            known.endpoint = self._endpoint(known, EndpointState.UP, now_ns)
        elif known.condition.gone and self._lasted(known.since_ns, GRACE_NS, now_ns):
            known.endpoint = self._endpoint(known, EndpointState.CRASHED, now_ns)
        elif known.endpoint is not None:
            known.endpoint = self._endpoint(known, known.endpoint.state, now_ns)

    def _endpoint(self, known: _Known, state: EndpointState, now_ns: int) -> Endpoint | None:
        port, device, before, way = known.port, known.condition.device, known.endpoint, known.way
        address = port.address or _address(known)
        if way is None or not address:
            return None
        mac, mtu = (before.mac, before.mtu) if before else ("", 0)
        if device and not port.mac:
            mac = self._settled(known, "mac", mac, device.mac, now_ns)
        if device:
            mtu = self._settled(known, "mtu", mtu, device.mtu, now_ns)
        return Endpoint(
            id=port.id,
            task=port.task,
            host=self._host,
            address=address,
            mac=port.mac or mac,
            underlay=way.underlay or address,
            rnic=way.device,
            bridge=self._bridge if port.bridged else "",
            port=port.interface,
            mtu=mtu or _assumed_mtu(port, way),
            bond=way.bond,
            state=state,
        )

    def _lasted(self, since_ns: int, span_ns: int, now_ns: int) -> bool:
        """Return whether `span_ns` are over since then; if not, note when they will be."""
        due_ns = since_ns + span_ns
        if now_ns < due_ns:
            self._deadlines_ns.append(due_ns)
        return now_ns >= due_ns

    def _doubts(self, known: _Known, now_ns: int) -> Iterator[Finding]:
        """Yield what an operator should know of an endpoint that is not as it should be."""
        condition, port = known.condition, known.port
        if condition.ready:
            device = condition.device
            if device and device.mac and port.mac and device.mac != port.mac:
                text = f"attached_mac is {port.mac}, but {device.name} has {device.mac}"
                yield self._unknown(unusable(port, text))
        elif condition.gone:
            return
        elif known.endpoint is None:
            if self._lasted(known.since_ns, UNFOUND_NS, now_ns):
                yield self._unknown(unusable(port, condition.text))
        elif self._lasted(known.since_ns, GRACE_NS, now_ns):
            component = Component(Kind.ENDPOINT, str(port.id))
            what = "port" if port.bridged else "interface"
            text = f"{port.id} on {what} {port.interface}: {condition.text}"
            yield Finding(FindingKind.ENDPOINT_DOWN, component, text, 0)

    def _crashes(self) -> Iterator[Finding]:
        """Yield one finding per container whose namespace is gone."""
        crashed: dict[str, list[Endpoint]] = {}
        for key, endpoint in self._announced():
            if endpoint.state is EndpointState.CRASHED:
                crashed.setdefault(key.container, []).append(endpoint)
        for container, ends in crashed.items():
            ports = sorted(each.port for each in ends if each.bridge)
            declared = sorted(each.port for each in ends if not each.bridge)
            still = [f"{self._bridge} still has {', '.join(ports)}"] if ports else []
            still += [f"it is still declared with {', '.join(declared)}"] if declared else []
            text = f"the network namespace of {container} is gone, but {' and '.join(still)}"
            component = Component(Kind.CONTAINER, container)
            yield Finding(FindingKind.CONTAINER_CRASHED, component, text, 0)

    def _announced(self) -> Iterator[tuple[EndpointId, Endpoint]]:
        for key, known in self._known.items():
            if known.endpoint is not None:
                yield key, known.endpoint

    def _namespaces(self) -> dict[EndpointId, Namespace]:
        return {
            key: known.condition.namespace
            for key, known in self._known.items()
            if known.endpoint is not None and known.condition.namespace is not None
        }

    def _vswitch_down(self, reason: str) -> Finding:
        text = f"ovs-vswitchd: {reason}"
        return Finding(FindingKind.VSWITCH_DOWN, vswitch(self._host), text, 0)

    def _unknown(self, why: Unusable) -> Finding:
        text, evidence = f"{why.what} {why.port}: {why.text}", {"port": why.port}
        if why.about:
            evidence["about"] = why.about
        here = vswitch(self._host) if why.what == "port" else Component(Kind.HOST, self._host)
        return Finding(FindingKind.UNKNOWN_INPUT, here, text, 0, evidence)

    def _dated(self, found: list[Finding], wall_ns: int) -> tuple[Finding, ...]:
        """Give each finding the time since when it holds, so that it equals itself next time."""
        since = {key: self._since_wall_ns.get(key, wall_ns) for key in (f.key for f in found)}
        self._since_wall_ns = since
        dated = (replace(each, wall_ns=since[each.key]) for each in found)
        return tuple(sorted(dated, key=lambda each: (each.kind, each.component, each.text)))


def _assumed_mtu(port: ContainerPort, way: _Way) -> int:
    wider = IP_BYTES[6] - IP_BYTES[4]
    return port.mtu - wider if is_six(way.underlay) else port.mtu


def _why(known: _Known) -> Why:
    """Return why an endpoint that was never announced is none."""
    condition, address = known.condition, known.port.address
    if condition.namespace is None:
        return Why.NO_CONTAINER
    device = condition.device
    lacks = device is not None and not (address and address in device.addresses)
    return Why.NO_ADDRESS if device is not None and device.up and lacks else Why.DOWN


def _stage(condition: Condition) -> tuple[bool, bool]:
    return condition.ready, condition.gone


def _way_of(known: _Known, uplink: Uplink | None, links: LinkView) -> _Way | None:
    if uplink is not None:
        return _Way(uplink.address, uplink.device, uplink.bond)
    port, device = known.port, known.condition.device
    nsid = links.by_path.get(port.netns)
    if port.bridged or device is None or nsid is None:
        return known.way
    beneath = rnic_beneath(device, nsid, links, port.id.container)
    return _Way("", beneath.device, beneath.bond, beneath.members)


def _address(known: _Known) -> str:
    """Return the address of an endpoint of which nobody says it; "" where it was never known."""
    before, device = known.endpoint, known.condition.device
    if before is None:
        return _sole(device)
    is_gone = known.condition.ready and device and before.address not in device.addresses
    return _sole(device) if is_gone else before.address


def _sole(device: Link | None) -> str:
    """Return the address of a device that has one of IPv4, or else one of IPv6; "" for any other.

    Addresses that hold on a link alone (RFC 4291, RFC 3927), or that no interface may have, are
    none.
    """
    usable = [each for each in map(canonical, device.addresses) if each] if device else []
    wide = [each for each in usable if not ipaddress.ip_address(each).is_link_local]
    first = [each for each in wide if not is_six(each)] or wide
    return first[0] if len(first) == 1 else ""


def _several(device: Link) -> str:
    if not device.addresses:
        return "no address"
    more = len(device.addresses) - _NAMED
    text = f"the addresses {', '.join(device.addresses[:_NAMED])}"
    return f"{text} and {more} more" if more > 0 else text
