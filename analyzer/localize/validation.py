# SPDX-License-Identifier: Apache-2.0
"""The last resort: hosts compare the copies of their flow tables (RNIC validation).

It is asked for where flow tables deliver, and votes leave trouble without a name for two windows in
a row, or end on a part of a host that makes flows slow. What differs names a part of the host that
was asked, with the entries that differ. What agrees is evidence: then nobody asks for it any more.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from analyzer.detect.flows import FlowView
from analyzer.localize.case import (
    Case,
    Endpoints,
    Explained,
    OrderedPair,
    is_switched,
    pair_of,
    pairs_quoted,
    unordered,
)
from analyzer.localize.contract import Context
from analyzer.localize.validating.judge import STATED, Accused, Compared, accused, evidence
from analyzer.localize.validating.wants import Look, looks_of, request_of, taken_of
from analyzer.localize.walks import ANY_PORT
from analyzer.questions import Ask, Asking, Failed
from netagent.model.evidence import Evidence
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, vswitch
from netagent.model.verdict import Symptom, Verdict
from netagent.wire.validate import ValidateReply, ValidateRequest

CONFIDENCE = 0.98
"""Confidence of a verdict on packets that are treated as no table says. Chosen: as a trace's, for
the difference is a fact."""
SOFTWARE_CONFIDENCE = 0.9
"""The same where packets go the right way, by software. Chosen: below a fact's, since they may have
gone that way before they were slow."""
MIN_LOST = 4
"""Least lost probes, in each window, of a pair that no verdict covers. Chosen: what a vote asks of
a suspect (`election.MIN_LOST`); fewer are stray losses."""
MIN_SLOW = 2
"""Least slow flows of a pair that no verdict covers. Chosen: what one flow meets may be chance."""
SLOW_SHARE = 0.5
"""Least share of such a pair's flows that are slow. Chosen: what a host does to a pair's packets it
does to most of its flows, as their entries are the same."""
MAX_PAIRS = 2
"""Pairs for which hosts are asked in one window. Chosen: hosts are disturbed, and more
pairs fail for the same few reasons."""
MAX_TROUBLES = 64
"""Pairs of one verdict that are followed. Chosen: far more than hosts are asked for."""
MAX_LOOKS = 4
"""Comparisons that one verdict quotes. Chosen: both ends of two pairs."""
MAX_WHY = 200
"""Characters of the reason why a host made no comparison. Chosen: one line."""
WANTED = "a comparison of the datapath's and the RNIC's flow tables with OpenFlow's"
"""What votes name as missing until it was done."""
_PARTS = frozenset({Kind.RNIC, Kind.HOST, Kind.VSWITCH, Kind.ENDPOINT, Kind.CONTAINER})
"""Kinds of parts of a host whose tables may be why flows are slow."""

_Key = tuple[OrderedPair, bool] | Component
Known = Mapping[Look, ValidateReply | Failed]


@dataclass(frozen=True, slots=True)
class _Trouble:
    """What has no name yet, or only that of a part of a host."""

    key: _Key
    """What makes it the same trouble in the next window."""
    is_slow: bool
    flows: tuple[FlowView, ...]
    looks: tuple[Look, ...]
    """Comparisons that would tell."""
    of: Explained | None = None
    """The verdict that leaves it open; None where there is none."""


class Validation:
    """Has the copies of flow tables compared, and says what that shows."""

    settles = True

    def __init__(self, context: Context) -> None:
        self._comparisons = context.comparisons
        self._tracing = context.doubts.wants
        self._port = context.probe_port
        self._before: frozenset[_Key] = frozenset()
        """The trouble of the window before."""
        self._named: frozenset[_Key] = frozenset()
        """That of it which a comparison explained."""

    def explain(self, case: Case) -> Asking[list[Explained]]:
        """Return verdicts on tables that differ; verdicts of others get what was compared."""
        yield from ()  # a comparison takes longer than a window: what is wanted outlives it
        troubles = [*_open(case), *_inside(case), *self._unvoted(case)]
        lasting = [each for each in troubles if each.key in self._before]
        self._before = frozenset(each.key for each in troubles)
        self._want(lasting, case)
        return self._settle(troubles, {each.key for each in lasting}, case)

    def _unvoted(self, case: Case) -> Iterator[_Trouble]:
        """Yield the pairs that no verdict covers: a single pair is too few for a vote.

        Those named a window ago are kept from the vote, and followed while they have any trouble.
        """
        named = {key[0] for key in self._named if not isinstance(key, Component)}
        lossy: dict[OrderedPair, list[FlowView]] = defaultdict(list)
        slow: dict[OrderedPair, list[FlowView]] = defaultdict(list)
        for view in case.rest.where(case.rest.lost > 0):
            lossy[unordered(pair_of(view.flow))].append(view)
        for view in case.rest.where(case.rest.among(case.slow)):
            slow[unordered(pair_of(view.flow))].append(_as_slow(view))
        probed = _probed({pair for pair, views in slow.items() if len(views) >= MIN_SLOW}, case)
        for pair in sorted({*lossy, *slow}):
            healed = pair in case.healing and pair not in named
            if healed or case.mute & case.hosts(pair):
                continue  # its losses prove nothing
            many = 0 < SLOW_SHARE * probed[pair] <= len(slow[pair])
            if many or (pair, True) in self._named:
                yield from _troubles(pair, slow[pair], case, is_slow=True)
            lost = sum(view.lost for view in lossy[pair])
            if lost >= MIN_LOST or (pair, False) in self._named:
                yield from _troubles(pair, lossy[pair], case, is_slow=False)

    def _want(self, lasting: Sequence[_Trouble], case: Case) -> None:
        looked = Counter(
            id(each.of)
            for each in lasting
            if each.of is not None
            and all(self._comparisons.known(look, now_ns=case.now_ns) for look in each.looks)
        )
        wanted = (
            requests
            for each in sorted(lasting, key=lambda one: one.is_slow)
            if looked[id(each.of)] < MAX_PAIRS  # more pairs of the same verdict show the same
            and (requests := self._requests(each, case))
        )
        for requests in islice(wanted, MAX_PAIRS):
            self._comparisons.want(requests, now_ns=case.now_ns)

    def _requests(self, trouble: _Trouble, case: Case) -> list[tuple[Look, ValidateRequest]]:
        """Return what to ask about a trouble, of hosts that may be asked now."""
        busy = case.tired | self._tracing.busy
        ports = {view.flow.source: view.flow.source_port for view in trouble.flows}
        return [
            (
                look,
                request_of(
                    look,
                    case.endpoints,
                    port=self._port,
                    source_port=ports.get(look.pair[0], ANY_PORT),
                ),
            )
            for look in trouble.looks
            if look.host not in busy and self._comparisons.may_ask(look.host, now_ns=case.now_ns)
        ]

    def _settle(
        self, troubles: Sequence[_Trouble], lasting: Collection[_Key], case: Case
    ) -> list[Explained]:
        known = {
            look: reply
            for each in troubles
            for look in each.looks
            if (reply := self._comparisons.known(look, now_ns=case.now_ns)) is not None
        }
        reasons = [
            reason
            for each in troubles
            if each.key in lasting
            for look in each.looks
            if (reason := _reason(each, look, known.get(look), case)) is not None
        ]
        self._named = frozenset(reason.of.key for reason in reasons)
        for explained in {id(each.of): each.of for each in troubles}.values():
            if explained is not None:
                mine = [each for each in troubles if each.of is explained]
                case.amend(explained, _amended(explained, mine, reasons, known))
        return _verdicts([each for each in reasons if not _is_inside(each.of)])


def comparing(pair: OrderedPair, endpoints: Endpoints, port: int) -> Asking[tuple[Compared, ...]]:
    """Have both hosts of a pair compare their tables now, for a person who asks."""
    if not is_switched(pair, endpoints):
        return ()
    looks = looks_of(pair, endpoints)
    asks = [Ask(look.host, request_of(look, endpoints, port=port)) for look in looks]
    replies = yield asks
    found = []
    for look, reply in zip(looks, replies, strict=True):
        taken = taken_of(look.host, reply)
        if isinstance(taken, Failed):
            found.append(Compared(look.host, why=_not_compared(taken)))
            continue
        one = accused(taken, endpoints[look.pair[0]], is_slow=True)
        said = evidence(look.pair, taken)
        found.append(Compared(look.host, said, one, _not_compared(taken)))
    return tuple(found)


# --- trouble -------------------------------------------------------------------------------------


def _open(case: Case) -> Iterator[_Trouble]:
    """Yield the pairs of verdicts that name nobody."""
    for explained in case.explained:
        if explained.verdict.component is not None:
            continue
        by_pair: dict[OrderedPair, list[FlowView]] = defaultdict(list)
        for view in explained.flows:
            by_pair[unordered(pair_of(view.flow))].append(view)
        is_slow = explained.verdict.symptom is Symptom.LATENCY
        worst = sorted(by_pair, key=lambda pair: (-sum(v.lost for v in by_pair[pair]), pair))
        for pair in worst[:MAX_TROUBLES]:
            yield from _troubles(pair, by_pair[pair], case, is_slow=is_slow, of=explained)


def _troubles(
    pair: OrderedPair,
    flows: Iterable[FlowView],
    case: Case,
    *,
    is_slow: bool,
    of: Explained | None = None,
) -> Iterator[_Trouble]:
    """Yield the trouble of a pair, if it has some and both its ends are known."""
    flows = tuple(flows)
    known = all(key in case.endpoints for key in pair)
    if flows and known and is_switched(pair, case.endpoints):
        looks = tuple(looks_of(pair, case.endpoints))
        yield _Trouble((pair, is_slow), is_slow, flows, looks, of)


def _inside(case: Case) -> Iterator[_Trouble]:
    """Yield what votes name of a host as the reason of slowness: only that host is asked."""
    for explained in case.explained:
        component = explained.verdict.component
        slow = explained.verdict.symptom is Symptom.LATENCY
        if component is None or component.kind not in _PARTS or not slow:
            continue
        ways = (
            way
            for pair in sorted({unordered(pair_of(view.flow)) for view in explained.flows})
            for way in (pair, (pair[1], pair[0]))
            if way[1] in case.endpoints
            and is_switched(way, case.endpoints)
            and _is_at(component, way[0], case)
        )
        if (way := next(ways, None)) is not None:
            look = Look(case.endpoints[way[0]].host, way)
            yield _Trouble(component, True, explained.flows, (look,), explained)


def _is_at(component: Component, key: EndpointId, case: Case) -> bool:
    end = case.endpoints.get(key)
    return end is not None and component in case.own_parts(key) | {vswitch(end.host)}


def _is_inside(trouble: _Trouble) -> bool:
    return isinstance(trouble.key, Component)


def _probed(pairs: Collection[OrderedPair], case: Case) -> Counter[OrderedPair]:
    """Return how many flows of each of these pairs were probed."""
    probed = case.flows.where(case.flows.between(pairs))
    return Counter(unordered(pair_of(view.flow)) for view in probed)


def _as_slow(view: FlowView) -> FlowView:
    """Return a slow flow as votes on slowness count it: one probe, lost."""
    return replace(view, sent=1, lost=1, run=0)


# --- what comparisons say of it ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reason:
    """A part of a host that explains a trouble, and the comparison that says so."""

    of: _Trouble
    look: Look
    reply: ValidateReply
    accused: Accused


def _reason(
    trouble: _Trouble, look: Look, reply: ValidateReply | Failed | None, case: Case
) -> _Reason | None:
    if not isinstance(reply, ValidateReply):
        return None
    one = accused(reply, case.endpoints[look.pair[0]], is_slow=trouble.is_slow)
    return _Reason(trouble, look, reply, one) if one is not None else None


def _verdicts(reasons: Iterable[_Reason]) -> list[Explained]:
    """Return a verdict for each part of a host on the trouble that it explains."""
    by_part: dict[tuple[Component, bool], list[_Reason]] = defaultdict(list)
    for each in reasons:
        by_part[each.accused.component, each.of.is_slow].append(each)
    return [_verdict(component, mine) for (component, _), mine in by_part.items()]


def _verdict(component: Component, reasons: Sequence[_Reason]) -> Explained:
    flows = tuple(view for each in reasons for view in each.of.flows)
    opened = next((each.of.of.verdict for each in reasons if each.of.of is not None), None)
    dead = any(view.unconnected for view in flows)
    symptom = Symptom.UNCONNECTIVITY if dead else Symptom.LOSS
    if reasons[0].of.is_slow:
        symptom = Symptom.LATENCY
    verdict = Verdict(
        component,
        component.layer,
        opened.symptom if opened else symptom,
        _confidence(reasons[0]),
        _summary(reasons[0]),
        failing=pairs_quoted(flows),
        alternatives=opened.alternatives if opened else (),
        evidence=(*_compared(reasons), *(opened.evidence if opened else ())),
    )
    return Explained(verdict, flows)


def _confidence(reason: _Reason) -> float:
    return CONFIDENCE if reason.accused.finding.check in STATED else SOFTWARE_CONFIDENCE


def _summary(reason: _Reason) -> str:
    found = reason.accused.finding
    return f"{found.check.replace('-', ' ')} on {reason.look.host}: {found.text[:MAX_WHY]}"


def _compared(reasons: Sequence[_Reason]) -> tuple[Evidence, ...]:
    return tuple(evidence(each.look.pair, each.reply) for each in reasons[:MAX_LOOKS])


def _amended(
    explained: Explained, mine: Sequence[_Trouble], reasons: Sequence[_Reason], known: Known
) -> Explained | None:
    """Return a verdict with what was compared, without the flows that this explains; None if they
    were all it had.
    """  # noqa: D205 - one sentence
    own = [each for each in reasons if any(each.of is one for one in mine)]
    if own and _is_inside(mine[0]):
        return replace(explained, verdict=_revised(explained.verdict, own))
    gone = {pair for each in own for pair in (each.look.pair, each.look.pair[::-1])}
    flows = tuple(view for view in explained.flows if pair_of(view.flow) not in gone)
    if not flows:
        return None
    verdict = explained.verdict
    if gone:
        verdict = replace(verdict, failing=pairs_quoted(flows))
    rest = [each for each in mine if not any(each is one.of for one in own)]
    return Explained(_with_comparisons(verdict, rest, known), flows)


def _revised(verdict: Verdict, reasons: Sequence[_Reason]) -> Verdict:
    """Return a vote's verdict on a part of a host with the part that its tables accuse."""
    component = reasons[0].accused.component
    return replace(
        verdict,
        component=component,
        layer=component.layer,
        confidence=max(verdict.confidence, _confidence(reasons[0])),
        summary=f"{verdict.summary}; {_summary(reasons[0])}",
        evidence=(*_compared(reasons), *verdict.evidence),
    )


def _with_comparisons(verdict: Verdict, troubles: Sequence[_Trouble], known: Known) -> Verdict:
    """Return a verdict with what was compared without a reason, and what could not be compared."""
    made = [(look, known[look]) for each in troubles for look in each.looks if look in known]
    if not made:
        return verdict
    lines, missing = list(verdict.evidence), list(verdict.missing)
    for look, reply in made[:MAX_LOOKS]:
        if isinstance(reply, ValidateReply):
            lines.append(evidence(look.pair, reply))
        if why := _not_compared(reply):
            missing.append(f"a comparison of the flow tables of {look.host}: {why}")
    if any(all(look in known for look in each.looks) for each in troubles):
        missing = [each for each in missing if each != WANTED]
    return replace(verdict, evidence=tuple(lines), missing=tuple(dict.fromkeys(missing)))


def _not_compared(reply: ValidateReply | Failed) -> str:
    """Return why a comparison says nothing; empty if it says something."""
    if isinstance(reply, Failed):
        return reply.text[:MAX_WHY]
    if reply.judged:
        return ""
    none = "its datapath held no flow of these packets" if not reply.flows else "it cannot tell"
    return "; ".join((none, *reply.unread))[:MAX_WHY]
