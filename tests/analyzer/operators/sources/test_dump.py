# SPDX-License-Identifier: Apache-2.0
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.operators.log import NEVER, UNKNOWN, Kind, State
from analyzer.operators.sources import dump
from netagent.model.errors import RemoteProtocolError

DUMPS = Path(__file__).parent / "dumps"


def entry(name="nccl:all_reduce", **fields):
    return {
        "record_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 7,
        "p2p_seq_id": 3, "op_id": 9, "profiling_name": name, "time_created_ns": 100,
        "input_sizes": [[4, 4]], "output_sizes": [[4, 4]], "input_dtypes": ["Float"],
        "output_dtypes": ["Float"], "state": "scheduled", "retired": False, "is_p2p": False,
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
    } | fields  # fmt: skip


def read(*entries, **top):
    return dump.dump_of({"version": "2.5", "entries": list(entries), **top})


def one(*args, **fields):
    (found,) = read(entry(*args, **fields)).entries
    return found


def test_a_dump_of_pytorch_itself_is_read_as_python_reads_it():
    for path in sorted((DUMPS / "gloo-chain").iterdir()):
        content = path.read_bytes()
        assert dump.decoded(content) == pickle.loads(content)  # noqa: S301 - one of ours
        made = dump.dump_of(dump.decoded(content))
        assert {each.op for each in made.entries} == {"all_reduce"}
        assert made.whole
        assert made.rank is None


def test_json_and_the_pickle_of_the_same_rank_are_the_same_rows():
    def rows(content):
        made = dump.dump_of(dump.decoded(content))
        return [(each.group, each.sequence, each.state, each.bytes) for each in made.entries]

    for rank in range(4):
        one = (DUMPS / "gloo-chain" / f"nccl_trace_rank_{rank}").read_bytes()
        other = (DUMPS / "gloo-chain-json" / f"rank_{rank}.json").read_bytes()
        assert rows(one) == rows(other) != []


def test_an_entry_is_one_operator():
    found = one(state="started")
    assert (found.op, found.kind, found.peer) == ("all_reduce", Kind.COLLECTIVE, UNKNOWN)
    assert (found.group, found.sequence, found.bytes) == (("0", "default_pg"), 7, 64)
    assert (found.enqueued_ns, found.started_ns, found.ended_ns) == (100, NEVER, NEVER)
    assert found.state is State.STARTED


@pytest.mark.parametrize(
    ("name", "kind", "peer"),
    [
        ("nccl:send 0->1", Kind.SEND, 1), ("nccl:recv 1<-0", Kind.RECV, 0),
        ("nccl:recv 0 <- 3", Kind.RECV, 3), ("gloo:send", Kind.SEND, UNKNOWN),
        ("nccl:recvAnySource", Kind.RECV, UNKNOWN),
    ],
)  # fmt: skip
def test_a_transfer_names_a_place_in_its_group(name, kind, peer):
    found = one(name, is_p2p=True, output_sizes=[[2]])
    assert (found.kind, found.peer, found.sequence) == (kind, peer, 3)
    assert found.bytes == (8 if kind is Kind.RECV else 64)


@pytest.mark.parametrize(
    ("fields", "name", "state", "timed_out"),
    [
        ({"state": "completed"}, "nccl:x", State.ENDED, False),
        ({"time_discovered_completed_ns": 9}, "nccl:x", State.ENDED, False),
        ({"time_discovered_completed_ns": 0}, "nccl:x", State.ENQUEUED, False),
        ({"retired": True}, "nccl:x", State.ENQUEUED, True),
        ({"retired": True, "state": "completed"}, "nccl:x", State.ENDED, False),
        ({"retired": True}, "gloo:x", State.ENDED, False),
        ({}, "gloo:x", State.ENQUEUED, False),
        ({"state": "odd"}, "nccl:x", State.UNKNOWN, False),
        (
            {"state": "completed", "time_discovered_completed_ns": 6 * 10**6, "timeout_ms": 5},
            "nccl:x",
            State.STARTED,
            True,
        ),
        (
            {"state": "completed", "time_discovered_completed_ns": 5 * 10**6, "timeout_ms": 5},
            "nccl:x",
            State.ENDED,
            False,
        ),
    ],
)
def test_how_far_it_came(fields, name, state, timed_out):
    found = one(name, **fields)
    assert (found.state, found.timed_out) == (state, timed_out)
    assert found.sure is not (name == "gloo:x" and state is State.ENDED)


