# SPDX-License-Identifier: Apache-2.0
"""Lines written by hand, in the shape that NVIDIA/nccl's README and inspector_json.cc document."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.operators.log import UNKNOWN, Kind
from analyzer.operators.sources import inspector
from netagent.model.errors import RemoteProtocolError


def header(rank, comm="0x7f8c", size=2, pid=None):
    return {
        "header": {"id": comm, "comm_name": "dp0", "rank": rank, "n_ranks": size, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.2", "dump_timestamp_us": 1000,
            "hostname": "h1", "pid": rank if pid is None else pid,
        },
    }  # fmt: skip


def coll(sn=7, **fields):
    return {"coll_perf": {
        "coll": "AllReduce", "coll_sn": sn, "coll_msg_size_bytes": 4096, "coll_exec_time_us": 61,
        **fields,
    }}  # fmt: skip


def text(*records):
    return "\n".join(map(json.dumps, records)).encode()


def read(*records):
    assert inspector.is_inspector(text(*records))
    return inspector.log({"a.log": inspector.records(text(*records))})


def test_a_line_is_one_collective():
    made = read(header(0) | coll(), header(1) | coll())
    assert (made.source, made.world, made.unseen) == ("nccl-inspector", 2, ())
    assert made.rank.tolist() == [0, 1]
    assert made.ops == ("all_reduce",)
    assert made.bytes.tolist() == [4096] * 2
    assert made.sequence.tolist() == [7, 7]
    assert made.duration_ns.tolist() == [61_000] * 2
    assert made.groups[0].members == (0, 1)
    assert made.groups[0].name == "dp0/0x7f8c"
    assert any("no moments" in note for note in made.notes)


def test_since_version_4_3_lines_are_of_the_marker_before_them():
    stats = {"dump_stats": {"coll_records": 2, "coll_dropped_since_last_dump": 5}}
    made = read(header(1) | stats, coll(1), coll(2))
    assert made.rank.tolist() == [1, 1]
    assert made.unseen == (0,)
    assert "NCCL Inspector lost 5 operations, since its rings were full" in made.notes


def test_verbose_lines_have_moments_of_the_kernels():
    trace = {
        "coll_start_ts": 500,
        "kernel_events": [{"kernel_start_ts": 530}, {"kernel_start_ts": 520}, 7],
    }
    made = read(header(0) | coll(event_trace_ts=trace))
    assert made.started_ns.tolist() == [520_000]
    assert made.ended_ns.tolist() == [581_000]
    made = read(header(0) | coll(event_trace_ts={"coll_start_ts": 500}))
    assert made.started_ns.tolist() == [500_000]
    assert not any("no moments" in note for note in made.notes)
    made = read(header(0) | coll(event_trace_ts={"coll_start_ts": 500, "kernel_events": 5}))
    assert made.started_ns.tolist() == [500_000]


def test_ranks_are_places_in_the_largest_communicator():
    p2p = {"p2p_perf": {"p2p": "Recv", "p2p_sn": 1, "p2p_peer": 0, "p2p_exec_time_us": 3}}
    made = read(
        *(header(rank, size=4, pid=10 + rank) | coll() for rank in range(4)),
        header(1, "0xpp", pid=13) | p2p, header(0, "0xpp", pid=12) | coll(),
    )  # fmt: skip
    pair = made.kind == Kind.RECV
    assert (made.rank[pair].tolist(), made.peer[pair].tolist()) == ([3], [2])
    assert {group.members for group in made.groups} == {(0, 1, 2, 3), (2, 3)}
    assert made.places[3].host == "h1"


def test_a_last_line_that_is_cut_off_is_left_out_and_another_is_an_error():
    whole = text(header(0) | coll())
    assert len(inspector.records(whole + b'\n{"header": {"id"')) == 1
    with pytest.raises(RemoteProtocolError, match="line 1: "):
        inspector.records(b'{"header": n_ranks\n\n' + whole)


def test_there_are_limits(monkeypatch):
    monkeypatch.setattr(inspector, "MAX_ROWS", 1)
    with pytest.raises(RemoteProtocolError, match="more than 1"):
        read(header(0) | coll(), header(0) | coll())
    monkeypatch.setattr(inspector, "MAX_BYTES", 1)
    with pytest.raises(RemoteProtocolError, match="more than 1"):
        inspector.records(b"{}")


def test_proxy_traces_and_nonsense_are_left_out():
    odd = coll(sn="x", coll=None, coll_exec_time_us=-4, coll_msg_size_bytes=1e300)
    made = read(header(0) | {"proxy_trace": {}}, header(0) | {"coll_perf": 7}, header(0) | odd)
    assert made.sequence.tolist() == [UNKNOWN]
    assert made.duration_ns.tolist() == [0]
    assert not inspector.is_inspector(b"[1]")


@given(st.data())
def test_damage_is_an_error_of_ours(data):
    content = bytearray(text(header(0) | coll(), header(1) | coll()))
    for _ in range(3):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        inspector.log({"a": inspector.records(bytes(content))})
    except RemoteProtocolError:
        return


def test_a_file_of_nothing_but_ends_of_lines_is_refused():
    """Each line would be an object of hundreds of bytes."""
    content = text(header(0)) + b"\n{}" * inspector.MAX_LINES
    with pytest.raises(RemoteProtocolError, match="ends of lines"):
        inspector.records(content + b"\n")


@pytest.mark.parametrize("odd", [["x"] * 9, {"a": "x"}, None])
def test_a_name_that_is_none_is_not_written_out_for_each_line(odd):
    made = read(header(0, comm=odd) | coll(coll=odd))
    assert [(group.name, made.ops) for group in made.groups] == [("dp0/", ("?",))]
