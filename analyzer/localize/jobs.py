# SPDX-License-Identifier: Apache-2.0
"""What jobs say of themselves, joined to what probes say: one verdict where both mean one fault.

A slow edge over a link that loses probes is that link's incident, with both evidences. A slow rank
on a network that is well is the rank's, and says how the network was. A slow edge of which no probe
knows anything is a verdict of its own: the sources disagree, and nobody is named.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import combinations, islice

from analyzer.detect.held import JobVerdict, parts_of
from analyzer.detect.operators.verdict import Culprit, Holdup, Who
from analyzer.localize.case import Case, Explained, OrderedPair, unordered, way_of
from analyzer.localize.contract import Context
from analyzer.questions import Asking
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, Layer
from netagent.model.verdict import Symptom, Verdict

DISAGREE = 0.5
"""Confidence that something is wrong with edges that probes find well. Chosen: one source of two
says so."""
MOST_RANKS = 64
"""Most ranks of a slow group whose pairs are looked at. Chosen: the pairs of more would take long,
and cross the same links."""
MOST_PAIRS = 2048
"""Most pairs of endpoints that are looked at of an edge or a group. Chosen: those of 64 ranks."""
MOST_CULPRITS = 16
"""Most culprits of a job that are held against what probes say. Chosen: more than a job has."""
WIDER = (
    "probes of all sizes along these edges, while the job runs: a link may be slow for bulk only"
)


class Jobs:
    """Joins what jobs say to what was found, and names ranks where the network is well."""

    settles = False

    def __init__(self, context: Context) -> None:
        self._topology = context.topology

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return a verdict for each part that holds a job up; it accounts for no flow."""
        yield from ()  # the jobs said it
        return [each for job in case.jobs for each in self._of(job, case)]

    def _of(self, job: JobVerdict, case: Case) -> Iterator[Explained]:
        alone = [
            each
            for place, each in enumerate(job.verdict.culprits)
            if place >= MOST_CULPRITS or not self._joined(each, job, case)
        ]
        edges = [each for each in alone if each.network]
        for part, culprit in parts_of(job).items():
            if culprit is None or culprit in alone:
                yield Explained(_verdict(part, culprit, job, case), ())
        if edges:
            yield Explained(_disagreed(edges, job, case), ())

    def _joined(self, culprit: Culprit, job: JobVerdict, case: Case) -> bool:
        """Add what a job says to the verdicts that mean the same; return whether there are any.

        An incident that stands for the same reason counts, though this window lost nothing.
        """
        is_between = culprit.network and culprit.kind is not Who.RANK
        pairs = _pairs(culprit, job) if is_between else set()
        # What transfers of a rank have in common is what carries it, or what all of them cross.
        ends = job.ends(culprit.ranks) if culprit.network and not is_between else set()
        parts = frozenset() if is_between else _carrying(culprit, job, case)
        parts |= self._crossed(pairs, ends, case)
        mine = [each for each in case.explained if _means(each.verdict, parts, pairs, ends)]
        for each in mine:
            told = (*each.verdict.evidence, _said(job, culprit))
            case.amend(each, replace(each, verdict=replace(each.verdict, evidence=told)))
        return bool(mine) or not case.standing.isdisjoint(parts)

    def _crossed(
        self, pairs: set[OrderedPair], ends: set[EndpointId], case: Case
    ) -> frozenset[Component]:
        """Return what the packets of pairs, and of all that an endpoint has, cross for certain."""
        mask = case.flows.between(list(pairs)) if pairs else case.flows.of_any(ends)
        flows = case.flows.where(mask) if pairs or ends else []
        return frozenset().union(*(way_of(v, case, self._topology).certain for v in flows))


def _means(
    verdict: Verdict, parts: frozenset[Component], pairs: AbstractSet[OrderedPair],
    ends: AbstractSet[EndpointId],
) -> bool:  # fmt: skip
    """Return whether a verdict on what probes saw is about these parts, pairs or endpoints."""
    if verdict.layer is Layer.JOB or verdict.symptom is Symptom.MASKED:
        return False
    failing = [unordered((each.source, each.target)) for each in verdict.failing]
    return verdict.component in parts or any(
        pair in pairs or not ends.isdisjoint(pair) for pair in failing
    )