def test_where_the_duration_was_timed_the_start_is_before_the_end():
    found = one(time_discovered_completed_ns=10**9, duration_ms=2.5, state="completed")
    assert found.ended_ns - found.started_ns == 2_500_000
    untimed = one(time_discovered_completed_ns=10**9, time_discovered_started_ns=5)
    assert (untimed.started_ns, untimed.ended_ns) == (NEVER, NEVER)
    assert one(time_discovered_completed_ns=9, duration_ms=float("inf")).ended_ns == NEVER


def test_old_dumps_are_lists_with_other_fields():
    old = {
        "record_id": 4, "pg_id": 2, "seq_id": 5, "profiling_name": "nccl:all_gather",
        "time_created_us": 3, "input_sizes": ((2, 2),), "state": "completed", "frames": [],
    }  # fmt: skip
    made = dump.dump_of([old])
    (found,) = made.entries
    assert (found.group, found.sequence, found.enqueued_ns) == (("?2", ""), 5, 3000)
    assert dump.dump_of([old | {"pg_id": 0}]).entries[0].group == ("0", "")
    assert dump.dump_of([old | {"pg_name": "7"}]).entries[0].group == ("7", "")
    assert found.bytes == UNKNOWN
    assert not made.whole
    assert made.members == {}


def test_numbers_may_be_text_as_in_pytorchs_own_tests():
    assert one(collective_seq_id="12").sequence == 12
    assert one(collective_seq_id="x").sequence == UNKNOWN
    assert one(collective_seq_id="--1").sequence == UNKNOWN
    assert one(collective_seq_id=True).sequence == UNKNOWN
    assert one(collective_seq_id=1 << 70).sequence == UNKNOWN


def test_what_is_coalesced_is_in_the_state_of_what_closes_it():
    pair = {"is_p2p": True, "collective_seq_id": 0}
    made = read(
        entry("nccl:recv 0<-1", record_id=0, p2p_seq_id=1, **pair),
        entry("nccl:send 0->1", record_id=1, p2p_seq_id=1, **pair),
        entry("nccl:coalesced", record_id=2, p2p_seq_id=1, state="completed", **pair),
        entry("nccl:recv 0<-1", record_id=3, p2p_seq_id=2, **pair),
        entry("nccl:coalesced", record_id=4, p2p_seq_id=2, **pair),
        entry("nccl:_broadcast_oop", record_id=5, collective_seq_id=1),
        entry("nccl:_broadcast_oop", record_id=6, collective_seq_id=1),
        entry("nccl:ALLGATHER_coalesced", record_id=7, collective_seq_id=1, state="started"),
        entry("nccl:allreduce_coalesced", record_id=8, collective_seq_id=2),
        entry("nccl:recv 0<-1", record_id=9, p2p_seq_id=2, **pair),
        entry("nccl:coalesced", record_id=10, p2p_seq_id=3, state="completed", **pair),
    )
    assert [(each.op, each.state) for each in made.entries] == [
        ("recv", State.ENDED), ("send", State.ENDED), ("recv", State.ENQUEUED),
        ("_broadcast_oop", State.STARTED), ("_broadcast_oop", State.STARTED),
        ("allreduce_coalesced", State.ENQUEUED), ("recv", State.ENQUEUED),
        ("coalesced", State.ENDED),
    ]  # fmt: skip
    assert made.entries[-1].kind is Kind.OTHER


def test_rows_are_in_the_order_of_the_ring():
    made = read(entry(record_id=9, collective_seq_id=2), entry(record_id=8, collective_seq_id=1))
    assert [each.sequence for each in made.entries] == [1, 2]
    assert not made.whole


def test_groups_members_are_text_or_lists():
    config = {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 12]"},
        "1": {"ranks": [3, 2]}, "2": [5], "3": {"ranks": "[]"}, "4": {"ranks": "[-1, 1.5, x2]"},
        "5": 7,
    }  # fmt: skip
    made = read(pg_config=config)
    assert made.members == {"0": (0, 1, 12), "1": (2, 3), "2": (5,)}


