# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from netagent.collect.operators import (
    OperatorTally,
    Process,
    Said,
    answer,
    ended_ns,
    shares,
    wanted,
)
from netagent.wire.columns import unpack
from netagent.wire.operators import (
    MOST_ENDS,
    MOST_TEXT,
    NO_GROUP,
    NONE,
    OperatorColumns,
    OperatorsRequest,
)
from netagent_torch import form
from netagent_torch.form import Head, Record

MS = 1_000_000
HEAD = Head(1024, 1024, 0, 0, 4711, 10**18, 0, 0)
LINES = [
    {"op": 0, "name": "all_reduce"},
    {"op": 1, "name": "forward-compute"},
    {"job": "train-a", "rank": 3, "world": 8, "netns": 99},
    {"group": 0, "name": "1:0-4", "size": 2, "members": [0, 4]},
    {"group": 0, "kind": "dp"},
]


def record(number, *, begun=0, took=10 * MS, sequence=None, ended=True, **more):
    end = begun + took if ended else 0
    given = Record(
        number, begun, begun, end, 400, number if sequence is None else sequence, 5, -1, 0, 0,
        form.COLLECTIVE, 0,
    )  # fmt: skip
    return given._replace(**more)


def process(**more):
    return Process(HEAD, said=Said.of(LINES), **more)


def rows(columns):
    names = (
        "process", "group", "op", "kind", "count", "bytes", "sum_us", "max_us", "median_us",
        "begun", "ended", "open_ms",
    )  # fmt: skip
    found = {name: list(unpack_narrow(columns, name)) for name in names}
    return [dict(zip(found, each, strict=True)) for each in zip(*found.values(), strict=True)]


def unpack_narrow(columns, name):
    data, count = getattr(columns, name), len(columns.process)
    if not data:
        return [0] * count
    size = len(data) // count
    return [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]


def tally(*of):
    made = OperatorTally()
    made.processes = {str(number): each for number, each in enumerate(of)}
    return made


def test_a_window_sums_up_what_ended_in_it():
    mine = process()
    mine.take([record(1, took=MS), record(2, took=5 * MS), record(3, took=3 * MS)])
    said = tally(mine).close(10**18)
    (row,) = rows(said)
    assert row == {
        "process": 0, "group": 0, "op": 0, "kind": 2, "count": 3, "bytes": 1200, "sum_us": 9000,
        "max_us": 5000, "median_us": 3000, "begun": 3, "ended": 3, "open_ms": 0,
    }  # fmt: skip
    assert said.ops == ("all_reduce",)
    assert said.groups[0].kind == "dp"
    assert (said.processes[0].rank, said.processes[0].step) == (3, 5)


def probed(*lines):
    return Said.of([{"job": "a", "rank": 3, "source": "uprobes"}, *lines])


def test_probes_say_whether_they_see_all_and_by_what_a_group_is_that_of_others():
    group = {"group": 0, "name": "c0", "size": 4, "place": 1, "ends": [[0, 5, 6], [2, 7, 1 << 62]]}
    said = probed({"whole": True}, group, {"group": 0, "kind": "dp"})
    assert Process(HEAD, said=said).identity().whole
    found = said.groups[0]
    assert (found.name, found.place, found.kind) == ("3.c0", 1, "dp")
    assert list(unpack(found, "end_places")) == [0, 2]
    assert list(unpack(found, "own_ends")) == [5, 7]
    assert list(unpack(found, "their_ends")) == [6, 1 << 62]
    assert not probed({"whole": "yes"}).whole


def test_ends_that_make_no_sense_are_passed_over():
    odd = [[0, 5], [-1, 5, 6], [1 << 20, 5, 6], [0, 1 << 63, 6], [0, "5", 6], 7, [1, 2, 3]]
    group = probed({"group": 0, "name": "c0", "size": 4, "ends": odd}).groups[0]
    assert list(unpack(group, "end_places")) == [1]
    assert probed({"group": 0, "ends": "all"}).groups[0].own_ends == b""
    many = probed({"group": 0, "ends": [[1, 2, 3]] * 1000}).groups[0]
    assert len(unpack(many, "end_places")) == MOST_ENDS


def test_who_it_is_includes_since_when_whatever_its_ring_says_later():
    mine = process()
    mine.head = HEAD._replace(wall_ns=7)
    assert mine.identity().since_ns == HEAD.wall_ns
    assert Process(HEAD._replace(wall_ns=-(10**18))).identity().since_ns == 0


def test_of_two_groups_of_a_name_the_newer_one_counts():
    """The job destroyed the other one, maybe as a collective of it did not end."""
    mine = process()
    mine.take([record(1, sequence=7000), record(2, sequence=7001, ended=False)])
    mine.hear(Said.of([*LINES, {"group": 1, "name": "1:0-4", "size": 2, "members": [0, 4]}]))
    mine.take([record(2, sequence=7001), record(3, sequence=1, group=1)])
    (row,) = rows(tally(mine).close(10**18))
    assert (row["begun"], row["ended"], row["open_ms"]) == (1, 1, 0)
    assert not mine.open


def test_the_next_window_begins_anew_and_says_nothing_of_what_rests():
    mine = process()
    mine.take([record(1)])
    of = tally(mine)
    of.close(10**18)
    assert rows(of.close(10**18 + 5_000 * MS)) == []