def _carrying(culprit: Culprit, job: JobVerdict, case: Case) -> frozenset[Component]:
    """Return what carries some ranks: their containers, RNICs and hosts."""
    there = [key for key in job.ends(culprit.ranks) if key in case.endpoints]
    hosts = {case.endpoints[key].host for key in there}
    own = frozenset(part for key in there for part in case.own_parts(key))
    return own | {Component(kind, host) for host in hosts for kind in (Kind.AGENT, Kind.VSWITCH)}


def _pairs(between: Culprit, job: JobVerdict) -> set[OrderedPair]:
    """Return the pairs of endpoints of an edge, or of any two ranks of a group."""
    pairs = (
        unordered((one, other))
        for source, target in combinations(between.ranks[:MOST_RANKS], 2)
        for one in job.ends([source])
        for other in job.ends([target])
        if one != other
    )
    return set(islice(pairs, MOST_PAIRS))


def _verdict(part: Component, culprit: Culprit | None, job: JobVerdict, case: Case) -> Verdict:
    probed = _probed(job.task, case)
    well = job.verdict.innocent and not probed.values["lost"] and not probed.values["slow"]
    confidence = culprit.confidence if culprit else DISAGREE
    why = culprit.why if culprit else job.verdict.summary
    network = f"; the network is innocent: {_network(probed)}" if well else ""
    return Verdict(
        part, part.layer, Symptom.HELD_UP, confidence, f"{_who(culprit, part)}{why}{network}",
        evidence=(_said(job, culprit), probed), missing=job.verdict.missing,
    )  # fmt: skip


def _disagreed(edges: list[Culprit], job: JobVerdict, case: Case) -> Verdict:
    part = Component(Kind.TASK, job.task)
    named = ", ".join(f"{each.kind} {', '.join(map(str, each.ranks[:8]))}" for each in edges[:4])
    how = "stands still" if job.verdict.holdup is Holdup.HANG_COMMUNICATION else "is slow"
    probed = _probed(job.task, case)
    return Verdict(
        part, part.layer, Symptom.HELD_UP, DISAGREE,
        f"sources disagree: {job.task} {how} at {named}, and probes do not see why: "
        f"{_network(probed)}",
        evidence=(*(_said(job, each) for each in edges[:4]), probed), missing=(WIDER,),
    )  # fmt: skip


def _who(culprit: Culprit | None, part: Component) -> str:
    if culprit is None:
        return ""
    where = f" on {culprit.host}" if culprit.host and part.kind is Kind.RANK else ""
    return f"{part}{where}: "


def _said(job: JobVerdict, culprit: Culprit | None) -> Evidence:
    why = () if culprit is None else (culprit.why,)
    lines = list(dict.fromkeys((job.verdict.summary, *why, *job.verdict.evidence)))
    return Evidence(EvidenceKind.OPERATORS, {"task": job.task, "lines": lines})


def _probed(task: str, case: Case) -> Evidence:
    """Return how the probes of a task fared in the window."""
    mine: list[EndpointId] = [key for key, end in case.endpoints.items() if end.task == task]
    flows = case.flows.only(case.flows.of_any(mine))
    pairs = {unordered((view.flow.source, view.flow.target)) for view in flows}
    slow = sum(view.flow in case.slow for view in flows) if case.slow else 0
    values = {
        "task": task, "pairs": len(pairs), "sent": int(flows.sent.sum()),
        "lost": int(flows.lost.sum()), "slow": slow,
    }  # fmt: skip
    return Evidence(EvidenceKind.PROBED, values)


def _network(probed: Evidence) -> str:
    v = probed.values
    slow = f"{v['slow']} flows slower" if v["slow"] else "RTT as always"
    return f"{v['pairs']} pairs, {v['lost']} of {v['sent']} probes lost, {slow}"
