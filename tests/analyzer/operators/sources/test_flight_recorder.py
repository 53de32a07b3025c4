# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest

from analyzer.operators.log import UNKNOWN, GroupKind, Kind, State
from analyzer.operators.sources import flight_recorder
from analyzer.operators.sources.dump import decoded, dump_of
from netagent.model.errors import RemoteProtocolError
from tests.analyzer.operators.sources.jobs import Job
from tests.analyzer.operators.sources.test_dump import entry

DUMPS = Path(__file__).parent / "dumps"


def folder(name):
    paths = sorted((DUMPS / name).iterdir())
    return flight_recorder.log({p.name: dump_of(decoded(p.read_bytes())) for p in paths})


def log(values):
    return flight_recorder.log({name: dump_of(value) for name, value in values.items()})


def test_a_job_is_one_log():
    job = Job(2, 2, 2)
    made = log(job.run().dumps())
    assert made.source == "flight-recorder"
    assert (made.world, made.silent, made.unseen, made.notes) == (8, (), (), ())
    assert len(made) == sum(map(len, job.programs))
    assert (made.state == State.ENDED).all()
    assert made.rank.tolist() == sorted(made.rank.tolist())
    groups = {group.name: group for group in made.groups}
    assert groups["default_pg"].members == tuple(range(8))
    assert groups["default_pg"].kind is GroupKind.WORLD
    tensor = {group.members for group in made.groups if group.kind is GroupKind.TENSOR}
    assert tensor == {(0, 1), (2, 3), (4, 5), (6, 7)}
    assert len(groups) == len(made.groups)


def test_peers_are_ranks_of_the_job():
    dumps = {
        f"_dump_{rank}": {
            "pg_config": {"5": {"ranks": "[2, 6]"}},
            "entries": [entry(name, is_p2p=True, process_group=("5", "pp"))] * 2,
        }
        for rank, name in ((2, "nccl:send 0->1"), (6, "nccl:recv 1<-0"))
    }
    made = log(dumps)
    assert made.peer.tolist() == [6, 6, 2, 2]
    assert made.kind.tolist() == [Kind.SEND] * 2 + [Kind.RECV] * 2
    assert made.sequence.tolist() == [0, 1, 0, 1]
    assert made.unseen == (0, 1, 3, 4, 5)


def test_transfers_are_not_counted_where_the_oldest_are_gone():
    fields = {"is_p2p": True, "record_id": 5}
    made = log({"rank_0": {"entries": [entry("nccl:send 0->1", **fields)]}})
    assert made.sequence.tolist() == [UNKNOWN]
    assert any("fallen off" in note for note in made.notes)


