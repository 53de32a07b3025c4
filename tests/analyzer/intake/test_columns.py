# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.columns import column, columns, packed, widest
from netagent.model.errors import RemoteProtocolError
from netagent.wire.columns import narrow, pack, typecodes
from netagent.wire.messages import FlowColumns, PathColumns

NAMES = tuple(typecodes(FlowColumns))
OTHERS = [
    (kind, name)
    for kind in (FlowColumns, PathColumns)
    for name in typecodes(kind).keys() - narrow(kind)
]


@given(st.sampled_from(NAMES), st.lists(st.sampled_from([0, 9, 255, 256, 65_535])))
def test_arrays_hold_what_the_agent_packed(name, values):
    message = pack(FlowColumns, **{name: values})
    (array,) = columns(message, (name,), len(values)).values()
    assert array.tolist() == values
    assert array.dtype.itemsize <= widest(FlowColumns, name).itemsize
    assert widest(FlowColumns, name) == np.dtype(f"<{typecodes(FlowColumns)[name]}")
    assert packed(FlowColumns, name, np.array(values)) == getattr(message, name)


def test_what_an_earlier_agent_packed_is_as_wide_as_can_be():
    flows = FlowColumns(sent=b"\1\0\0\0" * 2, run=b"\2\0" * 2)
    found = columns(flows, ("sent", "run"), 2)
    assert [each.tolist() for each in found.values()] == [[1, 1], [2, 2]]


@given(st.sampled_from(OTHERS), st.binary(max_size=9), st.integers(0, 4))
def test_any_bytes_are_an_array_or_refused(which, data, rows):
    kind, name = which
    message = kind(**{name: data})
    try:
        found = column(message, name)
    except RemoteProtocolError:
        found = None
    if found is not None and len(found) == rows:
        assert columns(message, (name,), rows)[name].tobytes() == data
    else:
        with pytest.raises(RemoteProtocolError):
            columns(message, (name,), rows)


@given(st.sampled_from(sorted(narrow(FlowColumns))), st.binary(max_size=9), st.integers(0, 4))
def test_any_bytes_are_a_narrow_array_or_refused(name, data, rows):
    message = FlowColumns(**{name: data})
    widths = {0, 1, 2, widest(FlowColumns, name).itemsize} if rows else {0}
    if len(data) in {rows * width for width in widths}:
        (found,) = columns(message, (name,), rows).values()
        width = len(data) // rows if rows else 0
        naive = [int.from_bytes(data[n * width : (n + 1) * width], "little") for n in range(rows)]
        assert found.tolist() == naive
    else:
        with pytest.raises(RemoteProtocolError):
            columns(message, (name,), rows)
