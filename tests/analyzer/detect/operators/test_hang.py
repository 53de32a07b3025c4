# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from analyzer.detect.operators import hang, late, odd, stuck, wording
from analyzer.detect.operators.verdict import Holdup, Who
from analyzer.operators.log import Group, Kind, Place, State, log_of
from analyzer.operators.sources import flight_recorder
from analyzer.operators.sources.dump import decoded, dump_of
from tests.analyzer.operators.sources.jobs import Job, Op, still

DUMPS = Path(__file__).parents[2] / "operators" / "sources" / "dumps"


def judged(dumps):
    return hang.judge(flight_recorder.log({name: dump_of(each) for name, each in dumps.items()}))


def folder(name):
    paths = sorted((DUMPS / name).iterdir())
    return judged({path.name: decoded(path.read_bytes()) for path in paths})


def named(verdict):
    return [(each.kind, each.ranks) for each in verdict.culprits]


FOUR = (Group("g", members=(0, 1, 2, 3)),)


def rows(*each, groups=FOUR, **rest):
    """Return a log of (rank, kind, group, peer, sequence, state)."""
    names = ("rank", "kind", "group", "peer", "sequence", "state")
    columns = dict(zip(names, zip(*each, strict=True), strict=True))
    return log_of(columns, ops=("all_reduce",), groups=groups, **rest)


def collective(rank, sequence, state=State.STARTED, group=0):
    return (rank, Kind.COLLECTIVE, group, -1, sequence, state)


@pytest.mark.parametrize("timing", [False, True])
@pytest.mark.parametrize(("fault", "holdup"), [
    ("cpu", Holdup.HANG_RANK), ("skip", Holdup.MISMATCH), ("size", Holdup.MISMATCH),
    ("op", Holdup.MISMATCH),
])  # fmt: skip
def test_the_one_rank_that_holds_a_job_up_is_named_and_nobody_else(fault, holdup, timing):
    for seed in range(25):
        job, rank = still(seed, fault)
        verdict = judged(job.dumps(timing=timing))
        assert (seed, verdict.holdup, named(verdict)) == (seed, holdup, [(Who.RANK, (rank,))])
        assert verdict.innocent


def test_a_gpu_that_starts_nothing_is_named_where_starts_are_timed():
    for seed in range(25):
        job, rank = still(seed, "gpu")
        assert named(judged(job.dumps(timing=True))) == [(Who.RANK, (rank,))]
        assert named(judged(job.dumps())) == []


def test_two_ranks_that_hold_a_job_up_are_both_named():
    job = Job(4, 1, 2, cpu_stops={1: 9, 6: 9})
    assert named(judged(job.run().dumps())) == [(Who.RANK, (1,)), (Who.RANK, (6,))]


def test_a_job_that_is_over_is_not_judged():
    assert judged(Job(2, 2, 2).run().dumps()) is None


def test_a_job_that_is_at_work_is_nobodys_fault():
    job = Job(4, 1, 1, gpu_stops=dict.fromkeys(range(4), 5), ahead=1)
    verdict = judged(job.run().dumps())
    assert (verdict.holdup, verdict.culprits, verdict.innocent) == (Holdup.NOTHING, (), True)
    assert verdict.missing


@pytest.mark.parametrize("name", ["gloo-chain", "gloo-chain-json"])
def test_of_a_real_job_the_end_of_the_chain_is_named(name):
    verdict = folder(name)
    assert (verdict.holdup, named(verdict)) == (Holdup.HANG_RANK, [(Who.RANK, (3,))])
    assert "rank 3: has ended 5 of" in verdict.culprits[0].why


def test_a_real_job_that_gave_up_names_who_never_came_or_did_something_else():
    assert named(folder("gloo-timeout")) == [(Who.RANK, (2,))]
    mismatch = folder("gloo-mismatch")
    assert (mismatch.holdup, named(mismatch)) == (Holdup.MISMATCH, [(Who.RANK, (2,))])
    assert "rank 2 does broadcast of 4 KiB at 6 of default_pg" in mismatch.culprits[0].why


def test_a_silent_rank_is_named_where_others_wait_for_it():
    job = Job(4, 1, 1, cpu_stops={2: 0}).run()
    verdict = judged(job.dumps())
    assert (verdict.holdup, named(verdict)) == (Holdup.HANG_RANK, [(Who.RANK, (2,))])
    assert "its log is empty" in verdict.culprits[0].why
    assert verdict.culprits[0].confidence == late.SILENT_CONFIDENCE


