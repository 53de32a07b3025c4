# SPDX-License-Identifier: Apache-2.0
"""Network namespaces: make, enter, find, delete. The lab's door to pyroute2.

Work inside a namespace runs in a short-lived thread: `setns` concerns the calling thread only,
and whatever socket is opened there stays in the namespace.
"""

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from pyroute2 import IPRoute, NetlinkError, netns

from netagent.model.address import is_six
from tests.lab.routing import Route
from tests.lab.shape import CENTRAL, INITIAL_NAMESPACE, MANAGEMENT_BRIDGE, Wire
from tests.lab.state import DIRECTORY
from tests.lab.workload import CONTAINER_PATTERN, OVERLAY_PREFIX_LENGTH

T = TypeVar("T")

# Not simply the prefix: other tests have namespaces of their own that start with `na-`.
_OURS = re.compile(rf"na-(h\d+|{CENTRAL}|leaf-s\d+-r\d+|spine-\d+|{CONTAINER_PATTERN.pattern})")
_OUR_ROOT_LINKS = re.compile(rf"{MANAGEMENT_BRIDGE}|na-m-(h\d+|{CENTRAL})|na-[a-z]\d{{1,3}}-r\d")

UNNAMED = DIRECTORY / "pods" / "net"
"""Folder of links to namespaces that have no name (`tests.lab.pods`)."""

_ONLINK = 4  # RTNH_F_ONLINK, linux/rtnetlink.h
_SCOPE_LINK = 253  # RT_SCOPE_LINK
_NO_PREFIX_ROUTE, _NO_DAD = 0x200, 0x02  # IFA_F_NOPREFIXROUTE, IFA_F_NODAD, linux/if_addr.h


def ours() -> list[str]:
    """Return the names of all namespaces that look like the lab's."""
    unnamed = [each.name for each in UNNAMED.iterdir() if each.exists()] if UNNAMED.exists() else []
    return sorted(name for name in [*netns.listnetns(), *unnamed] if _OURS.fullmatch(name))


def create(name: str, sysctls: dict[str, int | str]) -> None:
    """Create a namespace with its loopback up and `sysctls` (paths under ``net``) set."""
    netns.create(name)
    prepare(name, sysctls)


def prepare(name: str, sysctls: dict[str, int | str]) -> None:
    """Set a namespace's loopback up, and `sysctls`."""

    def work(ip: IPRoute) -> None:
        for key, value in sysctls.items():
            # /proc/sys/net shows the namespace of the thread that looks.
            Path("/proc/sys/net", key).write_text(str(value))
        ip.link("set", index=1, state="up")

    inside(name, work)


def delete(name: str) -> None:
    """Delete a namespace if it is there, with all its links.

    The links go first: a socket that anyone still holds would keep namespace and links alive.
    """
    with suppress(FileNotFoundError):
        inside(name, _delete_links)
        netns.remove(name)


def _delete_links(ip: IPRoute) -> None:
    for link in ip.get_links():
        if link["index"] != 1:
            with suppress(NetlinkError):  # the other end of a pair went with its peer
                ip.link("del", index=link["index"])


def delete_root_links() -> None:
    """Delete the lab's links in the root namespace."""
    with IPRoute() as ip:
        for name in root_links(ip):
            index = ip.link_lookup(ifname=name)
            if index:
                ip.link("del", index=index[0])


def root_links(ip: IPRoute) -> list[str]:
    """Return the names of the lab's links in the root namespace."""
    names = (link.get_attr("IFLA_IFNAME") for link in ip.get_links())
    return [name for name in names if _OUR_ROOT_LINKS.fullmatch(name)]


def enter(name: str) -> None:
    """Move the calling thread, which should be short-lived, into a namespace."""
    if name == INITIAL_NAMESPACE:
        return  # every thread starts there
    netns.setns(str(path(name)), flags=0)  # 0: fail where there is none; the default makes one


def entering(name: str) -> tuple[str, ...]:
    """Return what to write before a command to run it in the namespace `name`."""
    if name == INITIAL_NAMESPACE:
        return ()
    if (UNNAMED / name).is_symlink():
        return ("nsenter", f"--net={path(name)}")
    return ("ip", "netns", "exec", name)


