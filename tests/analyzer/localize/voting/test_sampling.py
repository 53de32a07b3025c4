# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.flows import Flows
from analyzer.localize.contract import Context
from analyzer.localize.tracing.doubts import Doubts
from analyzer.localize.votes import Votes
from analyzer.localize.voting import sampling
from analyzer.localize.voting.sampling import across, sample
from analyzer.roster.registry import Registry
from analyzer.simulate.fabric import Fabric
from netagent.model.evidence import EvidenceKind
from netagent.model.path import link, rnic, switch
from tests.analyzer.localize.test_votes import named_in, said
from tests.length import some

SPINE = switch("spine-1")
SHAPE = {"rails": 4, "ports": 16, "tasks": 1, "probes": 12}


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(sampling, "MOST_LOSSY", 200)
    monkeypatch.setattr(sampling, "MOST_OF_HOST", 200)


@given(st.integers(0, 1 << 46), st.integers(0, 1 << 40))
def test_pairs_are_drawn_evenly_and_others_in_each_window(first, window):
    pairs = first + np.arange(4_000)
    drawn = [sampling._drawn(pairs, each) for each in (window, window + 1)]
    for each in drawn:
        assert ((each >= 0) & (each < 1)).all()
        assert abs((each < 0.25).mean() - 0.25) < 0.05
    assert abs((np.maximum(*drawn) < 0.5).mean() - 0.25) < 0.05


def test_as_many_as_can_be_weighed_are_left_as_they_are():
    fabric = Fabric(seed=1, loss={SPINE: 0.5}, probes=12)
    case = fabric.case()
    some = sample(case.flows, case)
    assert (some.flows, some.share, some.others) == (case.flows, 1.0, None)


@pytest.mark.usefixtures("few")
def test_of_more_some_pairs_are_weighed_with_all_of_their_flows():
    fabric = Fabric(seed=1, loss={SPINE: 0.5}, **SHAPE)
    case = fabric.case()
    some = sample(case.flows, case)
    assert some.others is not None
    drawn = set(some.flows.pairs().tolist())
    of_drawn = np.isin(case.flows.pairs(), list(drawn))
    assert some.flows.number.tolist() == case.flows.number[of_drawn].tolist()
    left = case.flows.number[~of_drawn & (case.flows.lost > 0)]
    assert some.others.number.tolist() == left.tolist()
    assert len(drawn) / len(set(case.flows.pairs().tolist())) == pytest.approx(some.share, abs=0.15)


def test_a_host_that_makes_up_losses_keeps_no_other_from_the_vote(monkeypatch):
    monkeypatch.setattr(sampling, "MOST_LOSSY", 100)
    monkeypatch.setattr(sampling, "MOST_OF_HOST", 100)
    fabric = Fabric(seed=1, **SHAPE)
    case = fabric.case()
    own = {e.id for e in fabric.endpoints.values() if e.host == "h0"}
    liar = np.isin(case.flows.ends[0], [fabric.numbers.end(each) for each in own])
    flows = replace(case.flows, lost=np.where(liar, case.flows.sent, 0))
    assert liar.sum() > 100
    assert sample(flows, case).others is None


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("part", [SPINE, link("leaf-s0-r0", "spine-0"), rnic("h1", "rnic1")])
def test_what_crosses_a_part_is_found(part):
    fabric = Fabric(seed=1, loss={SPINE: 0.5}, **SHAPE)
    case = fabric.case()
    some = sample(case.flows, case)
    found = across(some.others, {part}, case, fabric.topology())
    assert set(found.tolist()) == {
        number
        for view, number in zip(some.others, some.others.number.tolist(), strict=True)
        for reply in (False, True)
        if part in fabric.crossed(view.flow, reply=reply)
    }


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_a_switch_is_named_by_some_of_the_pairs_and_explains_the_others(seed, rate):
    fabric = Fabric(seed=seed, loss={SPINE: rate}, **SHAPE)
    case = fabric.case()
    (verdict,) = said(Votes(Context(Registry(), fabric.topology(), Doubts(1), 1)), case, fabric)
    assert verdict.component == SPINE
    (fact,) = (each for each in verdict.evidence if each.kind is EvidenceKind.SAMPLED)
    assert 0.1 < fact.values["share"] < 0.9
    some = sample(case.flows, case)
    assert isinstance(some.others, Flows)
    assert not np.isin(some.others.number, case.rest.number).any()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("seed", some(range(8), 4))
def test_nobody_else_is_named_beside_it(seed):
    lossy = link("leaf-s0-r0", "spine-0")
    fabric = Fabric(seed=seed, loss={SPINE: 1.0, lossy: 0.4}, **SHAPE)
    assert SPINE in named_in(fabric, windows=4) <= {SPINE, lossy}
