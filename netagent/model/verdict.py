# SPDX-License-Identifier: Apache-2.0
"""What the analyzer concludes, and how it holds over time."""

from dataclasses import dataclass, field

from netagent.model.evidence import Evidence
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Layer
from netagent.model.strenum import StrEnum


class Symptom(StrEnum):
    """How endpoints feel a fault."""

    UNCONNECTIVITY = "unconnectivity"
    LOSS = "loss"
    LATENCY = "latency"
    SILENCE = "silence"
    """A host's agent sends nothing; says nothing about any path."""
    DELAY = "delay"
    """A host takes long to send or to answer probes; says nothing about any path."""
    MASKED = "masked"
    """None: probes lose nothing, but a part is not what it should be."""
    MISSING = "missing"
    """A declared container never registered; says nothing about any host or path."""
    HELD_UP = "held up"
    """A training job waits for a part of itself, by its own operators; no probe need be lost."""


@dataclass(frozen=True, slots=True)
class Pair:
    """An ordered pair of endpoints, with what its probes saw in the windows looked at."""

    source: EndpointId
    target: EndpointId
    sent: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Suspect:
    """A component with its tally."""

    component: Component
    score: float
    """0..1: share of the failing probes it explains, times how surely crossing it fails."""
    lost: int
    """Failing probes whose path crosses it."""
    crossed: int
    """All probes whose path crosses it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A component at fault and the evidence; `component` None means insufficient evidence."""

    component: Component | None
    layer: Layer | None
    symptom: Symptom
    confidence: float
    """0..1."""
    summary: str
    """One sentence for a human."""
    failing: tuple[Pair, ...] = ()
    healthy: tuple[Pair, ...] = ()
    """Pairs that cross neighbouring components and are fine: why those are not blamed."""
    alternatives: tuple[Suspect, ...] = ()
    evidence: tuple[Evidence | str, ...] = ()
    """What was read where: flows quoted, paths, counters, findings. A sentence is what an earlier
    version stored."""
    missing: tuple[str, ...] = ()
    """Evidence that would have settled it."""


class IncidentState(StrEnum):
    """Life of an incident."""

    OPEN = "open"
    CONFIRMED = "confirmed"
    """A second window, or an independent fact, agrees."""
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True)
class Incident:
    """A verdict over time. All instants are Unix nanoseconds."""

    id: str
    state: IncidentState
    verdict: Verdict
    detected_ns: int
    """When the first anomaly that led here was known to the analyzer."""
    localized_ns: int
    updated_ns: int
    recovered_ns: int | None = None
    tasks: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """What changed on the way: verdicts revised, components added."""
    unobserved_ns: int | None = None
    """Since when nothing is measured of it any more; None while something is."""
    late_ns: int = 0
    """Nanoseconds by which judging was late when this was told; 0 where it was in time."""
