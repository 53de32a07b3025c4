# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.columns import column, columns
from netagent.model.errors import RemoteProtocolError
from netagent.wire.columns import pack, typecodes, unpack
from netagent.wire.messages import FlowColumns

NAMES = tuple(typecodes(FlowColumns))


@given(st.sampled_from(NAMES), st.lists(st.integers(0, 9)))
def test_arrays_hold_what_the_agent_packed(name, values):
    message = pack(FlowColumns, **{name: values})
    assert column(message, name).tolist() == unpack(message, name).tolist() == values
    (array,) = columns(message, (name,), len(values)).values()
    assert array.tolist() == values


@given(st.sampled_from(NAMES), st.binary(max_size=9), st.integers(0, 4))
def test_any_bytes_are_an_array_or_refused(name, data, rows):
    message = FlowColumns(**{name: data})
    try:
        found = column(message, name)
    except RemoteProtocolError:
        found = None
    if found is not None and len(found) == rows:
        assert columns(message, (name,), rows)[name].tobytes() == data
    else:
        with pytest.raises(RemoteProtocolError):
            columns(message, (name,), rows)
