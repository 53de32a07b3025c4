# SPDX-License-Identifier: Apache-2.0
import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.operators import log_of_replies, reported, told_apart
from analyzer.operators.log import NEVER, UNKNOWN, GroupKind, Kind, State
from netagent.collect.operators import OperatorTally, Process, Said, answer
from netagent.model.errors import RemoteProtocolError
from netagent.wire.columns import pack
from netagent.wire.operators import (
    NO_GROUP,
    OperatorColumns,
    OperatorGroup,
    OperatorProcess,
    OperatorsReply,
    OperatorsRequest,
)
from netagent_torch import form
from netagent_torch.form import Head, Record

MS = 1_000_000
HEAD = Head(1024, 1024, 0, 0, 4711, 10**18, 0, 0)
REQUEST = OperatorsRequest(job="train-a")


def process(rank):
    lines = [
        {"op": 0, "name": "all_reduce"},
        {"op": 1, "name": "send"},
        {"job": "train-a", "rank": rank, "world": 2},
        {"group": 0, "name": "0:world", "size": 2, "members": [0, 1]},
        {"group": 0, "kind": "dp"},
    ]
    return Process(HEAD._replace(pid=100 + rank), said=Said.of(lines))


def test_what_a_former_process_of_the_same_pid_recorded_is_left_out():
    now = process(0)
    before = Process(now.head._replace(wall_ns=HEAD.wall_ns - 10**10), said=now.said)
    reply = answer(REQUEST, [(before, records()), (now, records()[:1])])
    found = log_of_replies([("h0", reply)], {("h0", 0): told_apart(now.identity())})
    assert len(found) == 1
    assert "that was not asked about" in found.notes[0]


def probed(rank, *, whole=True, ends=((0, 5, 6), (1, 6, 5))):
    """Return a process that probes see; rank 1 is the first in its group, at the same address."""
    place = 1 - rank
    lines = [
        {"op": 0, "name": "all_reduce"},
        {"op": 1, "name": "send"},
        {"op": 2, "name": "unseen"},
        {"job": "train-a", "rank": rank, "world": 2, "source": "uprobes"},
        {"whole": whole},
        {"group": 0, "name": "c0", "size": 2, "place": place, "ends": [[*ends[1 - place]]]},
    ]
    return Process(HEAD._replace(pid=100 + rank), said=Said.of(lines))


def transfers(place):
    """Return the record of a transfer with the other one, at whatever place that is."""
    kind = form.RECV if place else form.SEND
    return [Record(1, MS, MS, 5 * MS, 8, 1, -1, 1 - place, 1, 0, kind, 7)]


def probed_log(one, other, *, first="h0", second="h1", records_=None):
    replies = [
        (first, answer(REQUEST, [(one, transfers(1) if records_ is None else records_)])),
        (second, answer(REQUEST, [(other, transfers(0))])),
    ]
    return log_of_replies(replies)


@pytest.mark.parametrize("second", ["h1", "h0"])
def test_groups_that_probes_saw_on_hosts_are_joined(second):
    found = probed_log(probed(0), probed(1), second=second)
    assert (found.source, found.is_whole) == ("uprobes", True)
    assert [(each.name, each.members) for each in found.groups] == [("world", (0, 1))]
    assert sorted(zip(found.rank.tolist(), found.peer.tolist(), strict=True)) == [(0, 1), (1, 0)]


def test_a_host_says_nothing_of_another_ones_groups_by_their_names():
    (_, one), (_, two) = ((n, answer(REQUEST, [(probed(n), transfers(1 - n))])) for n in (0, 1))
    groups = (msgspec.structs.replace(two.groups[0], name=one.groups[0].name),)
    claims = msgspec.structs.replace(two, groups=groups)
    assert log_of_replies([("h0", one), ("h1", claims)]).is_whole


def test_where_one_of_them_is_not_seen_whole_the_log_is_not():
    assert not probed_log(probed(0, whole=False), probed(1)).is_whole
    assert not probed_log(probed(0, ends=((0, 1, 2), (1, 2, 1))), probed(1)).is_whole
    unseen = Record(2, MS, 0, MS, 0, 0, -1, -1, 2, form.NO_GROUP, form.OTHER, 0)
    shed = probed_log(probed(0), probed(1), records_=[*transfers(1), unseen])
    assert not shed.is_whole


def test_windows_do_not_say_by_what_groups_are_joined():
    mine = probed(0)
    mine.take(transfers(1))
    tally = OperatorTally()
    tally.processes["0"] = mine
    (said,) = tally.close(10**18).groups
    assert (said.name, said.size, said.place, said.own_ends) == ("0.c0", 2, -1, b"")