def test_one_name_may_be_several_groups():
    dumps = {
        f"rank_{rank}": {
            "pg_config": {"3": {"ranks": str([rank // 2 * 2, rank // 2 * 2 + 1])}},
            "entries": [entry(process_group=("3", "tp"))],
        }
        for rank in range(4)
    }
    made = log(dumps)
    assert sorted(group.members for group in made.groups) == [(0, 1), (2, 3)]
    assert len({group.name for group in made.groups}) == 2
    assert made.group.tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])


def test_a_rank_without_entries_is_silent_and_one_without_a_dump_unseen():
    config = {"0": {"ranks": "[0, 1, 2]"}}
    made = log(
        {
            "rank_0": {"pg_config": config, "entries": [entry()]},
            "rank_2": {"version": "2.5", "pg_config": {}},
        }
    )
    assert (made.silent, made.unseen, made.world) == ((2,), (1,), 3)


def test_members_that_no_dump_states_are_those_seen_and_all_of_the_whole_group():
    made = log({f"r{n}": [entry(), entry(process_group=("1", "dp0"), record_id=1)] for n in (0, 1)})
    assert [group.members for group in made.groups] == [(0, 1), ()]
    assert any("members are those seen" in note for note in made.notes)
    other = {"version": "2", "entries": [], "pg_config": {"1": {"ranks": "[0, 1]"}}}
    made = log({"r0": [entry(process_group=("1", "dp0"))], "r1": other})
    assert [group.members for group in made.groups] == [(0, 1)]


def test_ranks_are_as_the_dumps_say_or_as_their_files_are_named():
    said = {name: {"entries": [], "rank": rank} for name, rank in (("a", 4), ("b", 2))}
    assert log(said).silent == (2, 4)
    hosts = log({f"nccl_trace_rank_node0{n}_{n}": [entry()] for n in (5, 6)})
    assert hosts.places[5].host == "node05"
    with pytest.raises(RemoteProtocolError, match="no rank of its own in each file's name: a, b"):
        log({"a": [entry()], "b": [entry()]})


def test_where_types_or_sizes_differ_the_operations_say_so():
    made = log({
        "r0": [entry()], "r1": [entry(input_dtypes=["Half"])],
        "r2": [entry(collective_seq_id=8)],
    })  # fmt: skip
    assert [made.ops[each] for each in made.op] == [
        "all_reduce of 16 Float to 16 Float", "all_reduce of 16 Half to 16 Float", "all_reduce",
    ]  # fmt: skip


def test_what_gloo_gave_up_did_not_end():
    timeout = folder("gloo-timeout")
    last = timeout.sequence == 6
    assert timeout.rank[last].tolist() == [0, 1, 3]
    assert timeout.state[last].tolist() == [State.STARTED] * 3
    assert (timeout.state[~last] == State.ENDED).all()
    assert timeout.overdue == 3
    mismatch = folder("gloo-mismatch")
    assert (mismatch.state[mismatch.sequence == 6] == State.STARTED).all()
    assert (mismatch.state[mismatch.sequence < 6] == State.ENDED).all()
    assert folder("gloo-chain").overdue == 0


def test_versions_and_what_was_left_out_are_noted():
    made = log({
        "r0": {"version": "2.4", "entries": [entry(), {}]}, "r1": {"version": "2.5", "entries": []}
    })  # fmt: skip
    assert "1 entries name no operation and were left out" in made.notes
    assert "dumps are of 2 versions: 2.4, 2.5" in made.notes


def test_a_log_of_too_many_rows_is_refused(monkeypatch):
    monkeypatch.setattr(flight_recorder, "MAX_ROWS", 1)
    with pytest.raises(RemoteProtocolError, match="2 operators, more than 1"):
        log({"r0": [entry(), entry()]})


def test_old_groups_that_are_only_counted_are_not_taken_for_one():
    old = {"record_id": 0, "pg_id": 1, "seq_id": 5, "profiling_name": "nccl:x", "state": "started"}
    made = log({f"r{rank}": [old, old | {"pg_id": 0, "record_id": 1}] for rank in (0, 1)})
    assert sorted(group.members for group in made.groups) == [(0,), (0, 1), (1,)]


def test_pickles_are_what_watchdogs_write():
    values = Job(2, 1, 1).run().dumps()

    def made(*, pickled, config=True):
        own = {n: v if config else v["entries"] for n, v in values.items()}
        return flight_recorder.log({n: dump_of(v, pickled=pickled) for n, v in own.items()})

    assert made(pickled=True).at_rest
    assert not made(pickled=False).at_rest
    assert not made(pickled=True, config=False).at_rest


def test_groups_that_are_counted_by_each_rank_alone_are_told_apart():
    old = {"record_id": 0, "seq_id": 5, "profiling_name": "nccl:x", "state": "started"}
    made = log({"r0": [old | {"pg_id": number} for number in (1, 2)], "r1": [old | {"pg_id": 0}]})
    assert len(set(made.group[made.rank == 0].tolist())) == 2


class Rank(int):
    """Counts how often any of them was looked for."""

    hashed = 0

    def __hash__(self):
        Rank.hashed += 1
        return super().__hash__()


def test_the_ranks_of_a_group_are_not_looked_through_for_each_entry():
    ranks, entries = tuple(map(Rank, range(500))), 200
    value = {"entries": [entry(record_id=n, collective_seq_id=n) for n in range(entries)]}
    made = flight_recorder.log({"rank_0": replace(dump_of(value), members={"0": ranks})})
    assert len(made) == entries
    assert made.groups[0].members == ranks
    assert Rank.hashed < 20 * len(ranks)
