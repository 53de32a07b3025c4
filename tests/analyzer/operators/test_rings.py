# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.operators.log import NEVER, UNKNOWN, GroupKind, Kind, State
from analyzer.operators.rings import log
from netagent_torch import form
from netagent_torch.ring import Ring

MS = 1_000_000
RECORD = form.Record(0, MS, MS, 5 * MS, 64, 1, 3, -1, 0, 0, form.COLLECTIVE, 0)


def made(tmp_path, rank, *records, job="train-a", extra=(), capacity=64):
    ring = Ring(tmp_path / f"{job}-{rank}-{len(list(tmp_path.iterdir()))}.ring", capacity=capacity)
    for line in (
        {"op": 0, "name": "all_reduce"},
        {"job": job, "rank": rank, "world": 4},
        {"group": 0, "name": "1:0-2", "size": 2, "members": [0, 2]},
        {"group": 0, "kind": "dp"},
        *extra,
    ):
        ring.say(line)
    for each in records:
        ring.add(each)
    data = ring.path.read_bytes()
    ring.close()
    return data


def test_rings_of_ranks_are_a_log(tmp_path):
    hanging = RECORD._replace(sequence=2, ended_ns=0, waited_ns=0)
    found = log({"a": made(tmp_path, 0, RECORD, hanging), "b": made(tmp_path, 2, RECORD)})
    assert found.rank.tolist() == [0, 0, 2]
    assert found.sequence.tolist() == [1, 2, 1]
    assert found.state.tolist() == [State.ENDED, State.STARTED, State.ENDED]
    assert found.duration_ns.tolist() == [4 * MS, UNKNOWN, 4 * MS]
    assert found.ended_ns[1] == NEVER
    assert found.kind.tolist() == [Kind.COLLECTIVE] * 3
    (group,) = found.groups
    assert (group.name, group.kind, group.members) == ("1:0-2", GroupKind.DATA, (0, 2))
    assert (found.world, found.unseen, found.silent) == (4, (1, 3), ())
    assert found.notes == ()


def test_what_is_no_ring_or_of_another_job_or_rank_is_left_out_and_said(tmp_path):
    found = log(
        {
            "a": made(tmp_path, 0, RECORD),
            "b": made(tmp_path, 1),
            "c": made(tmp_path, 0, RECORD, RECORD),
            "d": made(tmp_path, 3, RECORD, job="train-b"),
            "e": b"hello",
        }
    )
    assert found.rank.tolist() == [0]
    assert found.silent == (1,)
    assert len(found.notes) == 3
    with pytest.raises(ValueError, match="left out"):
        log({"e": b"hello"})


def test_what_was_overwritten_is_said_and_the_rest_is_in_order(tmp_path):
    many = [RECORD._replace(sequence=number) for number in range(1, 71)]
    found = log({"a": made(tmp_path, 0, *many)})
    assert found.sequence.tolist() == list(range(7, 71))
    assert found.notes == ("rank 0: 6 older records are overwritten",)


def test_of_two_groups_of_a_name_the_newer_one_counts(tmp_path):
    """A job that hung, and made its groups anew within its processes, hangs no more."""
    hung = RECORD._replace(sequence=7000, ended_ns=0, waited_ns=0)
    anew = {"group": 1, "name": "1:0-2", "size": 2, "members": [0, 2]}
    now = RECORD._replace(group=1)
    found = log({"a": made(tmp_path, 0, hung, now, extra=(anew,))})
    assert (found.sequence.tolist(), found.state.tolist()) == ([1], [State.ENDED])
    assert [each.name for each in found.groups] == ["1:0-2"]


def test_a_wait_that_came_late_says_only_how_long_it_held(tmp_path):
    late = RECORD._replace(waited_ns=50 * MS, ended_ns=50 * MS + 10_000)
    assert log({"a": made(tmp_path, 0, late)}).duration_ns.tolist() == [10_000]


def test_probes_know_a_group_by_its_address_and_the_world_by_its_size(tmp_path):
    lines = (
        {"job": "train-a", "rank": 1, "world": 4, "source": "uprobes"},
        {"group": 1, "name": "c0ffee", "size": 2, "place": 1},
        {"group": 2, "name": "beef", "size": 4, "place": 1},
    )
    found = log({"a": made(tmp_path, 1, RECORD._replace(group=2), extra=lines)})
    assert found.source == "uprobes"
    assert [found.groups[place].name for place in found.group] == ["world"]
    assert "1.c0ffee" in {each.name for each in found.groups}


@given(st.integers(0, 200), st.binary(min_size=1, max_size=40), st.integers(0, 3000))
def test_a_damaged_ring_is_read_or_refused(tmp_path_factory, at, junk, cut):
    folder = tmp_path_factory.getbasetemp()
    path = folder / "whole"
    if not path.exists():
        path.write_bytes(made(tmp_path_factory.mktemp("r"), 0, RECORD, RECORD))
    data = bytearray(path.read_bytes())
    data[at : at + len(junk)] = junk
    try:
        found = log({"a": bytes(data[: len(data) - cut])})
    except ValueError:
        return
    assert len(found) <= 64
