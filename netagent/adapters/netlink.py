# SPDX-License-Identifier: Apache-2.0
"""Devices and addresses of this host and of its containers' namespaces, followed live.

One socket hears of every change, also of those in other namespaces this one is wired to
(NETLINK_LISTEN_ALL_NSID); dumps name the namespace by its id (IFLA_TARGET_NETNSID). So nothing
enters a container's namespace, and no descriptor keeps a dead one alive.
"""

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace

import structlog

from netagent.adapters import rtnetlink
from netagent.adapters.rtnetlink import (
    AddressGone,
    AddressSeen,
    Failed,
    Finished,
    LinkGone,
    LinkSeen,
    Message,
    NamespaceId,
)
from netagent.collect.hostfacts import Link, LinkView, Namespace
from netagent.model.errors import CapabilityMissing

log = structlog.get_logger()

_SOL_NETLINK = 270
_ADD_MEMBERSHIP, _LISTEN_ALL_NSID, _STRICT_CHECK = 1, 8, 12
_GROUPS = (1, 5, 28)  # RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_NSID
_EVENT_BUFFER = 4 << 20  # bytes; a node that starts a hundred pods at once fits
_DATAGRAM = 64 << 10

Table = dict[int, Link]
"""Devices of one namespace by index."""


def apply(table: Table, message: Message) -> bool:
    """Bring `table` up to date with `message`; return whether that changed it."""
    match message:
        case LinkSeen(link):
            known = table.get(link.index)
            new = replace(link, addresses=known.addresses if known else ())
        case AddressSeen(index, address) if index in table:
            known = table[index]
            new = replace(known, addresses=tuple(sorted({*known.addresses, address})))
        case AddressGone(index, address) if index in table:
            known = table[index]
            new = replace(known, addresses=tuple(a for a in known.addresses if a != address))
        case LinkGone(index):
            return table.pop(index, None) is not None
        case _:
            return False
    table[new.index] = new
    return new != known


def dump(nsid: int | None = None) -> Table:
    """Return the devices of this namespace, or of the one known here as `nsid`.

    Raises OSError where the kernel refuses, such as for a namespace that just died.
    """
    table: Table = {}
    with query_socket() as query:
        for request in (
            rtnetlink.dump_links(1, nsid=nsid),
            rtnetlink.dump_addresses(2, nsid=nsid),
        ):
            for message in _transact(query, request):
                apply(table, message)
    return table


