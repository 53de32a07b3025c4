# SPDX-License-Identifier: Apache-2.0
import pytest

from analyzer.localize.masked import Masked
from analyzer.localize.sentences import sentences
from analyzer.simulate.fabric import Fabric
from netagent.model.finding import MASKED, Finding, FindingKind
from netagent.model.path import Component, Layer
from netagent.model.verdict import Symptom

RNIC = "rnic h1/rnic0"


def explained(*findings):
    case = Fabric(seed=1, loss={Component.parse(RNIC): 0.2}).case(findings=findings)
    with pytest.raises(StopIteration) as done:
        next(Masked(None).explain(case))
    found = done.value.value
    case.explain(found)
    return case, found


def finding(kind, component=RNIC, text="rnic0 runs at 200 Gb/s: it carries 50%"):
    return Finding(kind, Component.parse(component), text, 1, {"usual": "400 Gb/s"})


@pytest.mark.parametrize("kind", sorted(MASKED))
def test_a_masked_fault_is_named_and_explains_no_loss(kind):
    case, (found,) = explained(finding(kind))
    verdict = found.verdict
    assert (str(verdict.component), verdict.layer) == (RNIC, Layer.RNIC)
    assert (verdict.symptom, verdict.failing) == (Symptom.MASKED, ())
    assert verdict.summary == "rnic0 runs at 200 Gb/s: it carries 50%"
    assert "usual: 400 Gb/s" in sentences(verdict.evidence)
    assert case.rest == case.flows
    assert any(view.lost for view in case.rest)


def test_several_of_one_part_are_one_verdict_and_other_findings_none():
    texts = {FindingKind.RATE_REDUCED: "slow", FindingKind.NOT_RDMA: "by TCP"}
    _, (found,) = explained(
        *(finding(kind, text=text) for kind, text in texts.items()), finding(FindingKind.RNIC_DOWN)
    )
    assert found.verdict.summary == "by TCP; slow"


def test_a_host_without_endpoints_concerns_nobody():
    assert explained(finding(FindingKind.RATE_REDUCED, "rnic h9/rnic0"))[1] == []
