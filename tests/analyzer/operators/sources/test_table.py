# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.operators.log import NEVER, UNKNOWN, GroupKind, Kind, State
from analyzer.operators.sources import table
from analyzer.operators.sources.table import Table, Texts
from netagent.model.errors import RemoteProtocolError


def texts(*words):
    known = sorted({word for word in words if word})
    return Texts(np.array([known.index(word) if word else -1 for word in words]), tuple(known))


def log(rows, **columns):
    """Return the log of (rank, kind, op, group, start, end)."""
    rank, kind, op, group, start, end = zip(*rows, strict=True)
    return table.log(Table(
        numbers={"rank": np.array(rank)} | {name: np.array(each) for name, each in columns.items()},
        times={"start_us": np.array(start, float), "end_us": np.array(end, float)},
        texts={"kind": texts(*kind), "op": texts(*op), "group": texts(*group)},
    ))  # fmt: skip


NAN = float("nan")


def test_a_row_is_one_operator():
    made = log(
        [
            (3, "compute", "forward", "", 1.5, 2.25),
            (3, "Collective", "all_reduce", "dp0", 2.25, NAN),
        ]
    )
    assert (made.source, made.world, made.unseen) == ("import", 4, (0, 1, 2))
    assert made.kind.tolist() == [Kind.COMPUTE, Kind.COLLECTIVE]
    assert made.started_ns.tolist() == [1500, 2250]
    assert made.ended_ns.tolist() == [2250, NEVER]
    assert made.state.tolist() == [State.ENDED, State.STARTED]
    assert [made.ops[each] for each in made.op] == ["forward", "all_reduce"]
    assert made.group.tolist() == [UNKNOWN, 0]
    assert (made.groups[0].name, made.groups[0].kind) == ("dp0", GroupKind.DATA)
    assert made.step.tolist() == made.bytes.tolist() == [UNKNOWN] * 2


def test_times_of_today_keep_their_microsecond():
    made = log([(0, "other", "x", "", 1_795_793_135_520_946.0, 1_795_793_135_520_947.25)])
    assert made.duration_ns.tolist() == [1250]
    assert log([(0, "other", "x", "", float("inf"), 1e300)]).started_ns.tolist() == [NEVER]


def test_rows_of_a_rank_are_in_the_order_of_steps_and_times():
    rows = [(0, "other", name, "", at, at) for name, at in (("c", 1), ("b", 9), ("a", 2))]
    made = log(rows, step=[1, 0, 0])
    assert [made.ops[each] for each in made.op] == ["a", "b", "c"]


def test_who_names_a_group_is_in_it():
    made = log([(rank, "collective", "x", f"g{rank % 2}", 0, 1) for rank in range(4)])
    assert [group.members for group in made.groups] == [(0, 2), (1, 3)]
    assert [group.kind for group in made.groups] == [GroupKind.UNKNOWN] * 2


def test_a_group_named_after_an_axis_is_one_for_each_place_on_the_others():
    rows = [(rank, "collective", "x", axis, 0, 1) for axis in ("dp", "tp") for rank in range(4)]
    made = log(rows, dp=[0, 0, 1, 1] * 2, tp=[0, 1, 0, 1] * 2)
    members = {group.name: group.members for group in made.groups}
    assert members == {"dp/tp0": (0, 2), "dp/tp1": (1, 3), "tp/dp0": (0, 1), "tp/dp1": (2, 3)}
    assert made.places[2].dp == 1


def test_the_axis_on_which_members_differ_is_what_a_group_is_for():
    made = log([(rank, "collective", "x", "g", 0, 1) for rank in range(2)], dp=[0, 0], pp=[0, 1])
    assert made.groups[0].kind is GroupKind.PIPELINE


def test_collectives_are_counted_by_step_and_group_so_that_one_left_out_shifts_no_other():
    steps = [5, 5, 6, 6, 5, 6, 6]
    rows = [(int(at > 3), "collective", "x", "g", at, at + 1) for at in range(7)]
    made = log(rows, step=steps)
    assert made.sequence.tolist() == [0, 1, 2, 3, 0, 2, 3]


def test_transfers_are_counted_by_peer_and_direction():
    rows = [(0, kind, "x", "", at, at) for at, kind in enumerate(("send", "recv", "send", "send"))]
    assert log(rows, peer=[1, 1, 2, 1]).sequence.tolist() == [0, 0, 0, 1]
    loose = log(rows)
    assert loose.sequence.tolist() == [UNKNOWN] * 4
    assert "4 transfers name no peer" in loose.notes


def test_a_sequence_that_is_given_is_kept():
    made = log([(0, "collective", "x", "g", 0, 1)], sequence=[41])
    assert made.sequence.tolist() == [41]


def test_without_groups_and_ends_nothing_is_made_up():
    made = log([(0, "collective", "x", "", 0, NAN)])
    assert made.groups == ()
    assert made.state.tolist() == [State.UNKNOWN]
    assert "no operation has an end" in made.notes
    assert any("name no group" in note for note in made.notes)


def test_a_table_without_rows_is_a_log_without_operators():
    empty = np.array([], np.int64)
    words = Texts(empty, ())
    made = table.log(Table({"rank": empty}, {"start_us": empty, "end_us": empty},
                           {"kind": words, "op": words, "group": words}))  # fmt: skip
    assert (len(made), made.world) == (0, 0)
    without = Table(
        {"rank": empty}, {"start_us": empty, "end_us": empty}, {"kind": words, "op": words}
    )
    assert len(table.log(without)) == 0


@pytest.mark.parametrize(
    ("rank", "kind", "reason"),
    [
        (-1, "other", "column rank"), (1 << 40, "other", "column rank"),
        (0, "gemm", "'gemm' is none of"), (0, "", "some rows have none"),
    ],
)  # fmt: skip
def test_what_is_no_operator_is_refused(rank, kind, reason):
    with pytest.raises(RemoteProtocolError, match=reason):
        log([(rank, kind, "x", "", 0, 1)])


def test_what_ends_before_it_begins_is_noted():
    made = log([(0, "compute", "x", "", 5, 2), (0, "compute", "x", "", 5, 7)])
    assert made.notes == ("1 operations end before they begin: they count as no time",)
