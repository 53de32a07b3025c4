# SPDX-License-Identifier: Apache-2.0
"""Status as NVIDIA's guide shows it, and as src/ras/client_support.cc prints it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.operators.hang import judge
from analyzer.detect.operators.verdict import Holdup
from analyzer.operators.log import State
from analyzer.operators.sources import ras
from netagent.model.errors import RemoteProtocolError

HEAD = """\
Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          2            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         2         8         8   RUNNING  {status}
"""
MISMATCH = (
    HEAD.format(status="MISMATCH")
    + """
Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  6 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 3 -- GPU 3 managed by process 483075 on node 172.16.64.210
  Rank 5 -- GPU 5 managed by process 483077 on node 172.16.64.211

"""
)
INCOMPLETE = (
    HEAD.format(status="INCOMPLETE")
    + """
Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 5
"""
)


def of_text(text):
    assert ras.is_text(text.encode())
    return ras.log({"status.txt": ras.status_of_text(text.encode())})


def culprits(log):
    verdict = judge(log)
    return [each.ranks for each in verdict.culprits] if verdict else None


def rank(number, count, kind="AllReduce", **fields):
    return {
        "rank": number, "host": f"h{number // 2}", "pid": 100 + number, "cuda_dev": 0,
        "nvml_dev": number % 2, "collective_counts": {kind: count, "Reduce": 0}, **fields,
    }  # fmt: skip


def status(counts, missing=(), **comm):
    return {"communicators_count": 1, "communicators": [{
        "hash": "0xae94", "size": len(counts) + len(missing),
        "ranks": [rank(number, count) for number, count in enumerate(counts)],
        "missing_ranks": [rank(number, 0) for number in missing], **comm,
    }]}  # fmt: skip


def of_json(value):
    assert ras.is_status(value)
    return ras.log({"status.json": ras.status_of(json.loads(json.dumps(value)))})


def test_in_text_the_ranks_that_launched_less_are_those_it_lists():
    log = of_text(MISMATCH)
    assert (log.world, log.source) == (8, "nccl-ras")
    assert culprits(log) == [(3,), (5,)]
    assert log.places[3].host == "172.16.64.210"
    assert any("ask again" in note for note in log.notes)


def test_in_text_one_rank_has_its_count_on_its_line():
    one = MISMATCH.replace("  2 ranks have launched up to operation 6649\n", "")
    one = one.replace("  Rank 3 -- GPU", "  Rank 3 has launched up to operation 6649 -- GPU")
    one = one.replace("  Rank 5 -- GPU", "  Rank 5 has not launched any operations -- GPU")
    assert culprits(of_text(one)) == [(5,)]


def test_in_text_two_counts_without_ranks_say_not_who():
    unknown = MISMATCH.replace("  Rank 3", "  Nobody 3").replace("  Rank 5", "  Nobody 5")
    assert culprits(of_text(unknown)) is None
    assert culprits(of_text(HEAD.format(status="OK"))) is None


def test_a_rank_that_does_not_answer_is_silent():
    log = of_text(INCOMPLETE)
    assert log.silent == (5,)
    assert judge(log).holdup is Holdup.INSUFFICIENT


def test_in_json_whoever_launched_least_is_waited_for():
    assert culprits(of_json(status([101, 100, 101, 101]))) == [(1,)]
    assert culprits(of_json(status([27911, 27890, 27872, 27860]))) == [(3,)]
    assert culprits(of_json(status([5, 5, 5]))) is None


def test_in_json_who_does_not_answer_is_waited_for():
    log = of_json(status([7, 7, 7], missing=[3]))
    assert (log.world, log.silent) == (4, (3,))
    assert culprits(log) == [(3,)]


def test_ranks_of_a_small_communicator_are_processes_of_the_large_one():
    value = status([9, 9, 9, 9])
    pair = [
        rank(0, 4) | {"pid": 102, "host": "h1", "nvml_dev": 0},
        rank(1, 3) | {"pid": 103, "host": "h1"},
    ]
    value["communicators"].append({"hash": "0xtp", "size": 2, "ranks": pair})
    log = of_json(value)
    assert log.groups[1].members == (2, 3)
    assert culprits(log) == [(3,)]
    pair[0]["pid"] = 999
    assert any("rank in the job is not known" in note for note in of_json(value).notes)


def test_of_several_statuses_the_last_is_read():
    first, last = (ras.status_of(status(counts)) for counts in ([2, 1], [3, 3]))
    log = ras.log({"a": first, "b": last})
    assert (log.state == State.ENDED).all()
    assert any("only the last" in note for note in log.notes)


def test_what_is_out_of_bounds_is_refused():
    with pytest.raises(RemoteProtocolError, match="more than"):
        ras.status_of(status([1], size=10**9))
    with pytest.raises(RemoteProtocolError, match="more than"):
        of_text(MISMATCH.replace("         8         8   RUN", "  99999999         8   RUN"))
    odd = status([1, 2])
    odd["communicators"] += [7, {"ranks": [7, {"rank": -1}, {"rank": True}], "missing_ranks": 7}]
    assert culprits(of_json(odd)) == [(0,)]
    assert not ras.is_text(b"{}")


@given(st.data())
def test_damage_is_an_error_of_ours(data):
    content = bytearray(data.draw(st.sampled_from([MISMATCH, INCOMPLETE])).encode())
    for _ in range(4):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        judge(ras.log({"a": ras.status_of_text(bytes(content))}))
    except RemoteProtocolError:
        return


def test_very_many_large_communicators_are_an_error():
    many = [{"hash": str(number), "size": ras.MAX_RANKS, "ranks": []} for number in range(9)]
    with pytest.raises(RemoteProtocolError, match="communicators of 9000000 ranks"):
        ras.status_of({"communicators": many})


def test_very_many_large_communicators_in_text_are_an_error():
    lines = [f"#0-{number} ({number:x}) RUNNING" for number in range(9)]
    row = f"0 1 8 8 {ras.MAX_RANKS} {ras.MAX_RANKS} RUNNING OK"
    with pytest.raises(RemoteProtocolError, match="communicators of 9000000 ranks"):
        ras.status_of_text("\n".join([row, *lines]).encode())


class Word(str):
    """Counts how often any of them was compared with another one."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other):
        Word.compared += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_kinds_of_collectives_are_not_looked_through_for_each_count():
    kinds = [Word(f"kind {n}") for n in range(300)]
    comm = ras.Comm("a", 2, {kind: {0: 1, 1: 1} for kind in kinds})
    made = ras.log({"a": ras.Status((comm,))})
    assert sorted(made.ops) == sorted(kinds)
    assert len(made) == 2 * len(kinds)
    assert Word.compared < 9 * len(made)


def test_no_more_is_looked_at_of_where_a_rank_is_than_real_lines_have():
    """To look for it takes the third power of how long it is."""
    far = MISMATCH.replace("Rank 5 -- ", "Rank 5 -- " + "x" * ras.MAX_WHERE)
    (comm,) = ras.status_of_text(far.encode()).comms
    assert set(comm.processes) == {3}


@pytest.mark.parametrize(
    "line",
    [
        "#0-0 (" + "a" * 2_000_000,
        "    " + "7" * 5000 + " ranks have launched up to operation 3",
        "    3 ranks have launched up to operation " + "7" * 5000,
        "    Rank " + "7" * 5000 + " has not launched any operations",
        "    Rank " + "7" * 5000 + " -- GPU 0 managed by process 7 on node h",
    ],
)
def test_a_line_without_end_is_passed_over_at_once(line):
    """What it takes to look through it grows with its square, or Python refuses the number."""
    whole = f"{MISMATCH}{line}\n"
    assert ras.status_of_text(whole.encode()).comms == ras.status_of_text(MISMATCH.encode()).comms
