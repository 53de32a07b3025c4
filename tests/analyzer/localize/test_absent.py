# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.localize.absent import Absent
from analyzer.localize.case import subjects_of
from analyzer.localize.contract import Context
from analyzer.localize.sentences import sentences
from analyzer.localize.tracing.doubts import Doubts
from analyzer.roster.registry import Awaited, Registry
from analyzer.simulate.fabric import Fabric
from netagent.model.path import Component, Kind, Layer
from netagent.model.verdict import Symptom

FABRIC = Fabric(seed=1)


def test_a_container_that_never_came_is_named_and_nothing_else_is_accused():
    case = replace(FABRIC.case(), absent=(Awaited("a7", "train-a", 10**18, 10**18 + 5 * 10**9),))
    absent = Absent(Context(Registry(), FABRIC.topology(), Doubts(18515), 18515))
    with pytest.raises(StopIteration) as done:
        next(absent.explain(case))
    ((verdict, flows),) = [(each.verdict, each.flows) for each in done.value.value]
    assert verdict.component == Component(Kind.CONTAINER, "a7")
    assert (verdict.layer, verdict.symptom) == (Layer.CONTAINER, Symptom.MISSING)
    assert subjects_of(verdict) == {verdict.component}
    assert (flows, verdict.failing, verdict.alternatives) == ((), (), ())
    assert "task train-a" in verdict.summary
    (line,) = sentences(verdict.evidence)
    assert "declared it at 2001-09-09 01:46:40Z" in line
    assert "since 2001-09-09 01:46:45Z" in line
