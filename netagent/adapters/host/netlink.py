# SPDX-License-Identifier: Apache-2.0
"""Devices and addresses of this host and of its containers' namespaces, followed live.

One socket hears of every change, also of those in other namespaces this one is wired to
(NETLINK_LISTEN_ALL_NSID); dumps name the namespace by its id (IFLA_TARGET_NETNSID). So nothing
enters a container's namespace, and no descriptor keeps a dead one alive.

pyroute2 speaks the protocol. Its `IPRSocket` is the one of its sockets that works beside a running
event loop; which namespace an event came from it leaves in the ancillary data, for us to read.
"""

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog

from netagent.adapters.host.pyroute import (
    IFF_LOWER_UP,
    IFF_UP,
    NETLINK_LISTEN_ALL_NSID,
    NLM_F_ACK,
    NLM_F_DUMP,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    SOL_NETLINK,
    IPRSocket,
    MarshalRtnl,
    NetlinkDecodeError,
    ifaddrmsg,
    ifinfmsg,
    nlmsg,
    nsidmsg,
    rtnl,
)
from netagent.host.facts import Link, LinkView, Namespace
from netagent.model.errors import CapabilityMissing

log = structlog.get_logger()

T = TypeVar("T")

_GROUPS = (
    rtnl.RTMGRP_LINK
    | rtnl.RTMGRP_IPV4_IFADDR
    | rtnl.RTMGRP_IPV6_IFADDR
    | 1 << (rtnl.RTNLGRP_NSID - 1)
)
_EVENT_BUFFER = 4 << 20
"""Bytes of the event socket's receive buffer. Chosen: the events of a hundred pods that start at
once fit."""
_DATAGRAM = 64 << 10
"""Bytes read of one datagram. Chosen: far more than one message about a device or an address
has."""
_BATCH = 64
"""Datagrams read in one go, which takes some 10 ms. Chosen: probes are sent between two batches."""
_MAX_ADDRESSES = 64
"""Addresses, and duplicates, that are kept of one device: those that were told first. Chosen: far
more than an endpoint's or a tunnel's device has; others have thousands, which come one by one."""
_REREAD_S = 1.0
"""Seconds between two times that a namespace is read whole for what events inside do not say.
Chosen: a container may make such events without end."""
_REST = 20
"""How many times as long as such a reading took nothing is read so again. Chosen: a container may
have thousands of addresses, and each takes the loop 0.15 ms."""
_HEADER = 16
"""Bytes of a netlink header, `struct nlmsghdr` of linux/netlink.h."""
_NOT_ASSIGNED = 0xFFFF_FFFF
"""NETNSA_NSID_NOT_ASSIGNED of linux/net_namespace.h: -1, which pyroute2 reads unsigned."""
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""How a path is opened that should be a namespace's: a pipe in its place holds up nobody."""
_MII_DOWN = 2
"""BOND_LINK_DOWN of linux/if_bonding.h; 0 is up, 1 and 3 last for a moment."""

_SCOPE_LINK = 253
"""RT_SCOPE_LINK of linux/rtnetlink.h: from here on, addresses hold on a link, or here, alone."""
_OPTIMISTIC, _DADFAILED, _TENTATIVE = 0x04, 0x08, 0x40
"""IFA_F_ bits of linux/if_addr.h: whether an address is already in use, never or not yet."""

Table = dict[int, Link]
"""Devices of one namespace by index."""


class _Done(nlmsg):  # type: ignore[misc]
    """The end of a dump; of pyroute2's own, the error is not read."""

    fields = (("error", "i"),)


class _AddressRequest(nlmsg):  # type: ignore[misc]
    """What an `ifaddrmsg` asks; in pyroute2's own, IFA_TARGET_NETNSID is a string."""

    fields = ifaddrmsg.fields
    nla_map = ((10, "IFA_TARGET_NETNSID", "int32"),)


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """A device appeared or changed; its `Link.addresses` are empty, they come by themselves."""

    link: Link


@dataclass(frozen=True, slots=True)
class LinkGone:
    """A device was deleted or moved to another namespace."""

    index: int


@dataclass(frozen=True, slots=True)
class AddressSeen:
    """A device got an address that may be used."""

    index: int
    address: str


@dataclass(frozen=True, slots=True)
class AddressGone:
    """A device lost an address, or it may not be used yet."""

    index: int
    address: str


@dataclass(frozen=True, slots=True)
class AddressDuplicate:
    """A device may not use an IPv6 address, since another one answered for it."""

    index: int
    address: str


@dataclass(frozen=True, slots=True)
class NamespaceGone:
    """The id `nsid` is no longer that of a namespace."""

    nsid: int


