# SPDX-License-Identifier: Apache-2.0
"""A deviation that a detector saw."""

from dataclasses import dataclass

from netagent.model.evidence import Evidence
from netagent.model.ids import EndpointId
from netagent.model.path import Component
from netagent.model.verdict import Symptom
from netagent.model.window import Window

Subject = tuple[EndpointId, EndpointId] | Component
"""What deviates: an unordered pair of endpoints, smaller first, or a component."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """`subject` deviated in `window`."""

    subject: Subject
    symptom: Symptom
    window: Window
    evidence: tuple[Evidence, ...] = ()