def test_connections_that_make_no_sense_are_refused_or_left():
    one, other = (answer(REQUEST, [(probed(rank), transfers(1 - rank))]) for rank in (0, 1))

    def joined(**more):
        groups = (msgspec.structs.replace(one.groups[0], **more),)
        odd = msgspec.structs.replace(one, groups=groups)
        return log_of_replies([("h0", odd), ("h1", other)])

    assert joined().is_whole
    assert "left out" in joined(own_ends=b"").notes[0]
    assert "left out" in joined(own_ends=b"1").notes[0]
    many = {"end_places": bytes(4 * 65), "own_ends": bytes(8 * 65), "their_ends": bytes(8 * 65)}
    assert "65 connections" in joined(**many).notes[0]
    assert not joined(place=2).is_whole
    assert not joined(end_places=(7).to_bytes(4, "little")).is_whole


def test_ranks_that_probes_alone_see_are_left_out_beside_others():
    seen = process(0)
    seen.said.source = "uprobes"
    parts = [(seen, records()), (process(1), records())]
    both = log_of_replies([("h0", answer(REQUEST, parts))])
    assert (both.source, set(both.rank.tolist())) == ("hooks", {1})
    assert "rank 0" in both.notes[0]
    alone = log_of_replies([("h0", answer(REQUEST, parts[:1]))])
    assert (alone.source, set(alone.rank.tolist())) == ("uprobes", {0})


def test_one_rank_that_hooks_see_hides_none_that_probes_see():
    parts = [(probed(0), records()), (probed(1), records())]
    other = process(2)
    replies = [("h0", answer(REQUEST, parts)), ("h1", answer(REQUEST, [(other, records())]))]
    log = log_of_replies(replies)
    assert (log.source, set(log.rank.tolist())) == ("uprobes", {0, 1})
    assert "rank 2, which hooks see, unlike most, is left out" in log.notes


def records(*, ended=True):
    end = 9 * MS if ended else 0
    return [
        Record(1, MS, MS, 5 * MS, 64, 1, 3, -1, 0, 0, form.COLLECTIVE, 0),
        Record(2, 6 * MS, 6 * MS, end, 32, 1, 3, 1, 1, 0, form.SEND, 2),
        Record(3, 6 * MS, 6 * MS, 7 * MS, 0, 0, 3, -1, 9, 0xFFFF, form.COMPUTE, 4),
    ]


def window():
    mine = process(0)
    mine.take(records())
    tally = OperatorTally()
    tally.processes["a"] = mine
    return tally.close(10**18 + 5_000 * MS)


def test_what_an_agent_says_is_read():
    (said,) = reported(window())
    assert said.process.rank == 0
    rows = {row.op: row for row in said.rows}
    assert rows["all_reduce"].told.ended == 1
    assert rows["all_reduce"].told.sum_us == 4000
    assert rows["all_reduce"].group.kind is GroupKind.DATA
    assert rows["all_reduce"].group.members == (0, 1)
    assert rows["?"].kind is Kind.COMPUTE
    assert rows["?"].group is None


@pytest.mark.parametrize(
    "broken",
    [
        {"process": [9]}, {"group": [7]}, {"op": [5]}, {"kind": [5]}, {"count": [1, 2, 3]},
    ],
)  # fmt: skip
def test_a_row_of_nothing_in_the_tables_is_refused(broken):
    good = {"process": [0], "group": [NO_GROUP], "op": [0], "kind": [0], "bytes": [0],
            "sum_us": [0]}  # fmt: skip
    tables = {"processes": (OperatorProcess(job="a"),), "ops": ("x",)}
    reported(pack(OperatorColumns, **tables, **good))
    with pytest.raises(RemoteProtocolError):
        reported(pack(OperatorColumns, **tables, **(good | broken)))


@pytest.mark.parametrize(
    "tables",
    [
        {"ops": ("a\n",)},
        {"processes": (OperatorProcess(job="x" * 65),)},
        {"processes": (OperatorProcess(job="x", rank=1 << 20),)},
        {"groups": (OperatorGroup(job="a", name="b", members=b"\0\0\0"),)},
        {"groups": (OperatorGroup(job="a", name="b", members=b"\xff\xff\xff\xff"),)},
    ],
)
def test_a_table_out_of_bounds_is_refused(tables):
    with pytest.raises(RemoteProtocolError):
        reported(OperatorColumns(**tables))


COLUMNS = ["process", "group", "op", "kind", "count", "bytes", "sum_us", "max_us", "open_ms"]


@given(st.sampled_from(COLUMNS), st.binary(max_size=64))
def test_any_column_is_read_or_refused(name, data):
    with contextlib.suppress(RemoteProtocolError):
        reported(msgspec.structs.replace(window(), **{name: data}))