Fact = LinkSeen | LinkGone | AddressSeen | AddressGone | AddressDuplicate | NamespaceGone


def apply(table: Table, fact: Fact) -> bool:
    """Bring `table` up to date with `fact`; return whether that changed it."""
    match fact:
        case LinkSeen(link):
            known = table.get(link.index)
            held = (known.addresses, known.duplicates) if known else ((), ())
            new = replace(link, addresses=held[0], duplicates=held[1])
        case AddressSeen(index, address) if index in table:
            known = table[index]
            new = _without(known, address)
            new = replace(new, addresses=_with(new.addresses, address))
        case AddressDuplicate(index, address) if index in table:
            known = table[index]
            new = _without(known, address)
            new = replace(new, duplicates=_with(new.duplicates, address))
        case AddressGone(index, address) if index in table:
            known = table[index]
            new = _without(known, address)
        case LinkGone(index):
            return table.pop(index, None) is not None
        case _:
            return False
    table[new.index] = new
    return new != known


def _with(kept: tuple[str, ...], address: str) -> tuple[str, ...]:
    return tuple(sorted((*kept, address))) if len(kept) < _MAX_ADDRESSES else kept


def _without(link: Link, address: str) -> Link:
    return replace(
        link,
        addresses=tuple(a for a in link.addresses if a != address),
        duplicates=tuple(a for a in link.duplicates if a != address),
    )


# --- what messages say --------------------------------------------------------------------------


def parse(data: bytes) -> Iterator[Fact]:
    """Yield what the datagram `data` says; other kinds of message and torn ones are skipped."""
    try:
        for message in MarshalRtnl().parse(data):
            # pyroute2 reads on where a message, or the datagram, ends too early.
            length = message["header"]["length"]
            if not _HEADER + message.get_size() <= length <= len(data) - message.offset:
                return
            yield from _facts(message)
    except (struct.error, OverflowError, NetlinkDecodeError):
        return


def _facts(message: Any) -> Iterator[Fact]:
    kind = message["header"]["type"]
    if kind in {rtnl.RTM_NEWLINK, rtnl.RTM_DELLINK}:
        if message["family"] != socket.AF_UNSPEC:
            return  # a bridge's or IPv6's view of the same device, or of its leaving a bridge
        if kind == rtnl.RTM_DELLINK:
            yield LinkGone(message["index"])
        elif link := _link(message):
            yield LinkSeen(link)
    elif kind in {rtnl.RTM_NEWADDR, rtnl.RTM_DELADDR}:
        yield from _of_address(message)
    elif kind == rtnl.RTM_DELNSID:
        nsid = _value(_attributes(message), "NETNSA_NSID", int)
        if nsid is not None:
            yield NamespaceGone(nsid)


def _of_address(message: Any) -> Iterator[Fact]:
    found, family = _attributes(message), message["family"]
    # On a point-to-point device IFA_ADDRESS is the other end.
    address = _value(found, "IFA_LOCAL", str) or _value(found, "IFA_ADDRESS", str)
    if not address or family not in {socket.AF_INET, socket.AF_INET6}:
        return
    if family == socket.AF_INET6 and message["scope"] >= _SCOPE_LINK:
        return  # every device has one, which comes and goes with its carrier
    flags = _value(found, "IFA_FLAGS", int) or 0
    if message["header"]["type"] == rtnl.RTM_DELADDR:
        yield AddressGone(message["index"], address)
    elif flags & _DADFAILED:
        yield AddressDuplicate(message["index"], address)
    elif flags & _TENTATIVE and not flags & _OPTIMISTIC:
        yield AddressGone(message["index"], address)
    else:
        yield AddressSeen(message["index"], address)


def _link(message: Any) -> Link | None:
    found = _attributes(message)
    name = _value(found, "IFLA_IFNAME", str) or _value(found, "IFLA_IFNAME", bytes)
    if not name:
        return None
    carrier = _value(found, "IFLA_CARRIER", int)
    info = _value(found, "IFLA_LINKINFO", dict)
    told = _attributes(info) if info else {}
    bond = _of_bond(told, "IFLA_INFO_KIND", "IFLA_INFO_DATA")
    member = _of_bond(told, "IFLA_INFO_SLAVE_KIND", "IFLA_INFO_SLAVE_DATA")
    return Link(
        index=message["index"],
        name=name if isinstance(name, str) else name.decode("utf-8", "replace"),
        kind=_value(told, "IFLA_INFO_KIND", str),
        mac=_value(found, "IFLA_ADDRESS", str) or "",
        mtu=_value(found, "IFLA_MTU", int) or 0,
        up=bool(message["flags"] & IFF_UP),
        carrier=bool(message["flags"] & IFF_LOWER_UP if carrier is None else carrier),
        operstate=(_value(found, "IFLA_OPERSTATE", str) or "unknown").lower(),
        master=_value(found, "IFLA_MASTER", int),
        peer=_value(found, "IFLA_LINK", int),
        netnsid=_value(found, "IFLA_LINK_NETNSID", int),
        carrier_changes=_value(found, "IFLA_CARRIER_CHANGES", int),
        active=_value(bond, "IFLA_BOND_ACTIVE_SLAVE", int),
        primary=_value(bond, "IFLA_BOND_PRIMARY", int),
        switch_port=_value(found, "IFLA_PHYS_PORT_NAME", str) or "",
        parent=_value(found, "IFLA_PARENT_DEV_NAME", str) or "",
        held_down=_value(member, "IFLA_BOND_SLAVE_MII_STATUS", int) == _MII_DOWN,
    )