def nsid_of(query: socket.socket, path: str) -> tuple[int, int]:
    """Return id (-1: none) and inode of the namespace at `path`; OSError if there is none."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        inode = os.fstat(fd).st_ino
        query.send(rtnetlink.ask_nsid(3, fd))
        for message in rtnetlink.parse(query.recv(_DATAGRAM)):
            match message:
                case NamespaceId(nsid):
                    return nsid, inode
                case Failed(number):
                    raise OSError(number, os.strerror(number), path)
    finally:
        os.close(fd)
    raise OSError(errno.EPROTO, "no answer to RTM_GETNSID", path)


def query_socket() -> socket.socket:
    """Return a socket for questions to the kernel."""
    query = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    # Without strict checking the kernel ignores which namespace an address dump asks for.
    query.setsockopt(_SOL_NETLINK, _STRICT_CHECK, 1)
    query.bind((0, 0))
    return query


def _transact(query: socket.socket, request: bytes) -> Iterator[Message]:
    """Yield the answers to a dump. The kernel fills them in as we read: this does not wait."""
    query.send(request)
    while True:
        for message in rtnetlink.parse(query.recv(_DATAGRAM)):
            match message:
                case Finished():
                    return
                case Failed(number):
                    raise OSError(number, os.strerror(number))
            yield message


class LinkMonitor:
    """Keeps a `LinkView` up to date: of this namespace, and of those it is told to follow."""

    def __init__(self) -> None:
        self._events: socket.socket | None = None
        self._host: Table = {}
        self._inside: dict[int, Table] = {}
        self._followed: frozenset[int] = frozenset()
        self._on_change: Callable[[], None] = lambda: None
        self.gone: set[int] = set()
        """Ids of namespaces that died since the caller last cleared it."""
        self.overruns = 0
        """Times the kernel had more to say than fit, so that all was read anew."""

    def start(self, on_change: Callable[[], None]) -> None:
        """Read all and call `on_change` from the running loop after each batch of changes.

        Raises CapabilityMissing without the right to hear of other namespaces.
        """
        self._on_change = on_change
        self._events = _event_socket()
        self.resync()
        asyncio.get_running_loop().add_reader(self._events.fileno(), self._receive)

    def close(self) -> None:
        """Stop following."""
        if self._events is not None:
            asyncio.get_running_loop().remove_reader(self._events.fileno())
            self._events.close()
            self._events = None

    def follow(self, nsids: AbstractSet[int]) -> None:
        """Read the namespaces `nsids` from now on, and no others."""
        self._followed = frozenset(nsids)
        for nsid in set(self._inside) - self._followed:
            del self._inside[nsid]
        for nsid in self._followed - set(self._inside):
            self._read(nsid)

    def resync(self) -> None:
        """Read everything anew."""
        self._host = dump()
        self._inside.clear()
        self.follow(self._followed)

    def view(self, namespaces: dict[int, Namespace]) -> LinkView:
        """Return what is known now, with the `namespaces` found, by id."""
        host = {link.name: link for link in self._host.values()}
        return LinkView(host, {nsid: dict(t) for nsid, t in self._inside.items()}, namespaces)

    @property
    def host(self) -> Iterator[Link]:
        """Devices of this namespace."""
        yield from self._host.values()

    def _read(self, nsid: int) -> None:
        try:
            self._inside[nsid] = dump(nsid)
        except OSError as error:
            # Died meanwhile, or belongs to a user namespace that we may not read.
            log.debug("namespace_unreadable", nsid=nsid, error=str(error))

    def _receive(self) -> None:
        assert self._events is not None  # noqa: S101 - the reader is removed before the socket
        changed = False
        try:
            while True:
                data, ancillary, _, _ = self._events.recvmsg(_DATAGRAM, 64)
                changed |= self._heard(data, _sender_nsid(ancillary))
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            self.overruns += 1
            self.gone.update(self._followed)  # ids may have been given anew, unheard
            self.resync()
            changed = True
        if changed:
            self._on_change()

    def _heard(self, data: bytes, nsid: int | None) -> bool:
        """Take in one datagram that came from the namespace `nsid` (None: this one)."""
        table = self._host if nsid is None else self._inside.get(nsid)
        changed = False
        for message in rtnetlink.parse(data):
            match message:
                case NamespaceId(dead, gone=True) if nsid is None:
                    self._inside.pop(dead, None)
                    self.gone.add(dead)
                    changed = True
                case _ if table is not None:
                    changed |= apply(table, message)
        return changed


def _event_socket() -> socket.socket:
    events = socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, 0
    )
    try:
        events.setsockopt(_SOL_NETLINK, _LISTEN_ALL_NSID, 1)
    except PermissionError as error:
        events.close()
        raise CapabilityMissing(
            "namespace events", "run as root, or with CAP_NET_ADMIN and CAP_NET_BROADCAST"
        ) from error
    try:
        events.setsockopt(socket.SOL_SOCKET, 33, _EVENT_BUFFER)  # SO_RCVBUFFORCE
    except PermissionError:
        events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _EVENT_BUFFER)
    events.bind((0, 0))
    for group in _GROUPS:
        events.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
    return events


def _sender_nsid(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if level == _SOL_NETLINK and kind == _LISTEN_ALL_NSID:
            return int(struct.unpack("=i", data[:4])[0])
    return None
