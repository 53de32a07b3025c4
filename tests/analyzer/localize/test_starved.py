# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.localize.case import subjects_of
from analyzer.localize.contract import Context
from analyzer.localize.sentences import sentences
from analyzer.localize.starved import Starved
from analyzer.localize.tracing.doubts import Doubts
from analyzer.roster.registry import Registry
from analyzer.simulate.fabric import Fabric
from netagent.model.path import Component, Kind
from netagent.model.verdict import Symptom

FABRIC = Fabric(seed=1, loss={Component.parse("host h1"): 0.2})


def explained(late):
    case = replace(FABRIC.case(), late=late)
    starved = Starved(Context(Registry(), FABRIC.topology(), Doubts(18515), 18515))
    with pytest.raises(StopIteration) as done:
        next(starved.explain(case))
    return done.value.value


def test_a_late_host_is_named_and_no_path_is_accused():
    (found,) = explained({"h1": 212e6})
    verdict = found.verdict
    assert (str(verdict.component), verdict.symptom) == ("host h1", Symptom.DELAY)
    assert "212 ms" in verdict.summary
    assert subjects_of(verdict) == {Component(Kind.HOST, "h1")}
    lines = sentences(verdict.evidence)
    assert "stamps of probes: h1 takes 212 ms of a round trip" in lines
    assert any("none of them accuses a path" in line for line in lines)


def test_where_nobody_is_late_nobody_is_named():
    assert explained({}) == []
