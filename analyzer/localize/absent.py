# SPDX-License-Identifier: Apache-2.0
"""Containers that never came: a verdict on the container, and none on any host or path."""

from analyzer.localize.case import Case, Explained
from analyzer.localize.contract import Context
from analyzer.questions import Asking
from analyzer.roster.registry import Awaited
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.path import Component, Kind
from netagent.model.verdict import Symptom, Verdict

CONFIDENCE = 0.99
"""Confidence that a container never came. Chosen: a fact's; agents register what is there."""


class Absent:
    """Names declared containers that never registered."""

    settles = True

    def __init__(self, context: Context) -> None:
        """Need nothing that localisers share."""

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return a verdict for each; it accounts for no flow."""
        yield from ()  # the roster knows
        return [Explained(_verdict(each), ()) for each in case.absent]


def _verdict(awaited: Awaited) -> Verdict:
    component = Component(Kind.CONTAINER, awaited.container)
    values = {
        "task": awaited.task, "declared_ns": awaited.declared_ns, "begun_ns": awaited.begun_ns,
    }  # fmt: skip
    return Verdict(
        component, component.layer, Symptom.MISSING, CONFIDENCE,
        f"container {awaited.container} of task {awaited.task} was declared and never registered: "
        "no agent has it, and nothing is measured of it",
        evidence=(Evidence(EvidenceKind.AWAITED, values),),
        missing=("why it did not start: its scheduler and its host know",),
    )  # fmt: skip
