# SPDX-License-Identifier: Apache-2.0
from analyzer.detect.operators.mismatch import mismatches
from analyzer.detect.operators.waits import Waits
from analyzer.operators.log import Group, Kind, State, log_of

FOUR = (Group("g", members=(0, 1, 2, 3)),)


def found(*each, ops=("all_reduce", "broadcast", "all_gather")):
    """Return mismatches in a log of (rank, op, bytes, sequence, state)."""
    names = ("rank", "op", "bytes", "sequence", "state")
    columns = dict(zip(names, zip(*each, strict=True), strict=True))
    columns |= {"kind": [Kind.COLLECTIVE] * len(each), "group": [0] * len(each)}
    return list(mismatches(Waits(log_of(columns, ops=ops, groups=FOUR))))


def test_the_first_place_at_which_they_differ_is_found_and_the_minority_odd():
    one, *others = found(
        *((rank, 0, 8, 1, State.ENDED) for rank in range(4)),
        *((rank, int(rank == 2), 8, 2, State.STARTED) for rank in range(4)),
        *((rank, int(rank == 1), 8, 3, State.STARTED) for rank in range(4)),
    )
    assert (one.group, one.sequence, one.odd) == (0, 2, (2,))
    assert one.most == (("all_reduce", 8),)
    assert others == []


def test_bytes_must_agree_only_where_all_ranks_have_as_many():
    assert found((0, 0, 8, 1, State.STARTED), (1, 0, 9, 1, State.STARTED))[0].odd == ()
    assert found((0, 2, 8, 1, State.STARTED), (1, 2, 9, 1, State.STARTED)) == []


def test_what_ended_everywhere_worked_whatever_its_sizes():
    pending = (0, 0, 8, 2, State.STARTED)
    assert found((0, 0, 8, 1, State.ENDED), (1, 0, 9, 1, State.ENDED), pending) == []
    named = ("all_reduce of 4 Half", "all_reduce of 8 Half", "broadcast")
    rows = [(0, 0, 8, 1, State.ENDED), (1, 1, 8, 1, State.ENDED), pending]
    assert found(*rows, ops=named) == []
    rows[1] = (1, 2, 8, 1, State.ENDED)
    assert found(*rows, ops=named)[0].sequence == 1


def test_several_operations_of_one_number_are_compared_in_order():
    rows = [(rank, op, 8, 1, State.STARTED) for rank in (0, 1) for op in (0, 1)]
    assert found(*rows) == []
    assert found(*rows, (2, 1, 8, 1, State.STARTED), (2, 0, 8, 1, State.STARTED))[0].odd == (2,)


def test_groups_in_which_nobody_waits_are_not_looked_at():
    assert found((0, 0, 8, 1, State.ENDED), (1, 1, 8, 1, State.ENDED)) == []
