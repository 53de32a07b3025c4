# SPDX-License-Identifier: Apache-2.0
"""Verdicts that hosts' own statements settle, before any vote: endpoint rule first.

An agent that fell silent, a vSwitch that is not running, an RNIC without carrier or a container
whose namespace is gone explain the losses around them. Their flows are taken out of the vote, so
that a dead agent is never a dead link.
"""

from collections.abc import Mapping
from dataclasses import replace

from analyzer.detect.flows import FlowView
from analyzer.localize.case import Case, Explained, pairs_quoted, way_of
from analyzer.localize.contract import Context
from analyzer.localize.topology import LearnedTopology
from analyzer.questions import Asking, Failed, Why
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.finding import Finding, FindingKind
from netagent.model.path import Component, Kind, rnic, switch
from netagent.model.verdict import Suspect, Symptom, Verdict

_SYMPTOMS = {
    FindingKind.RNIC_DOWN: Symptom.UNCONNECTIVITY,
    FindingKind.RNIC_FLAPPING: Symptom.LOSS,
    FindingKind.CONTAINER_CRASHED: Symptom.UNCONNECTIVITY,
    FindingKind.VSWITCH_DOWN: Symptom.UNCONNECTIVITY,
    FindingKind.ENDPOINT_DOWN: Symptom.UNCONNECTIVITY,
}
_SYMPTOMS_WITH_LOSS = {FindingKind.GID_CHANGED: Symptom.UNCONNECTIVITY}
"""What is no incident unless probes agree: an index may move while every address still works."""
_FLOODED = {FindingKind.FLOODED: Symptom.LOSS}
MOST_DIGITS = 10
"""Most digits of a count that a finding states. Chosen: no window has ten thousand million."""
MIN_DARK = 2
"""Fewest hosts whose RNICs at a leaf have no carrier, for the leaf to be at fault. Chosen: cables
of two hosts do not break at once; one host's RNICs may share a card."""
MAX_PORTS = 8
"""Most RNICs that a verdict on their leaf quotes, or hosts that one on their silence quotes.
Chosen: to be read."""
_ANSWERS = (0.7, "answers its RPC, but its summaries do not come in time: its clock or its uplink")
"""An agent that answers its RPC, while several windows in a row lack its summary."""
_SILENCE: Mapping[Why, tuple[float, str]] = {
    Why.REFUSED: (0.99, "is not running: its host answers, but nothing listens on its RPC port"),
    Why.TIMEOUT: (0.9, "is frozen: its RPC port accepts connections, but nobody answers"),
}
"""How an agent's RPC fails -> confidence of the verdict, and its text. Chosen: a refusal is
certain, a timeout is what a busy host looks like as well."""


class Facts:
    """Settles what hosts report about themselves, and what their silence shows."""

    settles = True

    def __init__(self, context: Context) -> None:
        self._topology = context.topology

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return the verdicts of this window's findings and silences."""
        yield from ()  # facts ask nobody
        return settle(case, self._topology)


def settle(case: Case, topology: LearnedTopology) -> list[Explained]:
    """Return the verdicts that findings and silences settle, one per component."""
    settled = _silences(case)
    by_component: dict[Component, list[Finding]] = {}
    for finding in case.findings:
        if finding.kind in _SYMPTOMS or finding.kind in _SYMPTOMS_WITH_LOSS:
            by_component.setdefault(finding.component, []).append(finding)
    gone = _gone_with_containers(case)
    for leaf, ports in sorted(_dark_leaves(case, by_component, topology).items()):
        settled.append(_dark(leaf, {port: by_component[port] for port in ports}, case, topology))
        gone |= ports
    for component, findings in sorted(by_component.items()):
        flows = _crossing(case, component, topology)
        if component.kind is Kind.RNIC and not flows:
            continue  # a spare port: a finding, and no task's incident
        lossy = any(view.lost for view in flows)
        told = [f for f in findings if lossy or f.kind in _SYMPTOMS]
        if told and component not in gone:
            settled.append(_stated(component, told, flows))
    return settled + _floods(case)