def test_replies_of_hosts_make_a_log():
    replies = [
        ("h0", answer(REQUEST, [(process(0), records())])),
        ("h1", answer(REQUEST, [(process(1), records(ended=False))])),
    ]
    log = log_of_replies(replies)
    assert log.rank.tolist() == [0, 0, 0, 1, 1, 1]
    assert log.world == 2
    assert [log.ops[n] for n in log.op[:3]] == ["all_reduce", "send", "?"]
    assert [each.name for each in log.groups] == ["0:world"]
    assert log.group.tolist() == [0, 0, UNKNOWN] * 2
    assert log.peer.tolist()[:2] == [UNKNOWN, 1]
    assert log.sequence.tolist()[:3] == [1, 1, UNKNOWN]
    assert log.duration_ns.tolist()[:2] == [4 * MS, 3 * MS]
    assert log.ended_ns[4] == NEVER
    assert log.state[4] == State.STARTED
    assert {rank: place.host for rank, place in log.places.items()} == {0: "h0", 1: "h1"}
    assert log.notes == ()


def test_of_two_processes_that_claim_a_rank_the_second_is_left_out():
    mine, other = process(0), process(0)
    other.head = other.head._replace(pid=7)
    log = log_of_replies([("h0", answer(REQUEST, [(mine, records()), (other, records())]))])
    assert len(log) == 3
    assert "claims rank 0" in log.notes[0]
    assert log.unseen == (1,)


def test_without_replies_there_is_an_empty_log():
    assert len(log_of_replies([])) == 0


@given(st.sampled_from(["process", "group", "op", "kind", "step", "bytes", "begun_ns"]),
       st.binary(max_size=64))  # fmt: skip
def test_any_reply_is_a_log_or_refused(name, data):
    reply = answer(REQUEST, [(process(0), records())])
    assert isinstance(reply, OperatorsReply)
    with contextlib.suppress(RemoteProtocolError):
        log_of_replies([("h0", msgspec.structs.replace(reply, **{name: data}))])


def _stating(rank, members, kind="dp"):
    """Return a process whose group has these members by its own word."""
    made = process(rank)
    made.said = Said.of([
        {"op": 0, "name": "all_reduce"},
        {"op": 1, "name": "send"},
        {"job": "train-a", "rank": rank, "world": 2},
        {"group": 0, "name": "0:pair", "size": len(members), "members": members},
        {"group": 0, "kind": kind},
    ])  # fmt: skip
    return made


def test_of_a_group_in_which_it_has_no_rank_a_host_says_nothing():
    false = answer(REQUEST, [(_stating(0, [1, 2], "tp"), records())])
    true = answer(REQUEST, [(_stating(1, [1, 2]), records())])
    log = log_of_replies([("h0", false), ("h1", true)])
    assert [(each.kind, each.members) for each in log.groups] == [(GroupKind.DATA, (1, 2))]
    alone = log_of_replies([("h0", false)])
    assert (alone.groups, set(alone.group.tolist())) == ((), {UNKNOWN})


def test_who_is_not_listed_in_a_group_takes_no_part_in_it():
    both = [(_stating(0, [1, 2]), records()), (_stating(1, [1, 2]), records())]
    log = log_of_replies([("h0", answer(REQUEST, both))])
    assert set(log.rank[log.group >= 0].tolist()) == {1}
    assert "do not list their ranks (0)" in log.notes[-1]


@pytest.mark.parametrize("begun", [1, 9 * 10**18])
def test_an_operator_that_is_years_from_all_others_is_left_out(begun):
    usual = [records()[0]._replace(number=n) for n in range(1, 6)]
    last = usual[0]._replace(number=6, begun_ns=begun, waited_ns=begun, ended_ns=begun + MS)
    far = HEAD._replace(wall_ns=2 * 10**18, monotonic_ns=10**18)
    made = Process(far, said=process(0).said)
    moved = [
        each._replace(begun_ns=10**18, waited_ns=10**18, ended_ns=10**18 + MS) for each in usual
    ]
    assert len(log_of_replies([("h0", answer(REQUEST, [(made, [*moved, last])]))])) == 5


def test_what_a_process_that_does_not_count_says_of_groups_does_not_either():
    """Its rows come first, and so does its word of the group; who counts is rank 1 alone."""
    false, true = _stating(7, [0, 1], "tp"), _stating(1, [0, 1, 2])
    false.container, true.container = "b", "a"
    reply = answer(REQUEST, [(false, records()), (true, records())])
    asked = {("h0", 1): told_apart(reply.processes[1])}
    log = log_of_replies([("h0", reply)], asked)
    assert [(each.kind, each.members) for each in log.groups] == [(GroupKind.DATA, (0, 1, 2))]
