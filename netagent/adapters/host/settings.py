# SPDX-License-Identifier: Apache-2.0
"""Settings of a network device that sysfs does not have: by ethtool's calls and DCB's netlink."""

import fcntl
import socket
import struct
from array import array
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


class _Ieee(nla):  # type: ignore[misc]
    """What IEEE 802.1Qaz has."""

    nla_map = ((2, "DCB_ATTR_IEEE_PFC", "cdata"),)


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
    return Settings(driver, version, firmware, _offload(netdev), _pause(netdev))


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


def _pause(netdev: str) -> tuple[int, ...] | None:
    request = _Dcb()
    request["cmd"] = _IEEE_GET
    request["attrs"] = [("DCB_ATTR_IFNAME", netdev)]
    odd = (OSError, NetlinkError, NetlinkDecodeError, ValueError, struct.error)
    with suppress(*odd), query_socket() as asking:
        asking.register_policy(_RTM_GETDCB, _Dcb)
        asking.put(request, _RTM_GETDCB, NLM_F_REQUEST)
        (answer,) = asking.get()
        if answer["header"]["type"] != NLMSG_ERROR:
            return paused(answer)
    return None


def paused(answer: nlmsg) -> tuple[int, ...] | None:
    """Return the priorities with PFC in an answer to DCB_CMD_IEEE_GET; None where it has none."""
    with suppress(NetlinkDecodeError, struct.error, AttributeError):
        told = answer.get_attr("DCB_ATTR_IEEE").get_attr("DCB_ATTR_IEEE_PFC")
        if isinstance(told, bytes) and len(told) > _PFC_ENABLED:
            return tuple(bit for bit in range(8) if told[_PFC_ENABLED] & 1 << bit)
    return None
