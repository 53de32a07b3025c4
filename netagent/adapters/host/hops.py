# SPDX-License-Identifier: Apache-2.0
"""Where a container sends what is for another: to that one itself, or to its router.

A container has its own routes, and neighbours that it resolved. The kernel forgets these after a
minute without packets: then an empty datagram to the router has it ask again.
"""

import errno
import os
import socket
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from netagent.adapters.host.netlink import query_socket
from netagent.adapters.host.pyroute import (
    NLM_F_REQUEST,
    NLMSG_ERROR,
    IPRSocket,
    ndmsg,
    rtmsg,
    rtnl,
)
from netagent.adapters.host.setns import call_in_namespace
from netagent.host.facts import Namespace
from netagent.model.address import canonical, is_six

DISCARD = 9
"""UDP port at which nobody answers (RFC 863)."""
WAIT_S, POLL_S = 1.0, 0.01
"""Seconds that a router has to say its hardware address. Chosen: who asked has five for all; the
kernel asks again after one (`retrans_time_ms`)."""


@dataclass(frozen=True, slots=True)
class Hop:
    """Where packets for an address go first."""

    mac: str = ""
    """Hardware address of the router; "" where none is between, or it is not known."""
    untold: str = ""
    """Why that is not known; "" where it is."""


def first_hops(namespace: Namespace, source: str, targets: Collection[str]) -> dict[str, Hop]:
    """Return where what goes from a container's address to others leaves for."""

    def look() -> dict[str, Hop]:
        routers: dict[tuple[str, int], Hop] = {}
        with query_socket() as query:
            return {target: _hop(query, source, target, routers) for target in targets}

    try:
        return call_in_namespace(namespace.path, look, inode=namespace.inode)
    except OSError as error:
        return dict.fromkeys(targets, Hop(untold=f"its container's routes: {error}"))


def _hop(query: IPRSocket, source: str, target: str, routers: dict[tuple[str, int], Hop]) -> Hop:
    if canonical(target) is None or is_six(source) != is_six(target):
        return Hop()  # whoever makes a packet of it says so
    family = socket.AF_INET6 if is_six(target) else socket.AF_INET
    try:
        route = _route(query, family, source, target)
    except OSError as error:
        return Hop(untold=f"its container has no way to {target}: {error.strerror}")
    router = route.get_attr("RTA_GATEWAY")
    if router is None:
        return Hop()
    key = router, route.get_attr("RTA_OIF")
    if key not in routers:
        mac = _neighbour(query, family, *key) or _resolved(query, family, source, *key)
        routers[key] = Hop(mac, "" if mac else f"its container's router {router} does not answer")
    return routers[key]


def _resolved(query: IPRSocket, family: int, source: str, router: str, device: int) -> str:
    """Return a neighbour's hardware address once it has answered; "" where it does not."""
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.bind((source, 0))
        sender.sendto(b"", (router, DISCARD))
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            if mac := _neighbour(query, family, router, device):
                return mac
            time.sleep(POLL_S)
    return ""


def _route(query: IPRSocket, family: int, source: str, target: str) -> Any:
    bits = 128 if family == socket.AF_INET6 else 32
    asked = rtmsg()
    asked["family"], asked["dst_len"], asked["src_len"] = family, bits, bits
    asked["attrs"] = [("RTA_DST", target), ("RTA_SRC", source)]
    return _answer(query, asked, rtnl.RTM_GETROUTE)


def _neighbour(query: IPRSocket, family: int, address: str, device: int) -> str:
    """Return a neighbour's hardware address, "" where the kernel has none."""
    asked = ndmsg()
    asked["family"], asked["ifindex"] = family, device
    asked["attrs"] = [("NDA_DST", address)]
    try:
        return str(_answer(query, asked, rtnl.RTM_GETNEIGH).get_attr("NDA_LLADDR") or "")
    except OSError as error:
        if error.errno == errno.ENOENT:
            return ""
        raise


def _answer(query: IPRSocket, asked: Any, kind: int) -> Any:
    query.put(asked, kind, NLM_F_REQUEST)
    (answer,) = query.get()
    if answer["header"]["type"] == NLMSG_ERROR and answer["error"]:
        raise OSError(-answer["error"], os.strerror(-answer["error"]))
    return answer