def test_a_rank_without_a_dump_is_named_only_if_it_alone_is_missing():
    dumps = Job(4, 1, 1, cpu_stops={2: 3}).run().dumps()
    one = judged({name: each for name, each in dumps.items() if not name.endswith("_2")})
    assert named(one) == [(Who.RANK, (2,))]
    assert one.culprits[0].confidence == late.UNSEEN_CONFIDENCE
    assert "rank 2: no log" in one.missing[0]
    two = judged({name: each for name, each in dumps.items() if name[-1] in "03"})
    assert (two.holdup, two.culprits) == (Holdup.INSUFFICIENT, ())
    assert "ranks 1, 2: no log" in two.missing[0]


def test_a_dead_rank_is_not_named_where_another_explains_it():
    dumps = Job(4, 1, 1, cpu_stops={1: 3}).run().dumps()
    verdict = judged({name: each for name, each in dumps.items() if not name.endswith("_3")})
    assert named(verdict) == [(Who.RANK, (1,))]
    assert verdict.missing == ("the logs of rank 3",)


def test_what_all_came_to_and_is_long_not_over_is_a_communication_hang():
    log = rows(*(collective(rank, 4) for rank in range(4)), overdue=1)
    verdict = hang.judge(log)
    assert (verdict.holdup, verdict.innocent) == (Holdup.HANG_COMMUNICATION, False)
    assert named(verdict) == [(Who.GROUP, (0, 1, 2, 3))]


def test_a_rank_that_went_on_for_long_shows_that_what_it_began_stands_still():
    columns = {
        "rank": [0, 0, 1], "kind": [Kind.COLLECTIVE] * 3, "group": [0, 1, 0],
        "sequence": [1, 1, 1], "state": [State.STARTED, State.ENDED, State.STARTED],
        "enqueued_ns": [10, 10 + stuck.STALE_NS, 10],
    }  # fmt: skip
    groups = (Group("g", members=(0, 1)), Group("own", members=(0,)))
    verdict = hang.judge(log_of(columns, groups=groups))
    assert verdict.holdup is Holdup.HANG_COMMUNICATION
    columns["enqueued_ns"] = [10, 9 + stuck.STALE_NS, 10]
    assert hang.judge(log_of(columns, groups=groups)).holdup is Holdup.NOTHING


def test_a_transfer_that_both_came_to_is_an_edge():
    log = rows(
        (0, Kind.SEND, -1, 1, 0, State.STARTED), (1, Kind.RECV, -1, 0, 0, State.STARTED), overdue=2
    )
    verdict = hang.judge(log)
    assert named(verdict) == [(Who.EDGE, (0, 1))]
    assert not verdict.innocent


def test_a_receiver_waits_for_a_send_that_was_never_posted():
    log = rows((1, Kind.RECV, -1, 0, 5, State.STARTED), (0, Kind.SEND, -1, 1, 4, State.ENDED))
    verdict = hang.judge(log)
    assert named(verdict) == [(Who.RANK, (0,))]
    assert "has not posted its send" in verdict.culprits[0].why
    uncounted = rows(
        (1, Kind.RECV, -1, 0, -1, State.STARTED), (0, Kind.SEND, -1, 1, -1, State.ENDED)
    )
    assert hang.judge(uncounted).culprits[0].confidence < verdict.culprits[0].confidence
    sent = rows((1, Kind.RECV, -1, 0, 5, State.STARTED), (0, Kind.SEND, -1, 1, 5, State.ENDED))
    assert hang.judge(sent).culprits == ()


def test_ranks_that_disagree_without_a_majority_are_named_as_a_group():
    job = Job(2, 1, 1)
    job.programs[1][2] = Op("broadcast", job.programs[1][2].group, 7)
    verdict = judged(job.run().dumps())
    assert (verdict.holdup, named(verdict)) == (Holdup.MISMATCH, [(Who.GROUP, (0, 1))])
    assert verdict.culprits[0].confidence < odd.ODD_CONFIDENCE


