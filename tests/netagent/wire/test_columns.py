# SPDX-License-Identifier: Apache-2.0
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import RemoteProtocolError
from netagent.wire.columns import NAMES, narrow, pack, pack_column, typecodes, unpack
from netagent.wire.messages import (
    CounterColumns,
    FlowColumns,
    PathColumns,
    Summary,
    TrafficBlock,
)

MESSAGES = (FlowColumns, PathColumns, CounterColumns, TrafficBlock, Summary)
COLUMNS = [(message, name) for message in MESSAGES for name in typecodes(message)]


def test_every_field_of_bytes_is_a_column():
    for message in MESSAGES:
        empty = message.__struct_defaults__
        named = message.__struct_fields__[-len(empty) :]
        packed = {name for name, default in zip(named, empty, strict=True) if default == b""}
        assert set(typecodes(message)) == packed
    assert set(NAMES) == {"B", "H", "I", "Q", "f"}


@given(st.sampled_from(COLUMNS), st.lists(st.integers(0, 255), max_size=5))
def test_columns_are_little_endian_and_come_back(column, values):
    message, name = column
    code = typecodes(message)[name]
    if name in narrow(message):
        code = "B" if any(values) else ""
    data = pack_column(message, name, values)
    assert data == (struct.pack(f"<{len(values)}{code}", *values) if code else b"")


@pytest.mark.parametrize(
    ("name", "largest", "code"),
    [
        ("run", 0, ""), ("run", 255, "B"), ("run", 256, "H"), ("run", 65535, "H"),
        ("sent", 1, "B"), ("sent", 65535, "H"), ("sent", 65536, "I"), ("sent", 2**32 - 1, "I"),
    ],
)  # fmt: skip
def test_a_narrow_column_is_as_wide_as_its_largest_item_needs(name, largest, code):
    data = pack_column(FlowColumns, name, [0, largest, 0])
    assert data == (struct.pack(f"<3{code}", 0, largest, 0) if code else b"")


@given(st.lists(st.integers(0, (1 << 64) - 1)), st.lists(st.integers(0, (1 << 16) - 1)))
def test_what_is_packed_is_unpacked(deltas, devices):
    packed = pack(CounterColumns, delta=deltas, device=iter(devices), devices=("d",), omitted=3)
    assert unpack(packed, "delta").tolist() == deltas
    assert unpack(packed, "device").tolist() == devices
    assert (packed.devices, packed.omitted, packed.counter) == (("d",), 3, b"")


def test_a_value_too_large_for_its_column_is_our_own_fault():
    with pytest.raises(OverflowError):
        pack(FlowColumns, run=[1 << 16])


@pytest.mark.parametrize(("name", "item"), [("device", "u16"), ("delta", "u64")])
def test_bytes_that_are_no_array_are_refused(name, item):
    with pytest.raises(RemoteProtocolError, match=f"3 bytes are no array of {item}"):
        unpack(CounterColumns(**{name: b"abc"}), name)