def _of_bond(told: dict[str, Any], kind: str, data: str) -> dict[str, Any]:
    # What belongs to another kind of device is not decoded: nobody reads it.
    nested = _value(told, data, dict) if _value(told, kind, str) == "bond" else None
    return _attributes(nested) if nested else {}


def _attributes(message: Any) -> dict[str, Any]:
    return {each.name: each for each in message["attrs"]}


def _value(found: dict[str, Any], name: str, kind: type[T]) -> T | None:
    """Return an attribute, decoded only now; pyroute2 gives bytes where it cannot do that."""
    value = found[name].value if name in found else None
    return value if isinstance(value, kind) else None


# --- questions to the kernel --------------------------------------------------------------------


def dump(nsid: int | None = None) -> Table:
    """Return the devices of this namespace, or of the one known here as `nsid`.

    Raises OSError where the kernel refuses, such as for a namespace that just died.
    """
    links, four, six = ifinfmsg(), _AddressRequest(), _AddressRequest()
    four["family"], six["family"] = socket.AF_INET, socket.AF_INET6
    if nsid is not None:
        links["attrs"] = [("IFLA_IF_NETNSID", nsid)]  # the first name of IFLA_TARGET_NETNSID
        four["attrs"] = six["attrs"] = [("IFA_TARGET_NETNSID", nsid)]
    requests = (links, rtnl.RTM_GETLINK), (four, rtnl.RTM_GETADDR), (six, rtnl.RTM_GETADDR)
    table: Table = {}
    with query_socket() as query:
        for request, kind in requests:
            query.put(request, kind, NLM_F_REQUEST | NLM_F_DUMP)
            for message in _dumped(query):
                for fact in _facts(message):
                    apply(table, fact)
    return table


def _dumped(query: IPRSocket) -> Iterator[Any]:
    """Yield the answers to a dump. The kernel fills them in as we read: this does not wait."""
    while True:
        for message in query.get():
            _refuse_error(message)
            if message["header"]["type"] == NLMSG_DONE:
                return
            yield message


def nsid_of(query: IPRSocket, path: str) -> tuple[int, int]:
    """Return id (-1: none) and inode of the namespace at `path`; OSError if there is none."""
    question = nsidmsg()
    fd = os.open(path, _OPEN)
    try:
        inode = os.fstat(fd).st_ino
        question["attrs"] = [("NETNSA_FD", fd)]
        query.put(question, rtnl.RTM_GETNSID, NLM_F_REQUEST)
        (answer,) = query.get()
    finally:
        os.close(fd)
    _refuse_error(answer, path)
    nsid = answer.get_attr("NETNSA_NSID")
    return -1 if nsid == _NOT_ASSIGNED else nsid, inode


def own_nsid() -> int | None:
    """Return the id by which this namespace knows itself; None where nothing gave it one.

    The kernel gives it one to tell of a device elsewhere that sends by one in here
    (rtnl_fill_link_netnsid of net/core/rtnetlink.c).
    """
    with query_socket() as query:
        nsid, _ = nsid_of(query, "/proc/thread-self/ns/net")
    return nsid if nsid >= 0 else None


def assign_nsid(query: IPRSocket, path: str) -> int:
    """Have this namespace know the one at `path` by an id, and return it.

    Raises OSError where the kernel refuses, EEXIST where it has one.
    """
    request = nsidmsg()
    fd = os.open(path, _OPEN)
    try:
        request["attrs"] = [("NETNSA_FD", fd), ("NETNSA_NSID", _NOT_ASSIGNED)]
        query.put(request, rtnl.RTM_NEWNSID, NLM_F_REQUEST | NLM_F_ACK)
        (answer,) = query.get()
    finally:
        os.close(fd)
    _refuse_error(answer, path)
    return nsid_of(query, path)[0]