def test_two_that_both_send_first_wait_in_a_circle():
    log = rows((0, Kind.SEND, -1, 1, 0, State.STARTED), (1, Kind.SEND, -1, 0, 0, State.STARTED))
    verdict = hang.judge(log)
    assert (verdict.holdup, named(verdict)) == (Holdup.MISMATCH, [(Who.GROUP, (0, 1))])


def test_one_in_another_group_is_odd():
    groups = (Group("a", members=(0, 1, 2, 3)), Group("b", members=(2, 3)))
    log = rows(
        *(collective(rank, 4) for rank in (0, 1, 2)), collective(3, 9, group=1), groups=groups
    )
    assert named(hang.judge(log)) == [(Who.RANK, (3,))]


def test_where_most_are_late_it_is_less_certain():
    log = rows(collective(0, 4), *(collective(rank, 3, State.ENDED) for rank in (1, 2, 3)))
    verdict = hang.judge(log)
    assert [each.ranks for each in verdict.culprits] == [(1,), (2,), (3,)]
    assert {each.confidence for each in verdict.culprits} == {
        late.LATE_CONFIDENCE * wording.DOUBTED
    }


def test_the_host_is_said_where_it_is_known():
    log = rows(collective(0, 4), collective(1, 3, State.ENDED), places={1: Place(host="h1")},
               groups=(Group("g", members=(0, 1)),))  # fmt: skip
    assert hang.judge(log).culprits[0].host == "h1"


def test_logs_without_an_operator_tell_nothing():
    assert hang.judge(log_of({"rank": []})) is None
    verdict = hang.judge(log_of({"rank": []}, silent=(0, 1)))
    assert (verdict.holdup, verdict.culprits) == (Holdup.INSUFFICIENT, ())


def test_a_rank_at_which_does_not_end_what_ended_at_others_is_named_once_they_wait_for_it():
    ended = [collective(rank, 4, State.ENDED) for rank in (0, 1, 2)]
    after = [collective(rank, 5) for rank in (0, 1, 2)]
    verdict = hang.judge(rows(*ended, collective(3, 4), *after))
    assert (verdict.holdup, named(verdict)) == (Holdup.HANG_RANK, [(Who.RANK, (3,))])
    assert "which ended at others" in verdict.culprits[0].why
    alone = rows(*ended, collective(3, 4))
    assert hang.judge(alone).holdup is Holdup.NOTHING
    stuck = hang.judge(rows(*ended, collective(3, 4), overdue=1))
    assert stuck.holdup is Holdup.HANG_COMMUNICATION
    assert "which ended at 3 of them" in stuck.culprits[0].why


def test_what_one_rank_sends_to_all_may_end_at_it_before_they_have_come():
    log = rows(collective(0, 4, State.ENDED), collective(1, 4), collective(0, 5))
    log = log_of(
        {name: getattr(log, name) for name in ("rank", "kind", "group", "sequence", "state")},
        ops=("broadcast",), groups=(Group("g", members=(0, 1)),),
    )  # fmt: skip
    assert hang.judge(log).culprits == ()


def test_logs_that_were_taken_one_after_the_other_accuse_nobody():
    early = [collective(3, number, State.ENDED) for number in (1, 2)]
    later = [collective(rank, 9, State.ENDED) for rank in (0, 1, 2)]
    now = [collective(rank, 10) for rank in (0, 1, 2)]
    verdict = hang.judge(rows(*early, *later, *now))
    assert (verdict.holdup, verdict.culprits) == (Holdup.INSUFFICIENT, ())
    assert verdict.missing == ("logs of all ranks from the same time",)
    also = (*early, *later, *now[:2], collective(2, 9, State.ENDED))
    assert named(hang.judge(rows(*also))) == [(Who.RANK, (2,))]


def test_of_very_many_operations_of_very_many_nobody_is_named(monkeypatch):
    monkeypatch.setattr("analyzer.detect.operators.hang.MOST_LOOKED", 100)
    members = tuple(range(51))
    log = log_of(
        {
            "rank": [0, 0], "group": [0, 1], "sequence": [1, 1],
            "kind": [int(Kind.COLLECTIVE)] * 2, "state": [int(State.STARTED)] * 2,
        },
        groups=(Group("a", members=members), Group("b", members=members)),
    )  # fmt: skip
    found = hang.judge(log)
    assert (found.holdup, found.culprits) == (Holdup.INSUFFICIENT, ())
