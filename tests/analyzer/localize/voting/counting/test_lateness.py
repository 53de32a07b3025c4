# SPDX-License-Identifier: Apache-2.0

import pytest

from analyzer.localize.voting.counting import lateness
from analyzer.localize.voting.counting.counts import Wanted, counted_on
from netagent.model.path import link, rnic, switch
from netagent.wire.messages import PathAnswer
from tests.analyzer.localize.voting.counting.ways import (
    FABRIC,
    FAR,
    FLOW,
    HOST,
    NEAR,
    SPINE,
    SPINES,
    US,
    way,
)


def ballots(rtts_us, shift_us=(300, 5300)):
    """Return (components, late) of each ballot."""
    rtts = tuple(us * US for us in rtts_us)
    answer = PathAnswer(
        source_port=FLOW.source_port, outer_port=1, sent=9, answered=(9,) * len(rtts), rtt_ns=rtts
    )
    shift = (shift_us[0] * US, shift_us[1] * US)
    counts = [counted_on(Wanted(FLOW), answer, FABRIC.topology())]
    made = lateness.late_ballots(counts, FABRIC.endpoints, {FLOW: shift})
    return [(ballot.components, bool(ballot.lost)) for ballot in made]


START = {rnic(HOST.host, HOST.rnic), switch(NEAR)}
TO_SPINE = START | {switch(SPINE), link(NEAR, SPINE)}
ALL = TO_SPINE | {switch(FAR), link(SPINE, FAR)}


@pytest.mark.parametrize(
    ("rtts_us", "told"),
    [
        pytest.param((200, 5200, 5400), [(START, 0), (TO_SPINE, 1), (ALL, 1)], id="near link"),
        pytest.param((200, 400, 5400), [(START, 0), (TO_SPINE, 0), (ALL, 1)], id="far link"),
        pytest.param((8200, 12400, 13600), [(START, 0), (TO_SPINE, 1), (ALL, 1)], id="busy host"),
        pytest.param((200, 400, 600), [(ALL - START, 0)], id="nowhere on the way"),
        pytest.param((5200, 5400, 5600), [(ALL - START, 0)], id="before the first, or after"),
        pytest.param((200, 9000, 5400), [(START, 0), (ALL, 1)], id="a spine answers late"),
        pytest.param((9000, 400, 600), [(ALL - START, 0)], id="a leaf answers late"),
        pytest.param((200, 5200, 0), [(START, 0), (TO_SPINE, 1)], id="the last is silent"),
        pytest.param((200, 0, 5400), [(START, 0), (ALL, 1)], id="the spine is silent"),
        pytest.param((200, 400, 0), [(TO_SPINE - START, 0)], id="no step, the last is silent"),
        pytest.param((0, 5200, 5400), [], id="the first is silent"),
        pytest.param((200, 0, 0), [], id="only the first answers"),
        pytest.param((200, 30_000, 31_000), [], id="a step that is not the flow's"),
        pytest.param((), [], id="nothing was counted"),
        pytest.param((200, 2400, 2500), [], id="late by less than the flow was"),
        pytest.param((200, 400, 2500), [(TO_SPINE - START, 0)], id="the far link by less"),
    ],
)
def test_routers_of_one_flow_are_compared(rtts_us, told):
    assert ballots(rtts_us) == [(components, bool(late)) for components, late in told]


@pytest.mark.parametrize("shift_us", [(7000, 6900), (7000, 7000), (7000, 7300)])
def test_routers_that_differ_by_less_than_any_shift_are_not_late(shift_us):
    assert ballots((200, 400, 440), shift_us) == [(ALL - START, False)]


@pytest.mark.parametrize(
    ("rtts_us", "late"),
    [
        ((20, 20, 80), {2}),
        ((20, 20, 20), set()),
        ((20, 60, 100), set()),  # they differ too much to say
    ],
)
def test_a_way_that_is_late_is_late_beside_the_others(rtts_us, late):
    spines = [*SPINES, "spine-8", "spine-9"][:3]
    counts = [
        way(spine, 50, 50, 50, rtt_us=(9, rtt, rtt))
        for spine, rtt in zip(spines, rtts_us, strict=True)
    ]
    made = lateness.late_ballots(counts, FABRIC.endpoints, {FLOW: (14 * US, 74 * US)})
    found = {
        n for n, s in enumerate(spines) for b in made if b.lost and link(NEAR, s) in b.components
    }
    assert found == late
    assert bool(made) is bool(late)  # what passed by before they counted acquits nobody


@pytest.mark.parametrize(("rtts_us", "late"), [
    ((20, 22, 80), {2}), ((20, 22, 24), set()), ((20, 22, 30), set()),
])  # fmt: skip
def test_a_way_that_is_late_by_far_acquits_no_other_where_noise_hides_the_shift(rtts_us, late):
    spines = [*SPINES, "spine-8", "spine-9"][:3]
    counts = [
        way(spine, 50, 50, 50, rtt_us=(9, rtt, rtt))
        for spine, rtt in zip(spines, rtts_us, strict=True)
    ]
    made = lateness.late_ballots(counts, FABRIC.endpoints, {FLOW: (14 * US, 20 * US)})
    assert all(b.lost for b in made)
    assert {n for n, s in enumerate(spines) for b in made if link(NEAR, s) in b.components} == late
