# SPDX-License-Identifier: Apache-2.0
from msgspec import structs

from analyzer.operators.keeper import (
    FORGET_NS,
    MOST_MEMBERS_OF_HOST,
    MOST_OF_HOST,
    MOST_ROWS,
    Keeper,
    Reported,
    Row,
    Told,
    settled,
)
from analyzer.operators.log import Group, GroupKind, Kind, State
from netagent.wire.operators import OperatorProcess

NOW = 10**18
DP = Group("1:0-1", GroupKind.DATA, (0, 1))
UNSAID = Group("1:0-1")


def told(begun=5, ended=5, sum_us=100):
    return Told(3, 400, sum_us, 50, 30, begun, ended, 0)


def process(rank, **more):
    return OperatorProcess(job="train-a", rank=rank, world=2, pid=100 + rank, **more)


def said(rank, *, group=DP, **more):
    return Reported(process(rank), (Row(group, "all_reduce", Kind.COLLECTIVE, told(**more)),))


def test_a_rank_that_entered_fewer_collectives_is_behind_in_the_log():
    keeper = Keeper()
    keeper.take("h0", (said(0, begun=8, ended=7),), NOW)
    keeper.take("h1", (said(1, begun=7, ended=7),), NOW)
    log = keeper.log("train-a")
    assert log.groups == (DP,)
    rows = zip(log.rank.tolist(), log.sequence.tolist(), log.state.tolist(), strict=True)
    assert list(rows) == [(0, 7, State.ENDED), (0, 8, State.STARTED), (1, 7, State.ENDED)]
    assert log.places[1].host == "h1"
    assert log.unseen == ()


def test_who_was_not_heard_is_unseen_and_who_did_nothing_is_silent():
    keeper = Keeper()
    keeper.take("h0", (Reported(process(0), ()),), NOW)
    log = keeper.log("train-a")
    assert (log.silent, log.unseen, len(log)) == ((0,), (1,), 0)


def test_members_that_were_said_once_stay_known():
    keeper = Keeper()
    keeper.take("h0", (said(0),), NOW)
    keeper.take("h0", (said(0, group=UNSAID, begun=9, ended=9),), NOW)
    assert keeper.log("train-a").groups == (DP,)


def test_progress_never_goes_back_and_stays_over_a_window_without_any():
    keeper = Keeper()
    keeper.take("h0", (said(0, begun=9, ended=9),), NOW)
    keeper.take("h0", (Reported(process(0, gone=True), ()),), NOW)
    (known,) = keeper.processes("train-a")
    assert known.process.gone
    assert known.progress == {DP.name: (9, 9)}
    assert known.rows


def test_a_group_of_a_former_groups_name_counts_from_one_again():
    keeper = Keeper()
    keeper.take("h0", (said(0, begun=9000, ended=8999),), NOW)
    keeper.take("h0", (said(0, begun=4499, ended=4499),), NOW)
    (known,) = keeper.processes("train-a")
    assert known.progress == {DP.name: (4499, 4499)}


def test_what_ended_late_or_is_open_still_takes_nobody_back():
    """Several operations of a group are several rows; each has its own newest numbers."""
    keeper = Keeper()
    keeper.take("h0", (said(0, begun=9000, ended=9000),), NOW)
    late, open_still = told(begun=7000, ended=7000), Told(0, 0, 0, 0, 0, 3, 0, 60_000)
    newest = told(begun=9002, ended=9001)
    for rows in ((late, open_still), (open_still,), (open_still, newest, told(begun=2, ended=2))):
        made = tuple(Row(DP, f"op{n}", Kind.COLLECTIVE, row) for n, row in enumerate(rows))
        keeper.take("h0", (Reported(process(0), made),), NOW)
    (known,) = keeper.processes("train-a")
    assert known.progress == {DP.name: (9002, 9001)}


def claim(rank, **more):
    return Reported(structs.replace(process(rank), **more), said(rank).rows)


def test_of_a_rank_that_two_hosts_claim_nothing_is_known():
    keeper = Keeper()
    keeper.take("h1", (said(0, begun=1, ended=1),), NOW)
    keeper.take("h0", (claim(0, pid=7),), NOW)
    assert len(keeper.processes("train-a")) == 2
    log = keeper.log("train-a")
    assert (log.rank.tolist(), log.unseen) == ([], (0, 1))
    _, contested = settled(keeper.processes("train-a"))
    assert [each.host for each in contested[0]] == ["h0", "h1"]


def test_of_two_in_one_place_that_claim_a_rank_the_first_counts():
    keeper = Keeper()
    keeper.take("h0", (claim(0, pid=7),), NOW)
    keeper.take("h0", (said(0, begun=1, ended=1),), NOW + 1)
    assert keeper.log("train-a").sequence.tolist() == [5]


def test_a_source_of_another_name_does_not_come_before_the_one_that_was_heard_first():
    keeper = Keeper()
    keeper.take("h0", (claim(0, pid=1, source="uprobes"),), NOW)
    keeper.take("h0", (claim(0, pid=2, source="hooks"),), NOW + 1)
    keeper.take("h0", (claim(0, pid=3, source="a"),), NOW + 2)
    found, _ = settled(keeper.processes("train-a"))
    assert found[0].process.pid == 2


