# SPDX-License-Identifier: Apache-2.0
"""Hosts that are late: a verdict on the host, and none on any path."""

from analyzer.localize.case import Case, Explained
from analyzer.localize.contract import Context
from analyzer.questions import Asking
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.path import Component, Kind
from netagent.model.verdict import Symptom, Verdict

CONFIDENCE = 0.97
"""Confidence that a late host is late. Chosen: below a fact's, as stamps of others say it; of a
thousand that were simulated, all were (docs/campaign.md)."""


class Starved:
    """Names hosts that take long to send or to answer probes."""

    settles = False

    def __init__(self, context: Context) -> None:
        """Need nothing that localisers share."""

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return a verdict for each; its flows are not put to a vote."""
        yield from ()  # the stamps are there
        return [_verdict(host, delay_ns, case) for host, delay_ns in sorted(case.late.items())]


def _verdict(host: str, delay_ns: float, case: Case) -> Explained:
    lost = sum(view.lost for view in case.of_hosts({host}))
    component = Component(Kind.HOST, host)
    late = Evidence(EvidenceKind.LATE, {"host": host, "delay_ns": delay_ns})
    spared = Evidence(EvidenceKind.SPARED, {"host": host, "lost": lost})
    verdict = Verdict(
        component, component.layer, Symptom.DELAY, CONFIDENCE,
        f"{host} takes {delay_ns / 1e6:.0f} ms to send or to answer a probe: it gets no CPU, and "
        "what it loses says nothing of the network",
        evidence=(late, spared),
    )  # fmt: skip
    return Explained(verdict, ())
