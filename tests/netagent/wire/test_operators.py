# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import decode, encode
from netagent.wire.columns import pack, unpack
from netagent.wire.messages import Summary
from netagent.wire.operators import (
    MOST_PROCESSES,
    OperatorColumns,
    OperatorProcess,
    OperatorsRequest,
)


def test_a_summary_brings_them_and_an_older_agent_says_none():
    said = pack(OperatorColumns, ops=("all_reduce",), process=[0], sum_us=[1 << 40], count=[3])
    summary = Summary(host="h0", instance="a", start_ns=0, width_ns=1, operators=said)
    read = decode(encode(summary), Summary)
    assert read.operators == said
    assert list(unpack(read.operators, "sum_us")) == [1 << 40]
    older = msgspec.structs.replace(summary, operators=None)
    assert decode(encode(older), Summary).operators is None


def test_more_processes_than_a_host_has_are_refused():
    many = tuple(OperatorProcess(job="a", rank=n) for n in range(MOST_PROCESSES + 1))
    with pytest.raises(RemoteProtocolError):
        decode(encode(OperatorColumns(processes=many)), OperatorColumns)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(data):
    try:
        read = decode(data, OperatorsRequest)
    except RemoteProtocolError:
        return
    assert read.most >= 1
