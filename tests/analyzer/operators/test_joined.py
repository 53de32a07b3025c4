# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from analyzer.operators.joined import Stated, joined, resolved, shift
from analyzer.operators.log import NEVER, UNKNOWN, Group, GroupKind, Kind


def group(*ranks, seed=0, without=()):
    """Return what each rank of a group states of it, by rank.

    Of two that are connected the first one listened; the other one is known by another address.
    """

    def ends(place, at):
        listened = 1 + seed * 1000 + 10 * min(place, at) + max(place, at)
        came = 10**6 + listened + 10**6 * place
        return (listened, came) if place < at else (came, listened)

    return {
        rank: Stated(
            place, len(ranks), {at: ends(place, at) for at in range(len(ranks)) if at != place}
        )
        for place, rank in enumerate(ranks)
        if rank not in without
    }


def stated(*groups):
    return {
        (rank, 10 * n + rank): said for n, each in enumerate(groups) for rank, said in each.items()
    }


def test_ranks_that_share_a_connection_are_in_one_group():
    found = joined(stated(group(0, 2), group(1, 3, seed=1), group(3, 2, 1, 0, seed=2)))
    assert {key: each.places for key, each in found.items()} == {
        (0, 0): (0, 2), (2, 2): (0, 2), (1, 11): (1, 3), (3, 13): (1, 3),
        (3, 23): (3, 2, 1, 0), (2, 22): (3, 2, 1, 0), (1, 21): (3, 2, 1, 0), (0, 20): (3, 2, 1, 0),
    }  # fmt: skip
    assert found[0, 20].members == (0, 1, 2, 3)
    assert found[0, 0].is_whole


def test_two_groups_of_the_same_ranks_have_two_names():
    found = joined(stated(group(0, 2), group(0, 2, seed=1)))
    assert sorted({each.name for each in found.values()}) == ["ranks 0,2", "ranks 0,2 #2"]


def test_who_is_not_heard_of_is_unknown_and_who_is_alone_in_no_group():
    found = joined(stated(group(0, 1, 2, without=(1,)), group(3, 4, seed=1, without=(4,))))
    assert {key: each.places for key, each in found.items()} == {
        (0, 0): (0, UNKNOWN, 2), (2, 2): (0, UNKNOWN, 2)
    }  # fmt: skip
    assert not found[0, 0].is_whole
    assert found[0, 0].name == "ranks 0,?,2"


def test_a_large_group_is_named_by_its_first_ranks():
    found = joined(stated(group(*range(9))))
    assert found[8, 8].name == "ranks 0,1,2,3,4,5,6,7... (9)"


@pytest.mark.parametrize(
    "lie",
    [
        {4: Stated(1, 2, {0: (7, 2)})},  # a third one has that connection
        {2: Stated(1, 3, {0: (7, 2)})},  # of another size
        {2: Stated(1, 2, {1: (7, 2)})},  # to another place
        {2: Stated(1, 2, {0: (7, 8)})},  # another connection
    ],
)
def test_what_contradicts_itself_is_no_group(lie):
    assert group(0, 2)[0] == Stated(0, 2, {1: (2, 10**6 + 2)})
    assert joined(stated(group(0, 2) | lie)) == {}


def test_two_that_claim_one_place_are_in_no_group():
    one, two = Stated(2, 3, {0: (7, 50)}), Stated(2, 3, {1: (8, 51)})
    first = Stated(0, 3, {2: (50, 9), 1: (60, 9)})
    second = Stated(1, 3, {0: (5, 60), 2: (51, 9)})
    assert joined({(0, 0): first, (1, 0): second, (2, 0): one})[1, 0].places == (0, 1, 2)
    assert joined({(0, 0): first, (1, 0): second, (2, 0): one, (3, 0): two}) == {}


def test_numbers_are_aligned_by_when_operations_ended():
    numbers, ends = np.arange(1, 20), np.arange(1, 20) * 1000
    assert shift(numbers, ends + 3, numbers, ends) == 0
    assert shift(numbers[:-2], ends[2:] + 3, numbers, ends) == 2
    assert shift(numbers, ends, numbers[:-3], ends[3:] - 2) == -3
    assert shift(numbers + 1000, ends, numbers, ends) == -1000
    assert shift(numbers[:2], ends[:2], numbers, ends) is None
    assert shift(numbers, ends + 10**9, numbers[:3], ends[:3]) is None  # at no time both


def seen(**columns):
    """Return columns of ranks 0 and 1, whose groups 0 and 1 are one; rank 1 was watched later."""
    ends = [1000, 2000, 3000, 4000, 5000]
    made = {
        "rank": [0] * 6 + [1] * 5, "group": [0] * 6 + [1] * 5,
        "kind": [Kind.COLLECTIVE] * 5 + [Kind.SEND] + [Kind.COLLECTIVE] * 4 + [Kind.RECV],
        "sequence": [1, 2, 3, 4, 5, 1, 1, 2, 3, 4, 1], "peer": [-1] * 5 + [1] + [-1] * 4 + [0],
        "ended_ns": [*ends, 5500, *ends[1:], 5500],
    } | columns  # fmt: skip
    return {name: np.array(values, np.int64) for name, values in made.items()}


GROUPS = (Group("0.a"), Group("1.b"))


def resolve(columns, said=None, world=2):
    said = group(0, 1) if said is None else said
    return resolved(columns, GROUPS, said, world)


def test_peers_are_ranks_and_an_operation_has_one_number():
    columns, groups, whole = resolve(seen())
    assert whole
    assert groups == (Group("world", GroupKind.WORLD, (0, 1)),)
    assert columns["group"].tolist() == [0] * 11
    assert columns["sequence"].tolist() == [1, 2, 3, 4, 5, UNKNOWN, 2, 3, 4, 5, UNKNOWN]
    assert (columns["peer"][5], columns["peer"][10]) == (1, 0)


def test_a_group_of_all_that_are_heard_is_not_that_of_all():
    _, groups, whole = resolve(seen(), world=4)
    assert groups == (Group("ranks 0,1", GroupKind.UNKNOWN, (0, 1)),)
    assert whole


def test_a_place_is_the_rank_that_is_there():
    pair = {0: Stated(1, 3, {0: (4, 5), 2: (1, 6)}), 1: Stated(0, 3, {1: (5, 4)})}
    columns, groups, whole = resolve(seen(), pair)
    assert groups == (Group("ranks 1,0,?", GroupKind.UNKNOWN, (0, 1)),)
    assert (columns["peer"][5], columns["peer"][10]) == (0, 1)
    assert not whole  # nobody is heard of at the third place


def test_of_what_joins_nothing_neither_peers_nor_the_whole_are_known():
    columns, groups, whole = resolve(seen(), {})
    assert groups == GROUPS
    assert columns["peer"].tolist() == [UNKNOWN] * 11
    assert not whole


def test_a_transfer_from_anybody_leaves_the_whole_unknown():
    assert not resolve(seen(peer=[-1] * 11))[2]
    columns, _, whole = resolve(seen(peer=[7] * 11))
    assert columns["peer"][5] == UNKNOWN
    assert not whole


def test_too_few_operations_have_no_number():
    columns, _, _ = resolve(seen(ended_ns=[1000, 2000] + [NEVER] * 4 + [1000, 2000] + [NEVER] * 3))
    assert set(columns["sequence"].tolist()) == {UNKNOWN}


def test_what_is_in_no_group_stays_so():
    columns, _, whole = resolve(seen(group=[0] * 5 + [-1] + [1] * 5))
    assert columns["group"][5] == UNKNOWN
    assert whole
