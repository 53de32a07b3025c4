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
    gathered = replace(records((0, 2, Kind.COLLECTIVE, UNKNOWN, SIZE)), ops=("all_gather",))
    assert accounted_bytes(gathered) == 3 * SIZE
    assert transfers(records((3, UNKNOWN, Kind.RECV, 0, 1), *REDUCED)) == {(0, 3)}
