# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.localize.voting.counting import asking
from analyzer.localize.voting.counting.counts import Wanted
from analyzer.questions import Ask
from netagent.wire.messages import PathAnswer, PathReply
from tests.analyzer.localize.voting.counting.ways import (
    FABRIC,
    FAR,
    FLOW,
    HOST,
    NEAR,
    SPINES,
    UNTRACED,
)

ASKED = Ask(HOST.host, asking.question(Wanted(FLOW), HOST, large=False))


@pytest.mark.parametrize(
    "lie",
    [
        {"sent": 20_000, "answered": (20_000, 20_000, 11_000)},
        {"answered": (100, 101, 100)},
        {"answered": (100, -1, 100)},
        {"answered": (100,) * 33},
        {"hops": ("a", "b", "a")},
        {"hops": tuple(map(str, range(33)))},
        {"rtt_ns": (-1,)},
        {"sent": 0, "answered": ()},
    ],
    ids=str,
)
def test_counts_that_nobody_can_have_made_are_no_answer(lie):
    honest = {"source_port": 1, "outer_port": 1, "sent": 100, "answered": (100, 90, 90)}
    for answer, taken in ((honest, 1), (honest | {"hops": ("a", "a", "b")}, 1), (honest | lie, 0)):
        work = asking.count([Wanted(FLOW)], FABRIC.endpoints, FABRIC.topology(), large=False)
        assert next(work) == [ASKED]
        with pytest.raises(StopIteration) as done:
            work.send([PathReply(paths=(PathAnswer(**answer),))])
        assert len(done.value.value) == taken


def test_a_way_that_is_not_between_the_leaves_is_no_answer():
    """A host counts where its own packets go, and nowhere else."""
    wanted = Wanted(FLOW, 4)
    elsewhere = next(leaf for leaf in {r[0] for r in FABRIC.routes.values()} if leaf != NEAR)
    for first, port, taken in ((NEAR, 1, 1), (elsewhere, 1, 0), (NEAR, None, 0)):
        work = asking.count([wanted], FABRIC.endpoints, UNTRACED, large=False)
        assert len(next(work)) == 1
        answer = PathAnswer(
            source_port=0, outer_port=port, hops=(first, SPINES[0], FAR), sent=50,
            answered=(50, 9, 9),
        )  # fmt: skip
        with pytest.raises(StopIteration) as done:
            work.send([PathReply(paths=(answer,))])
        assert len(done.value.value) == taken


@pytest.mark.parametrize(("underlay", "size"), [("172.30.0.10", 1500), ("fd00:30::10", 1520)])
def test_a_large_packet_is_as_large_as_the_outer_one_of_a_large_probe(underlay, size):
    source = replace(HOST, mtu=1450, underlay=underlay)
    assert asking.question(Wanted(FLOW), source, large=True).size == size
    assert asking.question(Wanted(FLOW), source, large=False).size == asking.SMALL_BYTES