def test_what_has_not_ended_is_open_in_every_window_until_it_does():
    mine = process()
    mine.take([record(7, begun=1_000 * MS, ended=False)])
    of = tally(mine)
    (row,) = rows(of.close(10**18 + 4_000 * MS))
    assert (row["count"], row["begun"], row["ended"], row["open_ms"]) == (0, 7, 0, 3_000)
    (row,) = rows(of.close(10**18 + 9_000 * MS))
    assert row["open_ms"] == 8_000
    mine.take([record(7, begun=1_000 * MS, took=9_000 * MS)])
    (row,) = rows(of.close(10**18 + 14_000 * MS))
    assert (row["count"], row["ended"], row["open_ms"]) == (1, 7, 0)


def test_an_open_record_that_was_overwritten_is_missed_and_accuses_nobody():
    mine = process()
    mine.take([record(7, ended=False)])
    mine.forget(7)
    said = tally(mine).close(10**18)
    assert rows(said) == []
    assert said.processes[0].missed == 1


def test_members_are_said_once_in_a_minute():
    mine = process()
    of = tally(mine)
    seen = []
    for window in range(14):
        mine.take([record(window + 1)])
        (group,) = of.close(10**18 + window * 5_000 * MS).groups
        seen.append(bool(group.members))
    assert seen == [True, *[False] * 11, True, False]


def test_without_rings_nothing_is_said():
    assert OperatorTally().close(10**18) is None


def test_a_wait_that_came_late_says_only_how_long_it_held():
    awaited = record(1, begun=0, took=50 * MS, waited_ns=20 * MS)
    assert ended_ns(awaited) == 50 * MS
    late = record(1, begun=0, took=50 * MS, waited_ns=50 * MS - 10_000)
    assert ended_ns(late) == 10_000


def test_an_answer_has_the_records_of_the_time_and_of_the_ranks():
    mine, other = process(), Process(HEAD, said=Said.of([{"job": "train-b", "rank": 3}]))
    request = OperatorsRequest(
        job="train-a", ranks=(3,), since_ns=10**18 + 2 * MS, until_ns=10**18 + 4 * MS
    )
    assert wanted(request, mine)
    assert not wanted(request, other)
    reply = answer(request, [(mine, [record(n, begun=n * MS) for n in range(1, 6)])])
    assert list(unpack(reply, "sequence")) == [2, 3]
    assert list(unpack(reply, "begun_ns")) == [10**18 + 2 * MS, 10**18 + 3 * MS]
    assert list(unpack(reply, "peer")) == [NONE, NONE]
    assert list(unpack(reply.groups[0], "members")) == [0, 4]


def test_of_too_many_records_the_newest_are_told_and_the_others_counted():
    request = OperatorsRequest(job="train-a", most=2)
    reply = answer(request, [(process(), [record(n) for n in range(1, 6)])])
    assert list(unpack(reply, "sequence")) == [4, 5]
    assert reply.omitted == 3


def test_what_one_container_says_of_a_group_is_not_said_of_another_ones():
    false = [LINES[0], LINES[2], {"group": 0, "name": "1:0-4", "size": 3, "members": [0, 3, 4]}]
    mine, other = process(container="a"), Process(HEAD, said=Said.of(false), container="b")
    for each in (other, mine):
        each.take([record(1)])
    window = tally(other, mine).close(10**18)
    assert [list(unpack(each, "members")) for each in window.groups] == [[0, 3, 4], [0, 4]]
    assert [row["group"] for row in rows(window)] == [0, 1]
    reply = answer(OperatorsRequest(job="train-a"), [(other, [record(1)]), (mine, [record(1)])])
    assert list(unpack(reply, "group")) == [0, 1]


def test_who_has_many_processes_takes_no_other_containers_share():
    many = [process(container="a") for _ in range(3)]
    asked = [*many, process(container="b")]
    request = OperatorsRequest(job="train-a", most=12)
    assert shares(request, asked) == [2, 2, 2, 6]
    reply = answer(request, [(each, [record(n) for n in range(1, 9)]) for each in asked])
    assert list(unpack(reply, "process")) == [0] * 2 + [1] * 2 + [2] * 2 + [3] * 6


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=100), st.lists, max_leaves=5
)
KEYS = st.sampled_from(["job", "rank", "world", "netns", "op", "name", "group", "kind", "members"])
LINE = st.dictionaries(KEYS, JSON, max_size=6)
ANY = st.builds(
    Record,
    *(st.integers(0, 2**64 - 1), *(st.integers(-(2**63), 2**63 - 1),) * 3),
    *(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)),
    *(st.integers(-(2**31), 2**31 - 1),) * 2,
    *(st.integers(0, 2**16 - 1),) * 2,
    *(st.integers(0, 255), st.integers(0, 2**16 - 1)),
)


@given(st.lists(LINE, max_size=5), st.lists(ANY, max_size=5), st.integers(0, 2**62))
def test_whatever_a_job_writes_makes_a_message_within_bounds(lines, records, now_ns):
    mine = Process(HEAD._replace(wall_ns=now_ns), said=Said.of(lines))
    mine.take(records)
    said = tally(mine).close(now_ns)
    assert isinstance(said, OperatorColumns)
    assert all(len(name) <= MOST_TEXT for name in said.ops)
    for row in rows(said):
        assert row["group"] == NO_GROUP or row["group"] < len(said.groups)
    answer(OperatorsRequest(job=mine.said.job), [(mine, records)])
