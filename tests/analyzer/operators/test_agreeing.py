# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.operators.agreeing import alone, paces, partial, quarrels, unended
from analyzer.operators.keeper import Known
from analyzer.operators.log import Group, GroupKind
from netagent.wire.operators import OperatorProcess

S = 10**9
STILL_NS = 45 * S


def known(rank, *, source="hooks", host="h0", gone=False, pid=1, **progress):
    process = OperatorProcess(
        job="j", rank=rank, world=4, pid=pid, source=source, container="c", gone=gone
    )
    return Known(host, process, 0, (), progress=progress)


def quarrel(looks):
    """Return what is said at the last of some looks, twenty seconds apart."""
    of, found = {}, {}
    for number, recent in enumerate(looks):
        of = paces(of, recent, number * 20 * S)
        found = quarrels(recent, of, number * 20 * S, STILL_NS)
    return found


def still(*, probes, hooks=lambda _: (7, 6), **changes):
    return [
        [known(2, dp=hooks(n)), known(2, source="uprobes", world=probes(n), **changes)]
        for n in range(5)
    ]


def test_a_rank_that_one_source_sees_stand_still_and_another_go_on_is_told():
    assert quarrel(still(probes=lambda n: (100 + n, 99 + n))) == {
        2: "rank 2: hooks see it stand still for 80 s, uprobes see it go on"
    }


@pytest.mark.parametrize(
    "looks",
    [
        still(probes=lambda _: (100, 99)),
        still(probes=lambda _: (100, 99), hooks=lambda n: (n, n)),
        still(probes=lambda n: (100 + n, 99 + n), hooks=lambda n: (n, n)),
        still(probes=lambda n: (100 + n, 99 + n), gone=True),
        still(probes=lambda n: (100 + n, 99 + n), host="h1"),
        [[known(2, dp=(7, 6))] for _ in range(5)],
        [*[[known(2, dp=(7, 6))]] * 4, [known(2, dp=(7, 6)), known(2, source="uprobes", w=(9, 8))]],
    ],
    ids=[
        "both still", "probes are silent", "both go on", "a dead one", "elsewhere", "one source",
        "just heard of",
    ],
)  # fmt: skip
def test_silence_contradicts_nobody(looks):
    assert quarrel(looks) == {}


def of(*progress, source="hooks"):
    return {rank: known(rank, source=source, dp=each) for rank, each in enumerate(progress)}


@pytest.mark.parametrize(
    "progress",
    [
        ((7, 6), (7, 6), (6, 6), (7, 6)),
        ((7, 6), (6, 6)),
        ((7, 7), (7, 7), (7, 6), (7, 6)),
        ((9, 6), (9, 6), (6, 6)),
        ((0, 0), (1, 0), (1, 0)),
    ],
)
def test_what_a_real_hang_leaves_is_whole(progress):
    assert partial(of(*progress)) == {}


@pytest.mark.parametrize("source", ["hooks", "uprobes"])
def test_who_has_not_begun_what_others_ended_was_recorded_in_part(source):
    found = partial(of((5000, 5000), (5000, 5000), (6, 6), (5000, 5000), source=source))
    assert found == {2: "rank 2: 6 of dp are recorded, of which others ended 5000"}


def test_one_who_claims_to_have_ended_what_nobody_began_is_the_one():
    found = partial(of((7, 6), (10**9, 10**9), (6, 6), (7, 6)))
    assert found == {1: "rank 1: 1000000000 of dp are recorded as over, of which others began 7"}


def test_nobody_makes_a_rank_unsure_by_a_claim_to_be_in_its_group():
    late, liar = known(7, alone=(3, 3)), known(1, alone=(10**9, 10**9))
    late.groups["alone"] = Group("alone", GroupKind.DATA, (7,))
    liar.groups["alone"] = Group("alone", GroupKind.DATA, (1, 7))
    assert partial({1: liar, 7: late}).keys() == {1}
    liar.groups["alone"] = Group("alone", GroupKind.DATA, (7,))  # of which it is not even one
    assert 7 not in partial({1: liar, 7: late})


def test_of_two_that_contradict_each_other_neither_is_sure():
    assert partial(of((5000, 4999), (100, 99))).keys() == {0, 1}


def test_of_what_is_counted_from_when_it_was_watched_only_who_is_in_nothing_is_sure():
    found = partial(of((7, 6), (8, 7), (6, 6), (7, 6), source="uprobes"))
    assert found.keys() == {0, 1, 3}
    assert "it waits in dp, and where is not known" in found[0]


@pytest.mark.parametrize(
    ("hosts", "moving", "told"), [(3, {2}, {2}), (3, {1, 2}, set()), (2, {1}, set())]
)
def test_the_only_host_that_goes_on_is_told_where_others_stand_still(hosts, moving, told):
    of = {}
    for number in range(5):
        recent = [
            known(rank, host=f"h{rank}", dp=(number, number) if rank in moving else (7, 6))
            for rank in range(hosts)
        ]
        of = paces(of, recent, number * 20 * S)
    assert alone(recent, of, 80 * S, STILL_NS).keys() == told
    assert alone(recent, of, 80 * S, 81 * S) == {}


@pytest.mark.parametrize(
    ("progress", "told"),
    [
        (((7, 0), (7, 0)), {"dp"}),
        (((7, 6), (7, 6)), set()),
        (((7, 0), (7, 6)), set()),
        (((7, 0), (6, 0)), set()),
        (((1, 0), (1, 0)), set()),
    ],
    ids=["no end", "all but the last", "one sees ends", "one is behind", "the first of all"],
)
def test_a_group_of_which_no_end_was_ever_seen_is_told_where_all_are_equally_far(progress, told):
    assert unended(of(*progress).values()) == told
