# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from math import inf, nan

import pytest

from analyzer.operators.log import UNKNOWN, Group, GroupKind, Kind, Place, State, log_of
from analyzer.skeleton.stated import FOR_PEOPLE, Given, accounted_bytes, stated, transfers
from tests.analyzer.cluster import endpoint

MEMBERS = tuple(endpoint(f"h{n}", f"c{n}") for n in range(4))
DP = tuple(Group(f"dp{n}", GroupKind.DATA, ranks) for n, ranks in enumerate([(0, 1), (2, 3)]))
WORLD = Group("world", GroupKind.WORLD, (0, 1, 2, 3))
PLACES = {rank: Place(f"h{rank}") for rank in range(4)}
SIZE = 1 << 20


def records(*rows, groups=(*DP, WORLD)):
    """Return a log of (rank, group, kind, peer, bytes)."""
    columns = {
        name: [row[n] for row in rows]
        for n, name in enumerate(("rank", "group", "kind", "peer", "bytes"))
    }
    columns["op"] = [0] * len(rows)
    columns["state"] = [int(State.ENDED)] * len(rows)
    return log_of(columns, ops=("all_reduce",), groups=groups, places=PLACES, world=4)


REDUCED = tuple((rank, rank // 2, Kind.COLLECTIVE, UNKNOWN, SIZE) for rank in range(4))
SENT = ((1, UNKNOWN, Kind.SEND, 2, SIZE),)
GIVEN = Given(
    log_of({"rank": [0, 1, 2, 3], "group": [0, 0, 1, 1]}, groups=DP, places=PLACES, world=4),
    records(*REDUCED, *SENT),
    {rank: (each.id,) for rank, each in enumerate(MEMBERS)},
    transferring=frozenset({1}), incomplete=frozenset(), sent_bytes=8.0 * SIZE, seconds=60.0,
)  # fmt: skip


def test_groups_and_who_sends_to_whom_are_the_skeleton():
    found = stated(GIVEN, MEMBERS, set()).skeleton
    assert found.confident
    assert found.edges.tolist() == [[0, 1], [1, 2], [2, 3]]


def test_who_was_seen_to_send_before_stays():
    seen = {(0, 3)}
    found = stated(replace(GIVEN, records=records(*REDUCED, *SENT)), MEMBERS, seen).skeleton
    assert found.edges.tolist() == [[0, 1], [0, 3], [1, 2], [2, 3]]
    assert seen == {(0, 3), (1, 2)}


@pytest.mark.parametrize(
    ("changes", "lack"),
    [
        ({"transferring": frozenset({0, 1})}, "to whom 1 ranks send"),
        ({"records": replace(GIVEN.records, source="uprobes")}, "do not say who is in a group"),
        ({"incomplete": frozenset({3})}, "of 1 ranks not every operation is recorded"),
        (
            {"records": records(*SENT, (0, 2, Kind.COLLECTIVE, UNKNOWN, FOR_PEOPLE + 1))},
            "all ranks exchange 4097 bytes at a time",
        ),
        ({"records": records(*REDUCED, *SENT, (0, 2, Kind.COLLECTIVE, UNKNOWN, 4))}, None),
        ({"sent_bytes": 100.0 * SIZE}, "do not account for"),
        ({"sent_bytes": nan}, "do not account for"),
        ({"sent_bytes": inf}, "do not account for"),
        ({"ends": {0: GIVEN.ends[0]}}, "where 3 of 4 ranks are"),
    ],
)
def test_where_operators_do_not_say_it_all_every_pair_is_probed(changes, lack):
    found = stated(replace(GIVEN, **changes), MEMBERS, set()).skeleton
    assert found.confident == (lack is None)
    assert len(found.edges) == (3 if found.confident else 6)
    assert lack is None or lack in found.reason


def test_only_what_ends_counts_and_a_transfer_once():
    assert accounted_bytes(records(*REDUCED, *SENT)) == (2 * 4 + 1) * SIZE
    assert accounted_bytes(records()) == 0
    every = records(*((rank, 2, Kind.COLLECTIVE, UNKNOWN, SIZE) for rank in range(4)))
    assert accounted_bytes(replace(every, ops=("all_gather",))) == 4 * 3 * SIZE
    assert transfers(records((3, UNKNOWN, Kind.RECV, 0, 1), *REDUCED)) == {(0, 3)}


def test_one_rank_does_not_account_for_what_all_others_send():
    """It may say anything, and pairs that are used would be left out."""
    liar = (1, UNKNOWN, Kind.SEND, 2, 1 << 60)
    lied = replace(GIVEN, records=records(*REDUCED, liar), sent_bytes=100.0 * SIZE)
    assert "do not account for" in stated(lied, MEMBERS, set()).skeleton.reason


def test_one_host_does_not_hide_by_its_word_of_a_group_that_all_ranks_exchange():
    every = [(rank, 2, Kind.COLLECTIVE, UNKNOWN, SIZE) for rank in range(4)]
    groups = (*DP, Group("world", GroupKind.UNKNOWN, (0, 1)))  # whose word comes first is taken
    log = records(*REDUCED, *SENT, *every, groups=groups)
    for lied in (log, replace(log, world=1 << 17)):
        found = stated(replace(GIVEN, records=lied, sent_bytes=0.0), MEMBERS, set()).skeleton
        assert "every pair is used" in found.reason


def test_peers_that_nobody_is_take_no_memory():
    seen = set()
    strange = records(*REDUCED, *SENT, *((1, UNKNOWN, Kind.SEND, n, 1) for n in range(50, 90)))
    found = stated(replace(GIVEN, records=strange), MEMBERS, seen).skeleton
    assert "where 40 of 44 ranks are" in found.reason
    assert seen == {(1, 2)}