def test_types_and_sizes_that_must_agree_are_told():
    assert one().signature == "16 Float to 16 Float"
    assert one("nccl:all_to_all").signature == ""
    assert one("nccl:gather").signature == "16 Float"
    assert one("nccl:scatter").signature == "16 Float"
    assert one("nccl:send 0->1").signature == ""
    assert one(input_sizes=[["x"]], input_dtypes="Half").signature == "0 Half to 16 Float"
    assert one(input_sizes=[5, [1] * 99]).signature == "0 Float to 16 Float"
    assert one(input_sizes=7, output_sizes=None).signature == ""


def test_a_dump_may_say_its_rank_and_have_no_entries():
    assert dump.dump_of({"pg_config": {}, "version": "2.5", "rank": "6"}).rank == 6
    assert dump.dump_of({"entries": None, "rank": -1}).rank is None
    assert dump.dump_of({"entries": [7, {}, {"profiling_name": 1}]}).left_out == 3


@pytest.mark.parametrize(
    "value",
    [7, "x", {}, {"a": 1}, [7], [{"a": 1}], {"entries": 7}, {"communicators": [], "entries": []}],
)
def test_what_is_no_dump_is_refused(value):
    with pytest.raises(RemoteProtocolError, match="flight recorder's dump"):
        dump.dump_of(value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 5000])
def test_other_bytes_are_an_error_of_ours(content):
    with pytest.raises(RemoteProtocolError, match="neither a pickle nor JSON"):
        dump.decoded(content)


def test_a_dump_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(dump, "MAX_BYTES", 3)
    with pytest.raises(RemoteProtocolError, match="4 bytes, more than 3"):
        dump.decoded(b"[{}]")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.sampled_from(sorted(entry())), JSON, JSON)
def test_whatever_a_field_holds_there_is_a_row_or_none(field, value, config):
    made = dump.dump_of({"entries": [entry(**{field: value})], "pg_config": config})
    assert len(made.entries) + made.left_out == 1


@given(st.data())
def test_damage_is_an_error_of_ours(data):
    content = bytearray(json.dumps({"entries": [entry()]}).encode())
    for _ in range(3):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        dump.dump_of(dump.decoded(bytes(content)))
    except RemoteProtocolError:
        return


@pytest.mark.parametrize(("letters", "peer"), [(0, 1), (dump.MAX_NAME, UNKNOWN)])
def test_no_more_of_a_name_is_looked_at_than_real_ones_have(letters, peer):
    """To look for a peer takes the square of how many digits there are."""
    assert one(f"gloo:send {'x' * letters}0->1").peer == peer


@pytest.mark.parametrize("rank", [dump.MAX_RANK + 1, 1 << 61])
def test_a_rank_that_no_job_has_is_none(rank):
    """Ranks below it would be listed, too."""
    assert read(rank=rank).rank is None
    assert read(rank=dump.MAX_RANK).rank == dump.MAX_RANK


def test_an_entry_that_a_pickle_uses_very_often_is_refused():
    with pytest.raises(RemoteProtocolError, match="entries"):
        read(*[{"profiling_name": "a"}] * (dump.MAX_ENTRIES + 1))


def test_members_as_a_text_without_end_are_refused():
    half = "0," * (dump.MAX_TEXT // 4)
    assert read(pg_config={"a": {"ranks": half}}).members == {"a": (0,)}
    with pytest.raises(RemoteProtocolError, match="characters"):
        read(pg_config={name: {"ranks": half} for name in "abc"})


@pytest.mark.parametrize("bracket", ["[]", "{}"])
def test_brackets_that_would_take_gigabytes_are_refused(bracket):
    content = f"[{','.join([bracket] * dump.pickles.MAX_CONTAINERS)}]".encode()
    with pytest.raises(RemoteProtocolError, match="lists and objects"):
        dump.decoded(content)


@pytest.mark.parametrize("field", ["process_group", "state", "input_dtypes"])
def test_a_list_is_never_written_out_as_a_text(field):
    """A pickle may hold one text a thousand times, and none of it is written out for a name."""
    made = dump.dump_of({"entries": [entry(**{field: [Unwritable(), Unwritable()]})]})
    assert len(made.entries) == 1


class Unwritable(list):
    __slots__ = ()

    def __str__(self):
        raise AssertionError
