# SPDX-License-Identifier: Apache-2.0
"""What a helper process gives up before it reads what others sent."""

import ctypes
import os
from collections.abc import Iterable

DAC_OVERRIDE, DAC_READ_SEARCH = 1, 2
"""Numbers of CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (linux/capability.h): files, and sockets that
are files, of other users."""
_VERSION = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3 of linux/capability.h."""
_PR_SET_NO_NEW_PRIVS = 38
"""Operation PR_SET_NO_NEW_PRIVS of linux/prctl.h."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def keep_only(capabilities: Iterable[int]) -> None:
    """Give up all capabilities but these (numbers), for this process and all that it starts.

    Those that it has not are not gained. Raises OSError where the kernel refuses (capget(2)).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(_VERSION, 0), (_Data * 2)()
    _checked(libc.capget(ctypes.byref(header), sets))
    kept = sum(1 << number for number in capabilities)
    for number, each in enumerate(sets):
        mask = kept >> 32 * number & 0xFFFFFFFF
        each.permitted &= mask
        each.effective &= mask
        each.inheritable = 0
    # Else root's programs have all capabilities again (capabilities(7)).
    _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(libc.capset(ctypes.byref(header), sets))


def _checked(result: int) -> None:
    if result:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
