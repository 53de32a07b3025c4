# SPDX-License-Identifier: Apache-2.0
"""Masked: what costs no probe. A host states that a part of its own is not what it should be.

The host has looked twice before it says so, and says it in every summary for as long as it holds.
"""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.contract import Seen
from analyzer.questions import Asking
from netagent.model.anomaly import Anomaly, Subject
from netagent.model.finding import MASKED, Finding
from netagent.model.path import Component
from netagent.model.verdict import Symptom


class Masked:
    """Sees components of which a host states a masked fault."""

    symptoms: ClassVar[AbstractSet[Symptom]] = frozenset({Symptom.MASKED})

    def detect(self, seen: Seen) -> Asking[list[Anomaly]]:
        """Return these components."""
        yield from ()  # no question is needed
        window = seen.state.window
        stated = stated_of(f for found in seen.state.findings.values() for f in found)
        return [Anomaly(component, Symptom.MASKED, window) for component in stated]

    def over(self, subjects: Collection[Subject], seen: Seen) -> bool:
        """Return whether each component's host sent its findings without it, or is gone."""
        components = {each for each in subjects if isinstance(each, Component)}
        return all(_is_over(component, seen) for component in components)

    def forget(self, flows: NDArray[np.int64]) -> None:
        """Remember nothing."""


def stated_of(findings: Iterable[Finding]) -> dict[Component, list[Finding]]:
    """Return the findings of masked faults by component, both in order."""
    stated: dict[Component, list[Finding]] = {}
    for finding in sorted(findings, key=lambda f: (f.component, f.kind)):
        if finding.kind in MASKED:
            stated.setdefault(finding.component, []).append(finding)
    return stated


def _is_over(component: Component, seen: Seen) -> bool:
    # A controller's is that of a host (`h3`, `tunnel h3`) or of none, which nobody waits for.
    host = component.name.rpartition(" ")[2].partition("/")[0]
    if host not in seen.state.rows:
        return host not in seen.expected
    return component not in stated_of(seen.state.findings.get(host, ()))
