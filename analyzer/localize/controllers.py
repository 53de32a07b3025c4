# SPDX-License-Identifier: Apache-2.0
"""Verdicts on controllers: hosts have not what these want, and that is why probes are lost, or not.

A difference explains losses only of endpoints that it may cost all they send, and that do lose all:
whoever still gets an answer is cut off by something else, and stays in the vote. Then both sides
agree, and it need not have lasted. Ports that two hosts fight over lose a part. What costs no probe
now is masked, where it will cost some: the next container that comes. The rest are findings only.
"""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet

from analyzer.detect.flows import Flows, FlowView, unconnected_pairs
from analyzer.intent.differences.contract import Difference
from analyzer.localize.case import Case, Explained, OrderedPair, pair_of, pairs_quoted, unordered
from analyzer.localize.contract import Context
from analyzer.questions import Asking
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.finding import FindingKind
from netagent.model.ids import EndpointId
from netagent.model.verdict import Symptom, Verdict

CONFIDENCE = 0.99
"""Confidence that a controller is at fault. Chosen: a fact's; both sides were read, for as long as
the difference had to last."""
CONTESTED = 0.5
"""Least share of an endpoint's pairs that lose probes, where two hosts fight over its port. Chosen:
30 to 100 % of its packets were lost, wherever they went."""
SURE_FLOWS = 4
"""Flows of an endpoint that all end unanswered, from which on that is no chance. Chosen: where one
in a hundred is lost otherwise, four are at once in 1e-8 of the windows."""
SCATTERED = 0.1
"""Most losses that were answered later, of what was sent until the last answers. Chosen: more than
a network loses that is well. Where something that all flows share loses half of the probes, four of
them end unanswered in one window of fourteen; with this in one of a thousand, at six probes each
(`tests/analyzer/localize/test_controllers.py`). With one or two probes each it cannot speak."""
WAITING = {
    FindingKind.CONTROLLER_STALE, FindingKind.TRANSLATION_STALE, FindingKind.TUNNEL_ADDRESS_WRONG,
    FindingKind.TUNNEL_ADDRESS_TAKEN, FindingKind.GHOST_CHASSIS,
}  # fmt: skip
"""What is an incident though nothing is lost yet, where the host has endpoints."""


class Controllers:
    """Names what of a controller is at fault."""

    settles = True

    def __init__(self, context: Context) -> None:
        """Need nothing that localisers share."""

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return a verdict for each difference that costs probes, or will."""
        yield from ()  # who compared both sides asked already
        if not case.differences:
            return []
        dead = unconnected_pairs(case.rest)
        found = [_explained(each, case, dead) for each in case.differences]
        return [each for each in found if each is not None]


def _explained(
    difference: Difference, case: Case, dead: AbstractSet[OrderedPair]
) -> Explained | None:
    kind = difference.finding.kind
    flows = _cost(difference, case, dead)
    if flows:
        is_part = kind is FindingKind.PORT_CONTESTED
        symptom = Symptom.LOSS if is_part else Symptom.UNCONNECTIVITY
        return Explained(_verdict(difference, symptom, flows), flows)
    if difference.lasts and kind in WAITING and _concerns(difference, case):
        return Explained(_verdict(difference, Symptom.MASKED, ()), ())
    return None


def _concerns(difference: Difference, case: Case) -> bool:
    """Return whether a task has endpoints where the next change will not come to."""
    hosts = {end.host for end in case.endpoints.values()}
    if difference.finding.kind is FindingKind.TRANSLATION_STALE and not difference.hosts:
        return bool(hosts)
    return not hosts.isdisjoint(difference.hosts[:1])


def _cost(
    difference: Difference, case: Case, dead: AbstractSet[OrderedPair]
) -> tuple[FlowView, ...]:
    """Return the flows that a difference explains."""
    cost: dict[EndpointId, Flows] = {}
    for key in difference.endpoints:
        if key in case.endpoints:
            cost[key] = case.rest.only(case.rest.of_any([key]))
    if difference.is_whole:
        cost |= _between_hosts(difference.hosts[0], case)
    contested = difference.finding.kind is FindingKind.PORT_CONTESTED
    struck = [
        flows
        for flows in cost.values()
        if (_is_contested(flows) if contested else _is_cut_off(flows, dead))
    ]
    return tuple({view.flow: view for flows in struck for view in flows}.values())


def _between_hosts(host: str, case: Case) -> dict[EndpointId, Flows]:
    """Return the flows between each endpoint of a host and other hosts."""
    own = [key for key, end in case.endpoints.items() if end.host == host]
    others = [key for key, end in case.endpoints.items() if end.host != host]
    leaving = case.rest.only(case.rest.of_any(own) & case.rest.of_any(others))
    return {key: leaving.only(leaving.of_any([key])) for key in own}


def _is_cut_off(flows: Flows, dead: AbstractSet[OrderedPair]) -> bool:
    """Return whether no flow got an answer in the end: several of them, or for long enough.

    It may have begun within the window: then most probes were answered before, since what loses a
    part all the time does not cut off. And a flow that was probed seldom may have been answered by
    that time for the last time: as often as one that lost all since, at most.
    """
    struck = flows.run > 0
    if not struck.any():
        return False
    answered = flows.sent - flows.lost
    if flows.lost[~struck].any() or (answered[~struck] > answered[struck].max()).any():
        return False
    scattered = (flows.lost - flows.run)[struck].clip(min=0).sum()
    if scattered > SCATTERED * (scattered + answered.sum()):
        return False
    if int(struck.sum()) >= SURE_FLOWS:
        return True
    return any(pair_of(view.flow) in dead for view in flows.where(struck))


def _is_contested(flows: Flows) -> bool:
    """Return whether most pairs lose probes."""
    pairs = _pairs(flows)
    return bool(pairs) and len(_pairs(flows.where(flows.lost > 0))) >= CONTESTED * len(pairs)


def _pairs(flows: Iterable[FlowView]) -> Collection[OrderedPair]:
    return {unordered(pair_of(view.flow)) for view in flows}


def _verdict(difference: Difference, symptom: Symptom, flows: tuple[FlowView, ...]) -> Verdict:
    finding = difference.finding
    read = finding.evidence.items()
    facts = [
        Evidence(EvidenceKind.FINDING, {"text": finding.text}),
        *(Evidence(EvidenceKind.READ, {"name": name, "text": text}) for name, text in read),
    ]
    if flows:
        lost, sent = sum(v.lost for v in flows), sum(v.sent for v in flows)
        facts.append(Evidence(EvidenceKind.CROSSED, {"lost": lost, "sent": sent}))
    return Verdict(
        finding.component, finding.component.layer, symptom, CONFIDENCE, finding.text,
        failing=pairs_quoted(v for v in flows if v.lost), evidence=tuple(facts),
    )  # fmt: skip
