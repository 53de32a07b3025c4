# SPDX-License-Identifier: Apache-2.0
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.adapters.host.settings import Settings, _Dcb, paused, settings_of, trusted


def attribute(kind: int, content: bytes) -> bytes:
    """Return an attribute of netlink, padded."""
    return struct.pack("=HH", 4 + len(content), kind) + content + b"\0" * (-len(content) % 4)


def answer(pfc: bytes | None, apps: bytes | None = None) -> _Dcb:
    """Return an answer to DCB_CMD_IEEE_GET, as dcbnl_ieee_fill of net/dcb/dcbnl.c makes it."""
    name = struct.pack("=HH", 4 + 6, 1) + b"rnic0\0\0\0"
    inner = b"" if pfc is None else attribute(2, pfc)
    inner += b"" if apps is None else attribute(3, apps)
    body = b"\0\x15\0\0" + name + struct.pack("=HH", 4 + len(inner), 13) + inner
    message = _Dcb(struct.pack("=IHHII", 16 + len(body), 78, 0, 1, 0) + body)
    message.decode()
    return message


ETHERTYPE, DSCP_26 = struct.pack("=BBH", 1, 4, 0x8906), struct.pack("=BBH", 5, 3, 26)
"""struct dcb_app: FCoE by its type with priority 4, DSCP 26 with priority 3."""


def ieee_pfc(enabled: int) -> bytes:
    """Return struct ieee_pfc: capable of 8, `enabled`, no MACsec bypass, a delay, 16 counters."""
    return struct.pack("@BBBH16Q", 8, enabled, 0, 7, *range(16))


@pytest.mark.parametrize(("bits", "priorities"), [(0, ()), (0b1000, (3,)), (0b10001, (0, 4))])
def test_priorities_with_pfc_are_read(bits, priorities):
    assert paused(answer(ieee_pfc(bits))) == priorities


def test_an_answer_without_pfc_says_nothing():
    assert paused(answer(None)) is None
    assert paused(answer(b"\x08")) is None


@pytest.mark.parametrize(
    ("apps", "of_mlx5", "of_others"),
    [
        ([], "pcp", ""),
        ([ETHERTYPE], "pcp", ""),
        ([ETHERTYPE, DSCP_26], "dscp", "dscp"),
        ([DSCP_26] * 64, "dscp", "dscp"),
        (None, "", ""),
    ],
)
def test_what_a_port_trusts_is_read_where_its_driver_tells(apps, of_mlx5, of_others):
    table = None if apps is None else b"".join(attribute(1, each) for each in apps)
    said = answer(ieee_pfc(0b1000), table)
    assert (trusted(said, "mlx5_core"), trusted(said, "bnxt_en")) == (of_mlx5, of_others)
    assert paused(said) == (3,)


@given(st.binary(max_size=40))
def test_a_damaged_table_is_read_to_its_end(table):
    assert trusted(answer(None, table), "bnxt_en") in {"", "dscp"}


def test_a_device_of_software_says_its_driver_at_most():
    loopback = settings_of("lo")
    assert (loopback.offload, loopback.pause, loopback.firmware) == (None, None, "")
    assert loopback.trust == ""


@pytest.mark.parametrize("name", ["nonesuch", "x" * 40, ""])
def test_a_device_that_is_not_there_says_nothing(name):
    assert settings_of(name) == Settings()
