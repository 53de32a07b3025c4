# SPDX-License-Identifier: Apache-2.0
"""RDMA netlink: devices, ports, statistics and resources, and word of their changes.

It answers for the network namespace in which the socket is made: in shared mode with all devices,
in exclusive mode with those of the namespace; a port's netdev only if it is there as well. Unlike
sysfs it gives a driver's counters in every namespace. It knows neither GIDs nor the active MTU.

pyroute2 has no messages of this family; its classes make and read the ones here. The names are
those of include/uapi/rdma/rdma_netlink.h without their prefix.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from netagent.adapters.host.pyroute import (
    NLM_F_DUMP,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    NetlinkDecodeError,
    nla,
    nlmsg,
    rtnl,
)
from netagent.model.errors import CapabilityMissing, RemoteProtocolError

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

NETLINK_KOBJECT_UEVENT, NETLINK_RDMA = 15, 20
"""Netlink families of linux/netlink.h."""

_NLDEV = 5 << 10
"""Message type of the client RDMA_NL_NLDEV (5); the low ten bits are the command
(RDMA_NL_GET_TYPE)."""
_GET, _PORT_GET, _SYS_GET, _RES_GET, _STAT_GET = 1, 5, 6, 9, 17
"""Commands RDMA_NLDEV_CMD_GET, _PORT_GET, _SYS_GET, _RES_GET and _STAT_GET."""
_GROUP_NOTIFY = 4
"""Multicast group RDMA_NL_GROUP_NOTIFY, on which the kernel reports changes."""
_HEADER = struct.Struct("=IHHII")
_DATAGRAM = 1 << 18
"""Bytes read of one answer. Chosen: the statistics of a port with many counters fit."""
_ANSWER_S = 2.0
"""Seconds the kernel has to answer. Chosen: a driver that asks its firmware takes milliseconds."""

_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
_PHYS_STATES = (
    "NOP", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp",
    "LinkErrorRecovery", "Phy Test",
)  # fmt: skip
"""Physical states of a port, as sysfs writes them."""

_MODES = ("exclusive", "shared")


class _Entry(nla):  # type: ignore[misc]
    """An entry of a nested table; unused numbers are left out."""

    nla_map = (
        (17, "RES_SUMMARY_ENTRY_NAME", "asciiz"),
        (18, "RES_SUMMARY_ENTRY_CURR", "uint64"),
        (82, "STAT_HWCOUNTER_ENTRY_NAME", "asciiz"),
        (83, "STAT_HWCOUNTER_ENTRY_VALUE", "uint64"),
    )


class _Table(nla):  # type: ignore[misc]
    """Nested entries."""

    nla_map = ((16, "RES_SUMMARY_ENTRY", "entry"), (81, "STAT_HWCOUNTER_ENTRY", "entry"))
    entry = _Entry


class _Message(nlmsg):  # type: ignore[misc]
    """Any message of the device interface."""

    nla_map = (
        (1, "DEV_INDEX", "uint32"),
        (2, "DEV_NAME", "asciiz"),
        (3, "PORT_INDEX", "uint32"),
        (5, "FW_VERSION", "asciiz"),
        (6, "NODE_GUID", "uint64"),
        (12, "PORT_STATE", "uint8"),
        (13, "PORT_PHYS_STATE", "uint8"),
        (15, "RES_SUMMARY", "table"),
        (50, "NDEV_INDEX", "uint32"),
        (51, "NDEV_NAME", "asciiz"),
        (66, "SYS_NETNS_MODE", "uint8"),
        (67, "DEV_PROTOCOL", "asciiz"),
        (80, "STAT_HWCOUNTERS", "table"),
        (103, "SYS_MONITOR_MODE", "uint8"),
    )
    table = _Table


@dataclass(frozen=True, slots=True)
class RdmaLink:
    """A port as rdma netlink reports it."""

    index: int
    """Number of the device; a new one each time that it is made."""
    device: str
    port: int
    state: str
    phys_state: str
    netdev: str | None = None
    """None where its netdev is in another namespace."""
    netdev_index: int | None = None


@dataclass(frozen=True, slots=True)
class RdmaSystem:
    """Settings of the whole host."""

    mode: str
    """``shared``: every namespace sees all devices; ``exclusive``: its own."""
    monitor: bool
    """Whether the kernel reports changes by rdma netlink (since Linux 6.12)."""


class RdmaQuery:
    """A socket for questions; it belongs to the namespace of the thread that makes it.

    Raises CapabilityMissing where the kernel has no RDMA (or has not loaded it yet). Every question
    raises OSError if the kernel refuses it, RemoteProtocolError if its answer makes no sense.
    """

    def __init__(self) -> None:
        self._socket = _open(NETLINK_RDMA)
        self._socket.settimeout(_ANSWER_S)
        self._sequence = 0

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def system(self) -> RdmaSystem:
        """Return the host's settings."""
        for message in self._ask(_SYS_GET):
            return RdmaSystem(
                _name(_MODES, _value(message, "SYS_NETNS_MODE", int)),
                bool(_value(message, "SYS_MONITOR_MODE", int)),
            )
        raise RemoteProtocolError("rdma netlink: no answer to SYS_GET")

    def links(self) -> tuple[RdmaLink, ...]:
        """Return the ports of all devices that this namespace sees."""
        return tuple(
            link
            for device in self._ask(_GET, dump=True)
            for message in self._ask(
                _PORT_GET, dump=True, DEV_INDEX=_required(device, "DEV_INDEX", int)
            )
            for link in (_link(message),)
        )

    def statistics(self, index: int, port: int) -> dict[str, int]:
        """Return the driver's counters of a port; none where it has none."""
        try:
            answers = list(self._ask(_STAT_GET, DEV_INDEX=index, PORT_INDEX=port))
        except OSError as error:
            if error.errno in {errno.EINVAL, errno.EOPNOTSUPP}:
                return {}  # the device is gone, or its driver counts nothing
            raise
        return _table(answers, "STAT_HWCOUNTERS", "STAT_HWCOUNTER_ENTRY", "VALUE")

    def resources(self) -> dict[str, dict[str, int]]:
        """Return how many objects of each kind (``qp``, ``mr``, ...) each device has now."""
        return {
            _required(device, "DEV_NAME", str): _table(
                [device], "RES_SUMMARY", "RES_SUMMARY_ENTRY", "CURR"
            )
            for device in self._ask(_RES_GET, dump=True)
        }

    def _ask(self, command: int, *, dump: bool = False, **attributes: Any) -> Iterator[Any]:
        """Yield the answers to one question, all of them read before the first is given out."""
        self._sequence += 1
        request = _Message()
        request["attrs"] = list(attributes.items())
        request["header"]["type"] = _NLDEV | command
        request["header"]["flags"] = NLM_F_REQUEST | (NLM_F_DUMP if dump else 0)
        request["header"]["sequence_number"] = self._sequence
        request.encode()
        self._socket.send(request.data)
        answers: list[Any] = []
        while True:
            for kind, message in parse(self._socket.recv(_DATAGRAM), self._sequence):
                if kind == NLMSG_DONE:
                    return iter(answers)
                answers.append(message)
            if not dump and answers:
                return iter(answers)


