# SPDX-License-Identifier: Apache-2.0
"""Verdicts that hosts' own statements settle, before any vote: endpoint rule first.

An agent that fell silent, a vSwitch that is not running, an RNIC without carrier or a container
whose namespace is gone explain the losses around them. Their flows are taken out of the vote, so
that a dead agent is never a dead link.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from analyzer.detect.loss import FlowView
from analyzer.localize.evidence import Evidence, components_of, own_rnics, pairs_quoted
from analyzer.localize.topology import LearnedTopology
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import Component, Kind, rnic
from netagent.model.verdict import Symptom, Verdict

_SYMPTOMS = {
    FindingKind.RNIC_DOWN: Symptom.UNCONNECTIVITY,
    FindingKind.RNIC_FLAPPING: Symptom.LOSS,
    FindingKind.CONTAINER_CRASHED: Symptom.UNCONNECTIVITY,
    FindingKind.VSWITCH_DOWN: Symptom.UNCONNECTIVITY,
    FindingKind.ENDPOINT_DOWN: Symptom.UNCONNECTIVITY,
}
_SYMPTOMS_WITH_LOSS = {FindingKind.GID_CHANGED: Symptom.UNCONNECTIVITY}
"""What is no incident unless probes agree: an index may move while every address still works."""
MUTE = "answers"
"""An agent that answers its RPC, while several windows in a row lack its summary."""
_SILENCE = {
    "refused": (0.98, "is not running: its host answers, but nothing listens on its RPC port"),
    "timeout": (0.9, "is frozen: its RPC port accepts connections, but nobody answers"),
    MUTE: (0.7, "answers its RPC, but its summaries do not come in time: its clock or its uplink"),
}


@dataclass(frozen=True, slots=True)
class Explained:
    """A verdict and the flows that it accounts for."""

    verdict: Verdict
    flows: tuple[FlowView, ...]


def settle(evidence: Evidence, topology: LearnedTopology) -> list[Explained]:
    """Return the verdicts that findings and silences settle, one per component."""
    settled = [_silence(host, how, evidence) for host, how in sorted(evidence.silent.items())]
    by_component: dict[Component, list[Finding]] = {}
    for finding in evidence.findings:
        if finding.kind in _SYMPTOMS or finding.kind in _SYMPTOMS_WITH_LOSS:
            by_component.setdefault(finding.component, []).append(finding)
    gone = _gone_with_containers(evidence)
    for component, findings in sorted(by_component.items()):
        flows = _crossing(evidence, component, topology)
        if component.kind is Kind.RNIC and not flows:
            continue  # a spare port: a finding, and no task's incident
        lossy = any(view.lost for view in flows)
        told = [f for f in findings if lossy or f.kind in _SYMPTOMS]
        if told and component not in gone:
            settled.append(_stated(component, told, flows))
    return settled


def _gone_with_containers(evidence: Evidence) -> set[Component]:
    """Return the RDMA devices that only containers had which crashed: they took them along."""
    crashed = {
        finding.component.name
        for finding in evidence.findings
        if finding.kind is FindingKind.CONTAINER_CRASHED
    }
    gone, in_use = set[Component](), set[Component]()
    for end in evidence.endpoints.values():
        if end.rdma:
            devices = gone if end.id.container in crashed else in_use
            devices.add(rnic(end.host, end.rdma.device))
    return gone - in_use


def _crossing(
    evidence: Evidence, component: Component, topology: LearnedTopology
) -> tuple[FlowView, ...]:
    # A vSwitch carries whatever its host carries.
    wanted = Component(Kind.HOST, component.name) if component.kind is Kind.VSWITCH else component
    return tuple(
        view
        for view in evidence.flows
        if wanted in components_of(view.flow, evidence.endpoints, topology)
        or wanted in own_rnics(view.flow, evidence.endpoints)
    )


def _stated(
    component: Component, findings: list[Finding], flows: tuple[FlowView, ...]
) -> Explained:
    # Flapping says more than the state at one instant, and that more than what follows from it.
    order = (FindingKind.RNIC_FLAPPING, *_SYMPTOMS, *_SYMPTOMS_WITH_LOSS)
    findings = sorted(findings, key=lambda f: order.index(f.kind))
    first = findings[0]
    lost, sent = sum(v.lost for v in flows), sum(v.sent for v in flows)
    agrees = lost > 0 or not sent
    evidence = [f.text for f in findings]
    evidence += [f"{k}: {v}" for f in findings for k, v in f.evidence.items()]
    evidence.append(f"probes that cross it: {lost} of {sent} lost")
    verdict = Verdict(
        component,
        component.layer,
        (_SYMPTOMS | _SYMPTOMS_WITH_LOSS)[first.kind],
        0.97 if agrees else 0.7,
        first.text,
        failing=pairs_quoted(v for v in flows if v.lost),
        evidence=tuple(evidence),
    )
    return Explained(verdict, flows)


def _silence(host: str, how: str, evidence: Evidence) -> Explained:
    flows = tuple(
        view
        for view in evidence.flows
        if host in {evidence.endpoints[e].host for e in (view.flow.source, view.flow.target)}
    )
    refused = sum(v.refused for v in flows)
    lost = sum(v.lost for v in flows)
    agent = Component(Kind.AGENT, host)
    facts = [f"no summary of {host} for the window; RPC: {how}"]
    if refused:
        facts.append(
            f"{refused} probes were answered by ICMP port unreachable: the path and the "
            "containers' network stacks work, only the responder is gone"
        )
    facts.append(f"probes from and to {host}: {lost} lost; none of them accuses a path")
    confidence, words = _SILENCE.get(how, (0.0, ""))
    if not words and refused:
        confidence, words = 0.9, "sends nothing, while its containers' network stacks answer"
    if words:
        verdict = Verdict(
            agent, agent.layer, Symptom.SILENCE, confidence, f"the agent of {host} {words}",
            failing=pairs_quoted(v for v in flows if v.lost), evidence=tuple(facts),
        )  # fmt: skip
        return Explained(verdict, flows)
    component = Component(Kind.HOST, host)
    verdict = Verdict(
        component, component.layer, Symptom.SILENCE, 0.5,
        f"{host} or its management network: neither summary nor RPC ({how})",
        failing=pairs_quoted(v for v in flows if v.lost), evidence=tuple(facts),
        missing=(f"any answer of {host} over the management network",),
    )  # fmt: skip
    return Explained(verdict, flows)


def unexplained(flows: Iterable[FlowView], settled: Iterable[Explained]) -> tuple[FlowView, ...]:
    """Return the flows that no verdict accounts for."""
    taken = {view.flow for each in settled for view in each.flows}
    return tuple(view for view in flows if view.flow not in taken)
