# SPDX-License-Identifier: Apache-2.0
import struct

import pytest

from netagent.adapters.host.settings import Settings, _Dcb, paused, settings_of


def answer(pfc: bytes | None) -> _Dcb:
    """Return an answer to DCB_CMD_IEEE_GET, as dcbnl_ieee_fill of net/dcb/dcbnl.c makes it."""
    name = struct.pack("=HH", 4 + 6, 1) + b"rnic0\0\0\0"
    inner = b"" if pfc is None else struct.pack("=HH", 4 + len(pfc), 2) + pfc
    inner += b"\0" * (-len(inner) % 4)
    body = b"\0\x15\0\0" + name + struct.pack("=HH", 4 + len(inner), 13) + inner
    message = _Dcb(struct.pack("=IHHII", 16 + len(body), 78, 0, 1, 0) + body)
    message.decode()
    return message


def ieee_pfc(enabled: int) -> bytes:
    """Return struct ieee_pfc: capable of 8, `enabled`, no MACsec bypass, a delay, 16 counters."""
    return struct.pack("@BBBH16Q", 8, enabled, 0, 7, *range(16))


@pytest.mark.parametrize(("bits", "priorities"), [(0, ()), (0b1000, (3,)), (0b10001, (0, 4))])
def test_priorities_with_pfc_are_read(bits, priorities):
    assert paused(answer(ieee_pfc(bits))) == priorities


def test_an_answer_without_pfc_says_nothing():
    assert paused(answer(None)) is None
    assert paused(answer(b"\x08")) is None


def test_a_device_of_software_says_its_driver_at_most():
    loopback = settings_of("lo")
    assert (loopback.offload, loopback.pause, loopback.firmware) == (None, None, "")


@pytest.mark.parametrize("name", ["nonesuch", "x" * 40, ""])
def test_a_device_that_is_not_there_says_nothing(name):
    assert settings_of(name) == Settings()