def in_thread(name: str, work: Callable[[], T]) -> T:
    """Return ``work()``, run by a thread inside the namespace `name`."""

    def run() -> T:
        enter(name)
        return work()

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(run).result()


def inside(name: str, work: Callable[[IPRoute], T]) -> T:
    """Return ``work(ip)``, where `ip` speaks netlink inside the namespace `name`."""

    def run() -> T:
        with IPRoute() as ip:
            return work(ip)

    return in_thread(name, run)


# --- links, addresses, routes ----------------------------------------------------------------


def connect(wires: Iterable[Wire]) -> None:
    """Create veth pairs, both ends born inside their namespaces and still down."""
    with IPRoute() as ip, ExitStack() as files:
        descriptors: dict[str, int] = {}
        for wire in wires:
            for name in (wire.left, wire.right):
                if name not in descriptors:
                    file = files.enter_context(path(name).open("rb"))
                    descriptors[name] = file.fileno()
            ip.link(
                "add",
                ifname=wire.left_interface,
                kind="veth",
                net_ns_fd=descriptors[wire.left],
                peer={"ifname": wire.right_interface, "net_ns_fd": descriptors[wire.right]},
            )


def path(name: str) -> Path:
    """Return the file by which a namespace is entered; it may not exist."""
    if name == INITIAL_NAMESPACE:
        return Path("/proc/self/ns/net")
    unnamed = UNNAMED / name
    return unnamed if unnamed.is_symlink() else Path("/run/netns", name)


def index_of(ip: IPRoute, interface: str) -> int:
    """Return an interface's index; raise `LookupError` where it does not exist."""
    found = ip.link_lookup(ifname=interface)
    if not found:
        raise LookupError(interface)
    return int(found[0])


def set_link(name: str, interface: str, state: str) -> None:
    """Set an interface of a namespace ``up`` or ``down``."""
    inside(name, lambda ip: ip.link("set", index=index_of(ip, interface), state=state))


def set_mtu(name: str, interface: str, mtu: int) -> None:
    """Set how many bytes of an IP packet an interface of a namespace takes."""
    inside(name, lambda ip: ip.link("set", index=index_of(ip, interface), mtu=mtu))


def add_address(
    ip: IPRoute, interface: str, address: str, length: int, *, connected: bool = True
) -> None:
    """Give an interface an address, with or without the route to its prefix."""
    flags = (0 if connected else _NO_PREFIX_ROUTE) | (_NO_DAD if is_six(address) else 0)
    index = index_of(ip, interface)
    ip.addr("replace", index=index, address=address, prefixlen=length, flags=flags)


def replace_addresses(ip: IPRoute, interface: str, address: str) -> None:
    """Leave an interface with no IPv4 address but this one, which brings no route."""
    add_address(ip, interface, address, OVERLAY_PREFIX_LENGTH[4], connected=False)
    index = index_of(ip, interface)
    for other in ip.get_addr(index=index, family=2):  # AF_INET
        found = other.get_attr("IFA_LOCAL")
        if found != address:
            ip.addr("del", index=index, address=found, prefixlen=other["prefixlen"])


def replace_routes(ip: IPRoute, routes: Iterable[Route]) -> None:
    """Install routes, replacing what was there for the same destinations."""
    indices = {link.get_attr("IFLA_IFNAME"): link["index"] for link in ip.get_links()}
    for route in routes:
        ip.route("replace", **_route_arguments(route, indices))


def _route_arguments(route: Route, indices: dict[str, int]) -> dict[str, Any]:
    arguments: dict[str, Any] = {"dst": route.destination}
    if route.source is not None:
        arguments["prefsrc"] = route.source
    # What holds on a link alone is on it.
    on_link = {} if is_six(route.destination) else {"flags": _ONLINK}
    hops = [(indices[hop.device], hop.via) for hop in route.hops]
    if len(hops) > 1:
        legs = [{"oif": oif, "gateway": via, **on_link} for oif, via in hops]
        return arguments | {"multipath": legs}
    oif, via = hops[0]
    if via is None:
        return arguments | {"oif": oif, "scope": _SCOPE_LINK}
    return arguments | {"oif": oif, "gateway": via, **on_link}
