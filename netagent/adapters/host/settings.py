# SPDX-License-Identifier: Apache-2.0
"""Settings of a network device that sysfs does not have: by ethtool's calls and DCB's netlink."""

import fcntl
import socket
import struct
from array import array
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass

from netagent.adapters.host.netlink import query_socket
from netagent.adapters.host.pyroute import (
    IFNAMSIZ,
    NLM_F_REQUEST,
    NLMSG_ERROR,
    IoctlEthtool,
    NetlinkDecodeError,
    NetlinkError,
    NoSuchDevice,
    NotSupportedError,
    nla,
    nlmsg,
)

_SIOCETHTOOL, _ETHTOOL_GDRVINFO = 0x8946, 3
"""Of linux/sockios.h and linux/ethtool.h."""
_DRVINFO = struct.Struct("=I32s32s32s32s32s12s5I")
"""struct ethtool_drvinfo: command, driver, version, firmware, bus, ..."""
_IFREQ = struct.Struct("@16sP")
_RTM_GETDCB, _IEEE_GET = 78, 21
"""Of linux/rtnetlink.h, and DCB_CMD_IEEE_GET of linux/dcbnl.h."""
_PFC_ENABLED = 1
"""Where struct ieee_pfc of linux/dcbnl.h has a bit for each priority."""
_ATTRIBUTE = struct.Struct("=HH")
"""struct nlattr of linux/netlink.h: length, with this, and type."""
_TYPE_MASK = 0x3FFF
"""NLA_TYPE_MASK: without NLA_F_NESTED and NLA_F_NET_BYTEORDER."""
_IEEE_APP, _DSCP = 1, 5
"""DCB_ATTR_IEEE_APP, and IEEE_8021QAZ_APP_SEL_DSCP, the first byte of struct dcb_app."""
_TELL_TRUST = ("mlx5_core",)
"""Drivers of ports that trust DSCP just as long as there is a DSCP among their APP entries:
mlx5e_dcbnl_ieee_setapp, _delapp and mlx5e_trust_initialize of the kernel's mlx5/core/en_dcbnl.c."""
_FEATURE = "hw-tc-offload"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a device says of itself."""

    driver: str = ""
    driver_version: str = ""
    firmware: str = ""
    offload: bool | None = None
    """Whether it takes flows from the kernel; None: it cannot, or does not say."""
    pause: tuple[int, ...] | None = None
    """Priorities with PFC; None where it does not say."""
    trust: str = ""
    """By what it finds a packet's priority, ``dscp`` or ``pcp``; "" where it does not say."""


class _Ieee(nla):  # type: ignore[misc]
    """What IEEE 802.1Qaz has."""

    nla_map = ((2, "DCB_ATTR_IEEE_PFC", "cdata"), (3, "DCB_ATTR_IEEE_APP_TABLE", "cdata"))


class _Dcb(nlmsg):  # type: ignore[misc]
    """struct dcbmsg, and what follows."""

    fields = (("dcb_family", "B"), ("cmd", "B"), ("dcb_pad", "H"))
    nla_map = ((1, "DCB_ATTR_IFNAME", "asciiz"), (13, "DCB_ATTR_IEEE", "ieee"))
    ieee = _Ieee


def settings_of(netdev: str) -> Settings:
    """Return what `netdev` of this thread's namespace says; the rest is absent."""
    if len(netdev.encode()) >= IFNAMSIZ:
        return Settings()  # no device has such a name
    driver, version, firmware = _driver(netdev)
    said = _dcb(netdev)
    pause, trust = (paused(said), trusted(said, driver)) if said is not None else (None, "")
    return Settings(driver, version, firmware, _offload(netdev), pause, trust)


def _driver(netdev: str) -> tuple[str, str, str]:
    told = array("B", _DRVINFO.pack(_ETHTOOL_GDRVINFO, *[b""] * 6, *[0] * 5))
    request = _IFREQ.pack(netdev.encode(), told.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            fcntl.ioctl(asking, _SIOCETHTOOL, request)
    except OSError:
        return "", "", ""
    _, driver, version, firmware, *_ = _DRVINFO.unpack(told.tobytes())
    return _text(driver), _text(version), _text(firmware)


def _text(padded: bytes) -> str:
    return padded.partition(b"\0")[0].decode("ascii", "replace").strip()


def _offload(netdev: str) -> bool | None:
    try:
        with closing(IoctlEthtool(netdev)) as asking:
            features = asking.get_features()
        on, can = features.is_active(_FEATURE), features.is_available(_FEATURE)
    except (OSError, KeyError, NotSupportedError, NoSuchDevice):
        return None
    return bool(on) if on or can else None


def _dcb(netdev: str) -> nlmsg | None:
    """Return the answer to DCB_CMD_IEEE_GET; None without one."""
    request = _Dcb()
    request["cmd"] = _IEEE_GET
    request["attrs"] = [("DCB_ATTR_IFNAME", netdev)]
    odd = (OSError, NetlinkError, NetlinkDecodeError, ValueError, struct.error)
    with suppress(*odd), query_socket() as asking:
        asking.register_policy(_RTM_GETDCB, _Dcb)
        asking.put(request, _RTM_GETDCB, NLM_F_REQUEST)
        (answer,) = asking.get()
        if answer["header"]["type"] != NLMSG_ERROR:
            return answer
    return None


def paused(answer: nlmsg) -> tuple[int, ...] | None:
    """Return the priorities with PFC in an answer to DCB_CMD_IEEE_GET; None where it has none."""
    with suppress(NetlinkDecodeError, struct.error, AttributeError):
        told = answer.get_attr("DCB_ATTR_IEEE").get_attr("DCB_ATTR_IEEE_PFC")
        if isinstance(told, bytes) and len(told) > _PFC_ENABLED:
            return tuple(bit for bit in range(8) if told[_PFC_ENABLED] & 1 << bit)
    return None


def trusted(answer: nlmsg, driver: str) -> str:
    """Return what a port trusts, by an answer to DCB_CMD_IEEE_GET; "" where that does not tell.

    An entry for a DSCP says that it is DSCP. That there is none says something of few drivers.
    """
    with suppress(NetlinkDecodeError, struct.error, AttributeError):
        table = answer.get_attr("DCB_ATTR_IEEE").get_attr("DCB_ATTR_IEEE_APP_TABLE")
        if isinstance(table, bytes):
            if any(kind == _IEEE_APP and app[:1] == bytes([_DSCP]) for kind, app in _each(table)):
                return "dscp"
            return "pcp" if driver in _TELL_TRUST else ""
    return ""


def _each(attributes: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and content of each attribute, up to one that is none."""
    while len(attributes) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(attributes)
        if not _ATTRIBUTE.size <= length <= len(attributes):
            return
        yield kind & _TYPE_MASK, attributes[_ATTRIBUTE.size : length]
        attributes = attributes[length + -length % 4 :]
