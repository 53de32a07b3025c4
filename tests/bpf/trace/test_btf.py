# SPDX-License-Identifier: Apache-2.0
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpf.trace.btf import MAX_BYTES, Btf
from netagent.model.errors import RemoteProtocolError
from tests.bpf.blobs import CONST, TYPEDEF, UNION, Blob


def kernel() -> Blob:
    """Return a small kernel: struct packet holds an anonymous union of an anonymous struct."""
    blob = Blob()
    number = blob.integer()
    inner = blob.record("", [("dev", number, 0), ("len", number, 32)])
    named = blob.add(TYPEDEF, "inner_t", blob.add(CONST, "", inner))
    union = blob.record("", [("rb", number, 0), ("", named, 64)], kind=UNION)
    blob.add(7, "packet", 0)  # a forward declaration has no members
    blob.record("packet", [("next", number, 0), ("", union, 128), ("end", number, 512)])
    width = 4 << 24
    blob.record("flags", [("first", number, width | 3), ("last", number, width | 40)], bits=True)
    blob.enum("reason", {"NONE": 0, "OTHER": 2})
    blob.enum("wide", {"LOW": 1, "HIGH": 1 << 32}, large=True)
    return blob


def test_members_are_found_within_anonymous_ones():
    btf = Btf(kernel().bytes())
    assert btf.offset("packet", "next") == 0
    assert btf.offset("packet", "rb") == 16
    assert btf.offset("packet", "dev") == 24
    assert btf.offset("packet", "len") == 28
    assert btf.offset("packet", "end") == 64
    assert btf.offset("flags", "last") == 5


def test_enums_of_both_widths():
    btf = Btf(kernel().bytes())
    assert btf.enumerators("reason") == {0: "NONE", 2: "OTHER"}
    assert btf.enumerators("wide") == {1: "LOW", 1 << 32: "HIGH"}
    assert btf.enumerators("packet") == {}


@pytest.mark.parametrize(("name", "member"), [("packet", "nothing"), ("nothing", "dev")])
def test_what_is_not_there_is_named(name, member):
    with pytest.raises(RemoteProtocolError, match=f"no {member} in struct {name}"):
        Btf(kernel().bytes()).offset(name, member)


def test_a_module_continues_the_kernels_types_and_names():
    base = Btf(kernel().bytes())
    blob = Blob(base.end_id, base.end_string)
    anonymous = 4  # the typedef's id in the kernel
    blob.record("vport", [("dev", 1, 0), ("", anonymous, 64)])
    module = Btf(blob.bytes(), base)
    assert module.offset("vport", "dev") == 0
    assert module.offset("vport", "len") == 12
    with pytest.raises(RemoteProtocolError):
        module.offset("packet", "dev")  # the kernel's own are asked of the kernel


def test_types_that_contain_themselves_end():
    blob = Blob()
    blob.record("loop", [("", 1, 0)])
    blob.add(TYPEDEF, "round", 2)
    blob.record("through", [("", 2, 0)])
    btf = Btf(blob.bytes())
    for name in ("loop", "through"):
        with pytest.raises(RemoteProtocolError):
            btf.offset(name, "x")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "shorter"),
        (b"\x9f\xeb\2\0" + bytes(20), "version 1"),
        (b"\xeb\x9f\1\0" + bytes(20), "little-endian"),
        (struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 9, 9, 9), "beyond"),
        (struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 6, 6, 0) + bytes(6), "cut short"),
        (struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 12, 12, 0) + b"\xff" * 12, "unknown kind"),
        (struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 12, 12, 0)
         + struct.pack("<III", 0, 4 << 24 | 1, 8), "cut short"),
    ],
)  # fmt: skip
def test_what_is_no_btf_is_refused(data, text):
    with pytest.raises(RemoteProtocolError, match=text):
        Btf(data)


def test_a_huge_file_is_refused():
    with pytest.raises(RemoteProtocolError, match="bytes"):
        Btf(bytes(MAX_BYTES + 1))


@given(st.data())
def test_damaged_btf_is_read_or_refused(data):
    whole = bytearray(kernel().bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    with suppress(RemoteProtocolError):  # any other error fails
        btf = Btf(damaged)
        assert isinstance(btf.enumerators("reason"), dict)
        assert btf.offset("packet", "len") >= 0
