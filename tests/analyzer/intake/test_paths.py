# SPDX-License-Identifier: Apache-2.0
from contextlib import nullcontext
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzer.intake.paths import paths_of
from netagent.collect.windows import TracedPath, WindowTally
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.model.path import MAX_HOPS
from netagent.model.window import Window
from netagent.wire.codec import decode, encode
from netagent.wire.messages import Health, Summary

FLOW = FlowId(EndpointId("a", 0), EndpointId("d", 0), 40000)
TRACED = st.builds(
    TracedPath,
    st.builds(FlowId, *[st.sampled_from([FLOW.source, FLOW.target])] * 2, st.just(1)),
    reply=st.booleans(),
    outer_port=st.integers(1, 2),
    hops=st.sampled_from([(), *product("xy", repeat=1), *product("xy", repeat=2)]),
)


def summary_of(*traced):
    tally = WindowTally(large_class=2)
    made = tally.close(
        Window(0, 5), host="h", instance="i", paths=traced, findings=(), health=Health()
    )
    return decode(encode(made), Summary)


def rows_of(*traced):
    table = paths_of(summary_of(*traced))
    return table.rows(np.arange(len(table)))


def test_paths_come_back_as_they_were_traced():
    traced = TracedPath(FLOW, reply=True, outer_port=51000, hops=("leaf", "", "leaf2"))
    (row,) = rows_of(traced)
    assert (row.flow, row.reply, row.outer_port, row.hops) == (FLOW, True, 51000, traced.hops)


@pytest.mark.parametrize(
    "change",
    [
        {"route": b"\5\0"},
        {"route": b"\5"},
        {"source": b"\2\0"},
        {"target": b"\2\0"},
        {"reply": b""},
        {"outer_port": b"\0"},
    ],
    ids=str,
)
def test_odd_path_columns_are_refused(change):
    summary = summary_of(TracedPath(FLOW, reply=False, outer_port=1, hops=("x",)))
    with pytest.raises(RemoteProtocolError):
        paths_of(replace(summary, paths=replace(summary.paths, **change)))


def test_a_path_longer_than_any_is_refused():
    hops = tuple(map(str, range(MAX_HOPS + 1)))
    for length, refused in ((MAX_HOPS, False), (MAX_HOPS + 1, True)):
        with pytest.raises(RemoteProtocolError) if refused else nullcontext():
            (row,) = rows_of(TracedPath(FLOW, reply=False, outer_port=1, hops=hops[:length]))
            assert len(row.hops) == length


@given(st.lists(TRACED, max_size=4), st.lists(TRACED, max_size=4))
def test_same_are_those_that_stand_alike_in_the_same_place(ours, theirs):
    tables = [paths_of(summary_of(*each)) for each in (ours, theirs)]
    rows, others = (table.rows(np.arange(len(table))) for table in tables)
    same = tables[0].same(tables[1])
    assert len(same) == len(rows)
    # Other endpoints in the table or another length: nothing is said.
    for is_same, row, other in zip(same, rows, others, strict=False):
        assert not is_same or row == other
    assert tables[0].same(tables[0]).all()
    if len(rows) == len(others) and tables[0].endpoints == tables[1].endpoints:
        assert same.tolist() == [row == other for row, other in zip(rows, others, strict=True)]
