# SPDX-License-Identifier: Apache-2.0
"""A lab whose controller is wholly away: OVN's databases and northd are dead for an hour.

What breaks meanwhile that needs no controller must be named as ever, one thing must be said of the
controller, and nobody may be named for its absence, nor for its return.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.lab import drill
from tests.lab.catalogue import CATALOGUE, Spec
from tests.lab.demo import SETTLE_S, SPARED_S, Observer, Say
from tests.lab.drill import RECOVER_WITHIN_S, Plan, Tried
from tests.lab.lab import Bursts, Lab
from tests.lab.shape import Controller, Transport, driven_by
from tests.lab.state import State
from tests.lab.targets import Kind

_FABRIC = frozenset({Kind.LINK, Kind.SPINE, Kind.LEAF, Kind.RNIC})
_NEEDS_CONTROLLER = frozenset({"vswitchd-killed"})
"""Flows come back from the controller alone."""


@dataclass(slots=True)
class Report:
    """What was seen while the controller was away, and when it was back."""

    tried: list[Tried] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    """Components of the controller of which a finding told -> what it said."""
    away_s: float = 0.0
    back_s: float | None = None
    """From the return of the controller until nothing was said of it; None where that never was."""
    named: set[str] = field(default_factory=set)
    """Whom incidents named after the last fault and for SPARED_S after the return."""

    @property
    def good(self) -> bool:
        """Whether all was seen, one thing said of the controller until it was back, no more."""
        right = bool(self.tried) and all(one.right for one in self.tried)
        return right and len(self.said) == 1 and self.back_s is not None and not self.named

    def lines(self) -> list[str]:
        """Return the sums, for people."""
        back = "for ever" if self.back_s is None else f"until {self.back_s:.1f} s after its return"
        return [
            f"controller away for {self.away_s / 60:.1f} min",
            *drill.lines(self.tried),
            *(f"said of {component}, {back}: {text}" for component, text in self.said.items()),
            f"named when it was back: {', '.join(sorted(self.named)) or 'nobody'}",
        ]


def specs() -> list[Spec]:
    """Return the faults that break, and are healed, without a controller."""
    return [
        each
        for each in CATALOGUE.values()
        if (each.kind in _FABRIC or each.kind is Kind.HOST)
        and each.controller is None
        and not (each.rdma or each.blameless or each.blind)
        and each.name not in _NEEDS_CONTROLLER
    ]


def drawn(state: State, seed: int) -> Iterator[tuple[int, list[Plan]]]:
    """Yield faults without end, each with the seed that draws its target: all of them in turn."""
    while True:
        for spec in specs():
            yield next(drill.singles(state, seed, [spec.name]))
        seed += len(CATALOGUE)


def run(lab: Lab, say: Say, *, minutes: float, seed: int) -> Report:
    """Run on a fresh lab, which is taken down after; return what was seen."""
    lab.up(driven_by(Controller.OVN), traffic=Bursts())
    report = Report()
    try:
        with lab.services().client() as client:
            observer = Observer(client)
            observer.wait(lambda: False, timeout_s=SETTLE_S[Transport.UDP])
            observer.remember()
            lab.end_central()
            began_s = time.monotonic()
            for one in drill.tries(lab, observer, drawn(lab.state(), seed), say):
                report.tried.append(one)
                report.said |= _said(observer)
                if time.monotonic() > began_s + 60 * minutes:
                    break
            report.named = drill.quiet(observer) - {*report.tried[-1].truths}
            report.away_s = time.monotonic() - began_s
            lab.begin_central()
            began_s = time.monotonic()
            if observer.wait(lambda: not _said(observer), timeout_s=RECOVER_WITHIN_S):
                report.back_s = time.monotonic() - began_s
            # What differs from a controller has to last before anybody is named for it.
            report.named |= drill.quiet(observer, watch_s=SPARED_S)
    finally:
        lab.down()
    return report


def _said(observer: Observer) -> dict[str, str]:
    return {
        each["component"]: each["text"]
        for each in observer.findings()
        if each["component"].startswith("controller ")
    }