def _refuse_error(message: Any, path: str | None = None) -> None:
    # A dump that the kernel refuses ends at once, and says so only in its DONE.
    if message["header"]["type"] in {NLMSG_ERROR, NLMSG_DONE} and message["error"]:
        raise OSError(-message["error"], os.strerror(-message["error"]), path)


def query_socket() -> IPRSocket:
    """Return a socket for questions to the kernel."""
    # Without strict checking the kernel ignores which namespace an address dump asks for.
    query = IPRSocket(strict_check=True)
    query.register_policy(NLMSG_DONE, _Done)
    return query


# --- following ----------------------------------------------------------------------------------


class LinkMonitor:
    """Keeps a `LinkView` up to date: of this namespace, and of those that its owner names."""

    def __init__(self) -> None:
        self._events: IPRSocket | None = None
        self._host: Table = {}
        self._inside: dict[int, Table] = {}
        self._followed: frozenset[int] = frozenset()
        self._rereads: dict[int, asyncio.TimerHandle] = {}
        """Namespaces that are about to be read anew."""
        self._reread_s: dict[int, float] = {}
        """When namespaces were read anew last, by the loop's clock, and `_REST` times what that
        took later."""
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
        for timer in self._rereads.values():
            timer.cancel()
        if self._events is not None:
            asyncio.get_running_loop().remove_reader(self._events.fileno())
            self._events.close()
            self._events = None

    def follow(self, nsids: AbstractSet[int]) -> None:
        """Read the namespaces `nsids` from now on, and no others."""
        self._followed = frozenset(nsids)
        for nsid in set(self._inside) - self._followed:
            del self._inside[nsid]
        self._reread_s = {n: at_s for n, at_s in self._reread_s.items() if n in self._followed}
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

    def _read_soon(self, nsid: int) -> None:
        if nsid not in self._rereads:
            loop = asyncio.get_running_loop()
            due_s = self._reread_s.get(nsid, -_REREAD_S) + _REREAD_S
            self._rereads[nsid] = loop.call_at(max(due_s, loop.time()), self._reread, nsid)

    def _reread(self, nsid: int) -> None:
        del self._rereads[nsid]
        if nsid in self._inside:
            began_s = asyncio.get_running_loop().time()
            self._read(nsid)
            ended_s = asyncio.get_running_loop().time()
            self._reread_s[nsid] = began_s + _REST * (ended_s - began_s)
            self._on_change()

    def _receive(self) -> None:
        assert self._events is not None  # noqa: S101 - the reader is removed before the socket
        changed = False
        try:
            for _ in range(_BATCH):
                data, ancillary, _, _ = self._events.socket.recvmsg(_DATAGRAM, 64)
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
        if nsid is not None and nsid not in self._inside:
            return False
        changed = False
        for fact in parse(data):
            table = self._host if nsid is None else self._inside[nsid]
            match fact:
                case NamespaceGone(dead):
                    if nsid is None:
                        self._inside.pop(dead, None)
                        self.gone.add(dead)
                        changed = True
                case LinkSeen(link) if nsid is not None and link.netnsid is not None:
                    changed |= self._saw_inside(nsid, link)
                case _:
                    changed |= apply(table, fact)
        return changed

    def _saw_inside(self, nsid: int, link: Link) -> bool:
        """Take in a device that is wired to another namespace.

        An event has that one's id as the device's own namespace knows it, a dump as this one does
        (rtmsg_ifinfo_build_skb and rtnl_dump_ifinfo of net/core/rtnetlink.c).
        """
        known = self._inside[nsid].get(link.index)
        if known is None or (known.kind, known.peer) != (link.kind, link.peer):
            self._read_soon(nsid)
            return False
        return apply(self._inside[nsid], LinkSeen(replace(link, netnsid=known.netnsid)))


def _event_socket() -> IPRSocket:
    events = IPRSocket(rcvbuf=_EVENT_BUFFER)
    try:
        events.setsockopt(SOL_NETLINK, NETLINK_LISTEN_ALL_NSID, 1)
    except PermissionError as error:
        events.close()
        raise CapabilityMissing(
            "namespace events", "run as root, or with CAP_NET_ADMIN and CAP_NET_BROADCAST"
        ) from error
    with suppress(PermissionError):  # then it is as large as net.core.rmem_max lets it be
        events.setsockopt(socket.SOL_SOCKET, 33, _EVENT_BUFFER)  # SO_RCVBUFFORCE
    events.socket.setblocking(False)
    events.bind(_GROUPS)
    return events


def _sender_nsid(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if level == SOL_NETLINK and kind == NETLINK_LISTEN_ALL_NSID:
            return int(struct.unpack("=i", data[:4])[0])
    return None
