# SPDX-License-Identifier: Apache-2.0
"""What a check of the host is given, and what it says."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from netagent.host.facts import HostView
from netagent.host.hardware import Hardware
from netagent.host.rdma_facts import RdmaView
from netagent.model.finding import FindingKind
from netagent.model.path import Component, Kind
from netagent.model.strenum import StrEnum

LEAST_SIBLINGS = 3
"""Fewest others that must all be alike for one to be odd. Chosen: of two nobody knows which is,
and of three one may have another purpose."""


class State(StrEnum):
    """What came of a check."""

    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    """Cannot tell: the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """All that was read of a host."""

    host: str
    view: HostView = field(default_factory=HostView)
    hardware: Hardware = field(default_factory=Hardware)
    rdma: RdmaView = field(default_factory=RdmaView)

    @property
    def itself(self) -> Component:
        """The host as a component."""
        return Component(Kind.HOST, self.host)


@dataclass(frozen=True, slots=True)
class Checked:
    """One thing that a check says."""

    check: str
    state: State
    text: str
    """A sentence for people, with what was read."""
    remedy: str = ""
    """What to do, where something is wrong."""
    component: Component | None = None
    """What is wrong."""
    kind: FindingKind | None = FindingKind.MISCONFIGURED
    """What the finding in a summary is called, where something is wrong; None: there is none."""
    evidence: Mapping[str, str] = field(default_factory=dict)


HostCheck = Callable[[Inspected], Iterator[Checked]]
"""A check: yields what is wrong; else one line that all is well, or why it cannot tell."""


def odd_ones(values: Mapping[str, str]) -> dict[str, str]:
    """Return what the others say, for each name whose value alone differs from all others'."""
    odd = {}
    for name, value in values.items():
        others = Counter(each for other, each in values.items() if other != name)
        if others.total() >= LEAST_SIBLINGS and len(others) == 1 and value not in others:
            odd[name] = next(iter(others))
    return odd
