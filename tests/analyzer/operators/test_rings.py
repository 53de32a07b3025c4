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


SECOND = 10**9


def at(ns, *, took_ns=MS, **more):
    """Return a record that began so long after the first, and has ended if it took anything."""
    begun = MS + ns
    return RECORD._replace(
        begun_ns=begun, waited_ns=begun, ended_ns=begun + took_ns if took_ns else 0, **more
    )


@pytest.mark.parametrize(
    ("pause_s", "since_s", "left_out"),
    [
        (1, 4, 1),
        (1, 6, 0),
        (4, 11, 1),
        (4, 13, 0),
        (40, 59, 1),
        (40, 61, 0),
        (1, -3, 1),
        (1, -6, 0),
    ],
)
def test_what_is_under_way_in_a_job_at_work_holds_nobody_up(tmp_path, pause_s, since_s, left_out):
    """Rank 2 was read a moment before rank 0, and has not begun what that one has."""
    mine = [at(0), at(pause_s * SECOND, sequence=2), at(pause_s * SECOND + 2 * MS, took_ns=0)]
    rings = {"a": made(tmp_path, 0, *mine), "b": made(tmp_path, 2, *mine[:2])}
    newest_ns = int(log(rings).started_ns.max())
    found = log(rings, now_ns=newest_ns + since_s * SECOND)
    assert len(found) == 5 - left_out
    assert len(found.notes) == left_out
    assert all("1 operators under way are left out" in each for each in found.notes)


def test_a_collective_that_lasts_is_told_though_others_go_on(tmp_path):
    mine = [at(0), at(SECOND, took_ns=0, sequence=2)]
    goes_on = [at(n * SECOND, kind=form.SEND, peer=2) for n in range(10)]
    rings = {"a": made(tmp_path, 0, *mine), "b": made(tmp_path, 2, *goes_on)}
    newest_ns = int(log(rings).started_ns.max())
    assert len(log(rings, now_ns=newest_ns)) == 12
    # Whoever sent and does not wait for the end may be long at work.
    mine[1] = mine[1]._replace(kind=form.SEND, peer=2)
    rings["a"] = made(tmp_path, 0, *mine)
    newest_ns = int(log(rings).started_ns.max())
    assert len(log(rings, now_ns=newest_ns)) == 11


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
    assert not found.is_whole
    small = log({"a": made(tmp_path, 1, RECORD._replace(group=1), extra=lines)})
    assert [small.groups[place].name for place in small.group] == ["1.1.c0ffee"]


def probed(tmp_path, rank, *records, whole=True, ends=None):
    """Return a ring of probes of one of two ranks; rank 1 is the first in their group."""
    place = 1 - rank
    ends = [[1 - place, 5 + place, 6 - place]] if ends is None else ends
    lines = (
        {"job": "train-a", "rank": rank, "world": 2, "source": "uprobes"},
        {"whole": whole},
        {"group": 1, "name": f"c{rank}", "size": 2, "place": place, "ends": ends},
        {"op": 1, "name": "unseen"},
    )
    return made(tmp_path, rank, *records, extra=lines)


SENT = RECORD._replace(kind=form.SEND, group=1, peer=0)
GOT = RECORD._replace(kind=form.RECV, group=1, peer=1)


def test_groups_that_probes_saw_of_two_ranks_are_one(tmp_path):
    rings = {"a": probed(tmp_path, 0, SENT), "b": probed(tmp_path, 1, GOT._replace(peer=1))}
    found = log(rings)
    assert found.is_whole
    assert [(each.name, each.members) for each in found.groups] == [("world", (0, 1))]
    assert found.peer.tolist() == [1, 0]
    assert found.sequence.tolist() == [UNKNOWN, UNKNOWN]


@pytest.mark.parametrize(
    "odd",
    [
        {"whole": False},
        {"ends": []},
        {"ends": "all"},
        {"ends": [[0], [0, 1, "2"], [0, True, 5], [7, 5, 6], 3]},
        {"ends": [[0, 5, 7]]},
    ],
)
def test_where_probes_do_not_know_all_that_a_rank_does_nor_does_the_log(tmp_path, odd):
    rings = {"a": probed(tmp_path, 0, SENT), "b": probed(tmp_path, 1, GOT)}
    assert log(rings).is_whole
    assert not log(rings | {"a": probed(tmp_path, 0, SENT, **odd)}).is_whole


def test_where_some_of_what_probes_see_was_shed_the_log_is_not_whole(tmp_path):
    shed = RECORD._replace(kind=form.OTHER, group=form.NO_GROUP, op=1)
    rings = {"a": probed(tmp_path, 0, SENT, shed), "b": probed(tmp_path, 1, GOT)}
    assert not log(rings).is_whole


def test_what_is_sent_and_not_waited_for_keeps_nobody(tmp_path):
    begun = SENT._replace(waited_ns=0, ended_ns=0)
    waited = begun._replace(waited_ns=2 * MS)
    rings = {"a": probed(tmp_path, 0, begun, waited), "b": probed(tmp_path, 1, GOT)}
    assert log(rings).state.tolist() == [State.UNKNOWN, State.STARTED, State.ENDED]


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