def parse(data: bytes, sequence: int) -> Iterator[tuple[int, Any]]:
    """Yield kind and content of the messages in `data` that answer the question `sequence`.

    Raises OSError where the kernel answers with an error, RemoteProtocolError for what is torn.
    """
    at = 0
    while at < len(data):
        try:
            length, kind, _, number, _ = _HEADER.unpack_from(data, at)
            if not _HEADER.size <= length <= len(data) - at:
                raise RemoteProtocolError(f"rdma netlink: message of {length} bytes")
            body = data[at : at + length]
            if number == sequence:
                yield kind, _content(kind, body)
        except (struct.error, OverflowError, NetlinkDecodeError) as error:
            raise RemoteProtocolError(f"rdma netlink: {error}") from error
        at += length + 3 & ~3


def _content(kind: int, body: bytes) -> Any:
    if kind in {NLMSG_ERROR, NLMSG_DONE}:
        # A dump that is refused ends at once, and says so only in its DONE.
        (code,) = struct.unpack_from("=i", body, _HEADER.size)
        if code < 0:
            raise OSError(-code, os.strerror(-code))
        return None
    message = _Message(body)
    message.decode()
    return message


def _link(message: Any) -> RdmaLink:
    return RdmaLink(
        index=_required(message, "DEV_INDEX", int),
        device=_required(message, "DEV_NAME", str),
        port=_required(message, "PORT_INDEX", int),
        state=_name(_STATES, _value(message, "PORT_STATE", int)),
        phys_state=_name(_PHYS_STATES, _value(message, "PORT_PHYS_STATE", int)),
        netdev=_value(message, "NDEV_NAME", str),
        netdev_index=_value(message, "NDEV_INDEX", int),
    )