def _gone_with_containers(case: Case) -> set[Component]:
    """Return the RDMA devices that only containers had which crashed: they took them along."""
    crashed = {
        finding.component.name
        for finding in case.findings
        if finding.kind is FindingKind.CONTAINER_CRASHED
    }
    if not crashed:
        return set()
    gone, in_use = set[Component](), set[Component]()
    for end in case.endpoints.values():
        if end.rdma:
            devices = gone if end.id.container in crashed else in_use
            devices.add(rnic(end.host, end.rdma.device))
    return gone - in_use


def _dark_leaves(
    case: Case, stated: Mapping[Component, list[Finding]], topology: LearnedTopology
) -> dict[Component, set[Component]]:
    """Return leaves none of whose RNICs, of two hosts or more, has a carrier; with those RNICs."""
    dark = {part for part, findings in stated.items() if any(map(_without_carrier, findings))}
    if len(dark) < MIN_DARK:
        return {}
    ports: dict[str, set[Component]] = {}
    for end in case.endpoints.values():
        leaf = topology.leaf_of(end)
        if leaf is not None:
            ports.setdefault(leaf, set()).add(rnic(end.host, end.rnic))
    return {
        switch(leaf): there
        for leaf, there in ports.items()
        if there <= dark and len({port.name.partition("/")[0] for port in there}) >= MIN_DARK
    }


def _without_carrier(finding: Finding) -> bool:
    return finding.kind is FindingKind.RNIC_DOWN and finding.evidence.get("carrier") == "0"


def _dark(
    leaf: Component,
    ports: Mapping[Component, list[Finding]],
    case: Case,
    topology: LearnedTopology,
) -> Explained:
    every = tuple({v.flow: v for port in ports for v in _crossing(case, port, topology)}.values())
    told = _stated(leaf, [f for findings in ports.values() for f in findings], every)
    lost, sent = sum(v.lost for v in every), sum(v.sent for v in every)
    suspects = tuple(Suspect(port, 0.0, lost, sent) for port in sorted(ports)[:MAX_PORTS])
    verdict = replace(
        told.verdict,
        symptom=Symptom.UNCONNECTIVITY,
        summary=f"none of the {len(ports)} RNICs at {leaf.name} has a carrier",
        alternatives=suspects,
        evidence=told.verdict.evidence[-2 * MAX_PORTS :],
    )
    return Explained(verdict, every)


def _crossing(case: Case, component: Component, topology: LearnedTopology) -> tuple[FlowView, ...]:
    # A vSwitch carries what its host carries, but for what bypasses it.
    switch_of = component.name if component.kind is Kind.VSWITCH else ""
    wanted = Component(Kind.HOST, switch_of) if switch_of else component
    if wanted.kind in {Kind.SWITCH, Kind.LINK}:
        return tuple(v for v in case.flows if wanted in way_of(v, case, topology).certain)
    ends = {
        key
        for key, end in case.endpoints.items()
        if (wanted in case.own_parts(key) and (end.bridge or not switch_of))
        or (end.rdma is not None and wanted == rnic(end.host, end.rdma.device))
    }
    return tuple(case.flows.where(case.flows.of_any(ends)))


def _floods(case: Case) -> list[Explained]:
    """Return verdicts on endpoints that are flooded, for what others lost on the way to them.

    Only as much as the endpoint says that it left unanswered: what else is lost there, and all that
    it sends itself, is put to the vote.
    """
    found = []
    for finding in case.findings:
        if finding.kind is not FindingKind.FLOODED:
            continue
        name = finding.component.name
        ends = {key for key in case.endpoints if str(key) == name}
        to_it = [v for v in case.flows.where(case.flows.of_any(ends)) if v.flow.target in ends]
        lossy = tuple(view for view in to_it if view.lost)
        told = finding.evidence.get("unanswered", "")
        most = int(told) if told.isdecimal() and len(told) < MOST_DIGITS else 0
        if lossy and sum(view.lost for view in lossy) <= most:
            found.append(_stated(finding.component, [finding], tuple(to_it)))
    return found


