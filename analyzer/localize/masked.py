# SPDX-License-Identifier: Apache-2.0
"""Masked faults: a verdict on the part that a host states, and none on any flow.

The network works, so nothing that probes lose is explained by them: all flows stay in the vote, and
another fault of the same part has an incident of its own.
"""

from analyzer.detect.masked import stated_of
from analyzer.localize.case import Case, Explained
from analyzer.localize.contract import Context
from analyzer.questions import Asking
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.finding import Finding
from netagent.model.path import Component
from netagent.model.verdict import Symptom, Verdict

CONFIDENCE = 0.99
"""Confidence that a part is not what it should be. Chosen: its host read it, twice."""


class Masked:
    """Names parts that are not what they should be, though nothing is lost."""

    settles = False

    def __init__(self, context: Context) -> None:
        """Need nothing that localisers share."""

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return a verdict for each part of a host that has endpoints."""
        yield from ()  # the hosts said it
        hosts = {end.host for end in case.endpoints.values()}
        return [
            Explained(_verdict(component, findings), ())
            for component, findings in stated_of(case.findings).items()
            if component.name.partition("/")[0] in hosts
        ]


def _verdict(component: Component, findings: list[Finding]) -> Verdict:
    facts = [Evidence(EvidenceKind.FINDING, {"text": f.text}) for f in findings]
    read = [(name, text) for f in findings for name, text in f.evidence.items()]
    facts += [Evidence(EvidenceKind.READ, {"name": n, "text": text}) for n, text in read]
    return Verdict(
        component, component.layer, Symptom.MASKED, CONFIDENCE,
        "; ".join(f.text for f in findings), evidence=tuple(facts),
    )  # fmt: skip
