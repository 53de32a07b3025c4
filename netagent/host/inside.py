# SPDX-License-Identifier: Apache-2.0
"""Which interface in a container a port leads to, and how that is. Nothing is remembered here.

A veth's other end is known by its namespace's id, a representor's by its hardware address or by a
path that somebody says, what no port stands for by path and name.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from netagent.host.beneath import rnic_beneath
from netagent.host.facts import Link, LinkView, Namespace
from netagent.host.ports import ContainerPort


@dataclass(frozen=True, slots=True)
class Condition:
    """What one look at a port says."""

    ready: bool = False
    gone: bool = False
    """The endpoint's namespace does not exist any more."""
    text: str = ""
    """Why it is not ready."""
    device: Link | None = None
    """The interface inside, where it can be read."""
    namespace: Namespace | None = None


def container_nsids(ports: Iterable[ContainerPort], links: LinkView) -> frozenset[int]:
    """Return the ids of the namespaces that container ports lead to."""
    names = [port.interface for port in ports if port.bridged]
    wired = (links.host[name].netnsid for name in names if name in links.host)
    return frozenset(nsid for nsid in wired if nsid is not None)


def unwired_macs(ports: Iterable[ContainerPort], links: LinkView) -> frozenset[str]:
    """Return the hardware addresses of containers whose ports lead nowhere that the kernel tells.

    Of a representor the other end is a function of the NIC, which was moved into the container.
    Who says the namespace, too, needs no search for it.
    """
    sought = (port for port in ports if port.bridged and port.mac and not port.netns)
    devices = ((port, links.host.get(port.interface)) for port in sought)
    return frozenset(port.mac for port, link in devices if link is not None and not _is_wired(link))


def named_paths(ports: Iterable[ContainerPort], links: LinkView) -> frozenset[str]:
    """Return the paths of the namespaces in which interfaces are that nothing else leads to."""
    named = [port for port in ports if port.netns]
    devices = ((port, links.host.get(port.interface)) for port in named if port.bridged)
    unwired = {port.netns for port, link in devices if link is not None and not _is_wired(link)}
    return frozenset(unwired | {port.netns for port in named if not port.bridged})


def condition_of(port: ContainerPort, links: LinkView, inode: int | None) -> Condition:
    """Look at `port`'s device and at what it is wired to; `inode` is its namespace so far."""
    if not port.bridged:
        return _declared(port, links, inode)
    link = links.host.get(port.interface)
    if link is None:
        alive = inode is not None and any(n.inode == inode for n in links.namespaces.values())
        text = "its device does not exist"
        return Condition(gone=not alive, text=text)
    if not _is_wired(link):
        return _function(port, link, links, inode)
    namespace = links.namespaces.get(link.netnsid) if link.netnsid is not None else None
    if namespace is None:
        text = "no namespace found for the other end of its device; is /proc ours?"
        return Condition(gone=inode is not None, text=text)
    inside = links.inside.get(link.netnsid) if link.netnsid is not None else None
    device = inside.get(link.peer) if inside is not None and link.peer is not None else None
    text = _fault(port, link, device, readable=inside is not None)
    return Condition(ready=not text, text=text, device=device, namespace=namespace)


def _named(port: ContainerPort, link: Link, links: LinkView, inode: int | None) -> Condition:
    """Look at the device of a port whose namespace is known by its path."""
    nsid = links.by_path.get(port.netns)
    namespace = links.namespaces.get(nsid) if nsid is not None else None
    if nsid is None or namespace is None:
        alive = any(each.inode == inode for each in links.namespaces.values())
        gone = inode is not None and not alive
        return Condition(gone=gone, text=f"there is no network namespace {port.netns}")
    devices = links.inside.get(nsid, {}).values()
    found = [each for each in devices if _is_of(each, port)]
    if len(found) != 1:
        what = port.netdev or port.address or port.mac
        text = f"{len(found) or 'no'} interfaces in {port.netns} are {what}"
        return Condition(text=text, namespace=namespace)
    text = _fault(port, link, found[0], readable=True)
    return Condition(ready=not text, text=text, device=found[0], namespace=namespace)


def _is_of(device: Link, port: ContainerPort) -> bool:
    if port.netdev:
        return device.name == port.netdev
    return port.address in device.addresses if port.address else device.mac == port.mac


def _function(port: ContainerPort, link: Link, links: LinkView, inode: int | None) -> Condition:
    """Look at the device in a container that a port's device stands for: it has its address."""
    if port.netns:
        return _named(port, link, links, inode)
    if not port.mac:
        return Condition(text=f"nobody says what {link.name} stands for: it has no attached_mac")
    found = [
        (namespace, device)
        for nsid, namespace in links.namespaces.items()
        for device in links.inside.get(nsid, {}).values()
        # A container makes devices with whatever address; what it was given has no kind.
        if device.mac == port.mac and not (link.switch_port and device.kind)
    ]
    if len(found) > 1:  # of a bond's members, and of copies of a container, one has the address
        found = [each for each in found if port.address in each[1].addresses] or found
    if len(found) != 1:
        stands = f"{link.name} stands for {link.switch_port}" if link.switch_port else link.name
        text = f"no container has an interface with {port.mac} ({stands})"
        if found:
            text = f"{len(found)} interfaces of containers have {port.mac}"
        alive = any(each.inode == inode for each in links.namespaces.values())
        return Condition(gone=inode is not None and not alive, text=text)
    ((namespace, device),) = found
    text = _fault(port, link, device, readable=True)
    return Condition(ready=not text, text=text, device=device, namespace=namespace)


def _declared(port: ContainerPort, links: LinkView, inode: int | None) -> Condition:
    """Look at an interface that no port stands for; `inode` is its namespace so far."""
    nsid = links.by_path.get(port.netns)
    namespace = links.namespaces.get(nsid) if nsid is not None else None
    if nsid is None or namespace is None:
        text = f"there is no network namespace {port.netns}"
        return Condition(gone=inode is not None, text=text)
    inside = links.host.values() if nsid == links.own else links.inside.get(nsid, {}).values()
    device = next((each for each in inside if each.name == port.netdev), None)
    if device is None:
        text = f"there is no {port.netdev} in {port.netns}"
        return Condition(text=text, namespace=namespace)
    text = _fault_inside(port, device)
    # Where its RNIC is here, that one's finding says it.
    here = rnic_beneath(device, nsid, links, port.id.container).members
    if not text and not device.carrier and not here:
        text = f"{device.name} has no carrier"
    return Condition(ready=not text, text=text, device=device, namespace=namespace)


def _fault(port: ContainerPort, link: Link, device: Link | None, *, readable: bool) -> str:
    """Say what keeps the endpoint from working, or nothing."""
    if not link.up:
        return f"{link.name} is down on the host"
    if port.error:
        return f"Open vSwitch cannot use it: {port.error}"
    if not readable:
        return "" if link.carrier else f"{link.name} has no carrier"
    return _fault_inside(port, device)


def _fault_inside(port: ContainerPort, device: Link | None) -> str:
    if device is None:
        return "its interface left the container's namespace"
    if not device.up:
        return f"{device.name} is down in the container"
    if port.address and port.address in device.duplicates:
        return f"{device.name} may not use {port.address}: another device answered for it"
    if port.address and port.address not in device.addresses:
        return f"{device.name} does not carry {port.address}"
    return ""


def _is_wired(link: Link) -> bool:
    return link.netnsid is not None or link.kind == "veth"