def _stated(
    component: Component, findings: list[Finding], flows: tuple[FlowView, ...]
) -> Explained:
    # Flapping says more than the state at one instant, and that more than what follows from it.
    order = (FindingKind.RNIC_FLAPPING, *_SYMPTOMS, *_SYMPTOMS_WITH_LOSS, *_FLOODED)
    findings = sorted(findings, key=lambda f: order.index(f.kind))
    first = findings[0]
    lost, sent = sum(v.lost for v in flows), sum(v.sent for v in flows)
    agrees = lost > 0 or not sent
    facts = [Evidence(EvidenceKind.FINDING, {"text": f.text}) for f in findings]
    read = [(name, text) for f in findings for name, text in f.evidence.items()]
    facts += [Evidence(EvidenceKind.READ, {"name": n, "text": text}) for n, text in read]
    facts.append(Evidence(EvidenceKind.CROSSED, {"lost": lost, "sent": sent}))
    verdict = Verdict(
        component,
        component.layer,
        (_SYMPTOMS | _SYMPTOMS_WITH_LOSS | _FLOODED)[first.kind],
        0.99 if agrees else 0.7,
        first.text,
        failing=pairs_quoted(v for v in flows if v.lost),
        evidence=tuple(facts),
    )
    return Explained(verdict, flows)


def _silences(case: Case) -> list[Explained]:
    """Return a verdict on each silent host; one that names nobody where most are not heard.

    An agent that does not run is its own host's trouble, however many there are.
    """
    silent = sorted(case.silent.items())
    refused = [(h, how) for h, how in silent if how is not None and how.why is Why.REFUSED]
    alone = refused if case.shared_silence else silent
    together = {h: how for h, how in silent if (h, how) not in alone}
    shared = [_shared_silence(together, case)] if together else []
    return [*(_silence(host, how, case) for host, how in alone), *shared]


def _shared_silence(silent: Mapping[str, Failed | None], case: Case) -> Explained:
    hosts = {end.host for end in case.endpoints.values()} | silent.keys()
    flows = case.of_hosts(silent.keys())
    facts = [
        Evidence(EvidenceKind.NO_SUMMARY, {"host": h, "rpc": _answer(h, how, case)})
        for h, how in list(silent.items())[:MAX_PORTS]
    ]
    verdict = Verdict(
        None, None, Symptom.SILENCE, 0.5,
        f"{len(silent)} of {len(hosts)} hosts are not heard at once: what they share, as the "
        "management network or the analyzer itself, keeps their summaries away",
        failing=pairs_quoted(v for v in flows if v.lost), evidence=tuple(facts),
        missing=("summaries of most hosts",),
    )  # fmt: skip
    return Explained(verdict, flows)


def _silence(host: str, how: Failed | None, case: Case) -> Explained:
    flows = case.of_hosts({host})
    refused = sum(v.refused for v in flows)
    lost = sum(v.lost for v in flows)
    agent = Component(Kind.AGENT, host)
    rpc = _answer(host, how, case)
    facts = [Evidence(EvidenceKind.NO_SUMMARY, {"host": host, "rpc": rpc})]
    if refused:
        facts.append(Evidence(EvidenceKind.REFUSED, {"probes": refused}))
    if host in case.clocks:
        component = Component(Kind.HOST, host)
        verdict = Verdict(
            component, component.layer, Symptom.SILENCE, 0.97,
            f"the clock of {host} {_off(case.clocks[host])}: its summaries are of other windows, "
            "so that what it sees is not judged",
            evidence=tuple(facts),
        )  # fmt: skip
        return Explained(verdict, ())
    facts.append(Evidence(EvidenceKind.SPARED, {"host": host, "lost": lost}))
    confidence, words = _ANSWERS if how is None else _SILENCE.get(how.why, (0.0, ""))
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
        f"{host} or its management network: neither summary nor RPC ({rpc})",
        failing=pairs_quoted(v for v in flows if v.lost), evidence=tuple(facts),
        missing=(f"any answer of {host} over the management network",),
    )  # fmt: skip
    return Explained(verdict, flows)


def _answer(host: str, how: Failed | None, case: Case) -> str:
    if how is not None:
        return how.text
    return f"answers; its clock {_off(case.clocks[host])}" if host in case.clocks else "answers"


def _off(ahead_ns: int) -> str:
    """Return how a clock is off."""
    where = "ahead of" if ahead_ns > 0 else "behind"
    return f"is {abs(ahead_ns) / 1e9:.1f} s or more {where} the analyzer's"