def test_a_process_that_lives_counts_before_one_that_is_gone():
    keeper = Keeper()
    keeper.take("h0", (claim(0, pid=7, gone=True),), NOW)
    keeper.take("h1", (said(0, begun=1, ended=1),), NOW + 1)
    assert keeper.log("train-a").sequence.tolist() == [1]


def test_processes_of_containers_have_the_same_pid():
    keeper = Keeper()
    keeper.take("h0", (claim(0, pid=1, netns=1), claim(1, pid=1, netns=2)), NOW)
    assert [each.process.rank for each in keeper.processes("train-a")] == [0, 1]


def test_a_container_that_began_anew_has_the_same_pid_and_counts_from_one_again():
    keeper = Keeper()
    former, now = process(0, since_ns=NOW - 10**12), process(0, since_ns=NOW)
    keeper.take("h0", (Reported(former, said(0, begun=9000, ended=8999).rows),), NOW)
    gone = structs.replace(former, gone=True)
    rows = said(0, begun=3, ended=2).rows
    keeper.take("h0", (Reported(now, rows), Reported(gone, ())), NOW + 1)
    known, _ = settled(keeper.processes("train-a"))
    assert known[0].progress == {DP.name: (3, 2)}
    assert not known[0].process.gone


def test_groups_are_as_most_say_and_no_more_than_a_job_has():
    keeper, wrong = Keeper(), Group(DP.name, GroupKind.DATA, (0, 5))
    for host, group in (("h0", wrong), ("h1", DP), ("h2", DP)):
        keeper.take(host, (said(int(host[1]), group=group),), NOW)
    assert keeper.log("train-a").groups == (DP,)
    for number in range(2 * MOST_ROWS):
        keeper.take("h0", (said(0, group=Group(f"g{number}")),), NOW)
    assert len(keeper.processes("train-a")[0].progress) == MOST_ROWS


def test_a_job_that_makes_group_after_group_is_followed_in_the_newest():
    keeper = Keeper()
    for number in range(2 * MOST_ROWS):
        both = *said(0, begun=number, ended=number).rows, *said(0, group=Group(f"g{number}")).rows
        keeper.take("h0", (Reported(process(0), both),), NOW)
    (known,) = keeper.processes("train-a")
    assert known.progress[DP.name] == (number, number)
    assert known.progress[f"g{number}"] == (5, 5)
    assert known.progress.keys() == known.groups.keys()
    assert len(known.progress) == MOST_ROWS


def test_a_host_with_very_many_processes_loses_its_own_oldest():
    keeper = Keeper()
    keeper.take("h1", (said(1),), NOW)
    for pid in range(MOST_OF_HOST + 5):
        keeper.take("h0", (claim(0, pid=pid),), NOW + pid)
    pids = {each.process.pid for each in keeper.processes("train-a") if each.host == "h0"}
    assert pids == set(range(5, MOST_OF_HOST + 5))
    assert len(keeper.processes("train-a")) == MOST_OF_HOST + 1


def test_a_host_that_names_other_members_with_each_window_takes_no_more_memory_with_each():
    keeper = Keeper()
    everybody = tuple(range(8192))
    shared = Group("world", GroupKind.WORLD, everybody)
    keeper.take("h1", tuple(said(rank, group=shared) for rank in range(100, 164)), NOW)
    for number in range(MOST_MEMBERS_OF_HOST // 8192 + 8):
        group = Group(f"{number}", GroupKind.DATA, (*everybody[1:], 8192 + number))
        keeper.take("h0", (said(number % 16, group=group),), NOW + number)
    keeper.expire(NOW)
    names = {n for each in keeper.processes("train-a") for n in each.groups}
    assert len(names) == MOST_MEMBERS_OF_HOST // 8192 + 9
    held = [group for group in keeper._groups if group.members]
    assert sum(len(group.members) for group in held if group != shared) == MOST_MEMBERS_OF_HOST
    # What its processes share counts once, and what one host says takes no other's.
    others = [each for each in keeper.processes("train-a") if each.host == "h1"]
    assert len(others) == 64
    assert all(each.groups["world"] == shared for each in others)


def test_the_world_is_as_most_say():
    keeper = Keeper()
    keeper.take("h0", (said(0), said(1), claim(2, world=1 << 20)), NOW)
    assert keeper.log("train-a").unseen == ()


def test_of_many_rows_the_longest_are_kept():
    keeper = Keeper()
    rows = tuple(Row(None, f"op{n}", Kind.OTHER, told(sum_us=n)) for n in range(MOST_ROWS + 9))
    keeper.take("h0", (Reported(process(0), rows),), NOW)
    (known,) = keeper.processes("train-a")
    assert len(known.rows) == MOST_ROWS
    assert known.rows[0].op == f"op{MOST_ROWS + 8}"


def test_what_is_not_heard_of_for_long_is_forgotten():
    keeper = Keeper()
    keeper.take("h0", (said(0),), NOW)
    keeper.expire(NOW + FORGET_NS - 1)
    assert keeper.jobs == ("train-a",)
    keeper.expire(NOW + FORGET_NS)
    assert keeper.jobs == ()
    assert keeper.processes("train-a") == ()
    assert len(keeper.log("train-a")) == 0


def test_of_too_many_processes_those_that_are_known_stay(monkeypatch):
    monkeypatch.setattr("analyzer.operators.keeper.MOST_PROCESSES", 1)
    keeper = Keeper()
    keeper.take("h0", (said(0), said(1)), NOW)
    assert len(keeper.processes("train-a")) == 1
    assert keeper.refused == 1