def _table(messages: list[Any], table: str, entry: str, value: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for message in messages:
        nested = _value(message, table, nla)
        for each in nested.get_attrs(entry) if nested is not None else ():
            name = _required(_checked(each, entry, nla), f"{entry}_NAME", str)
            found[name] = _required(each, f"{entry}_{value}", int)
    return found


def _required(message: Any, name: str, kind: type[T]) -> T:
    value = _value(message, name, kind)
    if value is None:
        raise RemoteProtocolError(f"rdma netlink: no {name}")
    return value


def _value(message: Any, name: str, kind: type[T]) -> T | None:
    value = message.get_attr(name)
    return None if value is None else _checked(value, name, kind)


def _checked(value: Any, name: str, kind: type[T]) -> T:
    # pyroute2 gives bytes where it cannot decode.
    if not isinstance(value, kind):
        raise RemoteProtocolError(f"rdma netlink: {name} is torn")
    return value


def _name(names: tuple[str, ...], number: int | None) -> str:
    if number is None:
        return ""
    return names[number] if number < len(names) else str(number)


# --- changes --------------------------------------------------------------------------------------


class RdmaChanges:
    """Hears that something about RDMA devices may have changed; what, is then to be read.

    Devices that come, go or are renamed: uevents. Links and addresses, hence ports and GIDs: route
    netlink of this namespace. Netdevs that join or leave a device: rdma netlink, on kernels that
    report it (`RdmaSystem.monitor`); older ones take the membership and keep silent.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        try:
            for family, groups in (
                (socket.NETLINK_ROUTE, (rtnl.RTNLGRP_LINK, *_ADDRESS_GROUPS)),
                (NETLINK_KOBJECT_UEVENT, (1,)),
                (NETLINK_RDMA, (_GROUP_NOTIFY,)),
            ):
                # Nobody loads RDMA's modules for a host that has no use for them.
                with suppress(CapabilityMissing):
                    self._sockets.append(_listen(family, groups))
        except BaseException:
            self.close()
            raise

    def filenos(self) -> tuple[int, ...]:
        """Return the descriptors that become readable with a change."""
        return tuple(each.fileno() for each in self._sockets)

    def take(self) -> bool:
        """Empty the sockets; return whether there was anything of concern."""
        concerns = [_drained(each) for each in self._sockets]
        return any(concerns)

    def close(self) -> None:
        """Give the sockets back."""
        for each in self._sockets:
            each.close()
        self._sockets.clear()


_ADDRESS_GROUPS = (rtnl.RTNLGRP_IPV4_IFADDR, rtnl.RTNLGRP_IPV6_IFADDR)
_MOST = 64
"""Datagrams read in one go. Chosen: a flood of events does not hold up what else the agent does."""
_CONCERN = b"/infiniband"


def _listen(family: int, groups: tuple[int, ...]) -> socket.socket:
    made = _open(family)
    try:
        made.setblocking(False)
        made.bind((0, sum(1 << (group - 1) for group in groups)))
    except BaseException:
        made.close()
        raise
    return made


def _drained(source: socket.socket) -> bool:
    found = False
    for _ in range(_MOST):
        try:
            data = source.recv(8192)
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return True  # the kernel sent more than fits
        found |= source.proto != NETLINK_KOBJECT_UEVENT or _CONCERN in data
    return found


def _open(family: int) -> socket.socket:
    try:
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
    except OSError as error:
        if error.errno != errno.EPROTONOSUPPORT:
            raise
        remedy = "load the RNIC's driver (or rdma_rxe)"
        raise CapabilityMissing("RDMA", remedy) from error
    return made
