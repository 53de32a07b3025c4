# SPDX-License-Identifier: Apache-2.0
"""Verdicts over time: opened, confirmed, recovered. Pure.

An incident is keyed by its component. It opens with a decided verdict, or, undecided, once the
same trouble lasts a second window. It is confirmed by the next window that agrees, or at once by a
fact (a walk, a host's own finding). While it is young, a better verdict about the same failing
pairs revises it instead of opening a second one. It recovers when a whole window passes in which
its pairs are probed and lose nothing, or in which none of them exists any more.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from analyzer.localize import hops
from analyzer.localize.evidence import OrderedPair, unordered
from netagent.model.path import Component, Layer
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict

YOUNG_NS = 20_000_000_000
OVERLAP = 0.5
FACT_CONFIDENCE = 0.95
VOTED = {Layer.UNDERLAY, Layer.HOST}
"""Layers that only votes name: they do not revise what a fact settled."""
KEPT = 1000
"""Recovered incidents remembered; the store has them all."""
PAIRS_KEPT = 256

CLEAN_RATE = 0.001
"""Losses that nobody is to blame for do not keep an incident open: with hundreds of pairs, one in
ten thousand is some in each window."""

Tally = Callable[[OrderedPair], tuple[int, int]]
"""Probes sent and lost (or slow) in the window; zeros for a pair that is no longer probed."""
Speaks = Callable[[str], bool]
"""Whether a host's agent reported the window, or is expected to no more."""


@dataclass(slots=True)
class _Open:
    incident: Incident
    pairs: set[OrderedPair]
    """Unordered failing pairs seen so far."""


class IncidentBook:
    """All incidents of one analyzer."""

    def __init__(self, *, new_id: Callable[[int], str]) -> None:
        self._new_id = new_id
        self._open: dict[Component | None, _Open] = {}
        self._past: dict[str, Incident] = {}
        self._pending: set[bool] = set()
        """Whether the window before left slowness (True), or loss (False), undecided."""
        self._first_seen: dict[OrderedPair, int] = {}

    def restore(self, incidents: Iterable[Incident]) -> None:
        """Take over what was stored before a restart."""
        for incident in incidents:
            if incident.state is IncidentState.RECOVERED:
                self._past[incident.id] = incident
            else:
                pairs = _pairs(incident.verdict)
                self._open[incident.verdict.component] = _Open(incident, pairs)

    def all(self) -> list[Incident]:
        """Return incidents, oldest first."""
        known = [*self._past.values(), *(each.incident for each in self._open.values())]
        return sorted(known, key=lambda incident: (incident.detected_ns, incident.id))

    def standing(self) -> frozenset[Component]:
        """Return components with an open incident."""
        return frozenset(c for c in self._open if c is not None)

    def saw_loss(self, pairs: Iterable[OrderedPair], *, now_ns: int) -> None:
        """Remember since when each unordered pair loses probes; pairs not named lose none now."""
        pairs = set(pairs)
        self._first_seen = {p: self._first_seen.get(p, now_ns) for p in pairs}

    def apply(
        self,
        verdicts: Sequence[Verdict],
        *,
        tally: Tally,
        speaks: Speaks,
        now_ns: int,
        task_of: Callable[[OrderedPair], str | None],
    ) -> list[Incident]:
        """Take the verdicts of a closed window; return the incidents that changed."""
        decided = [v for v in verdicts if v.component is not None]
        undecided = [v for v in verdicts if v.component is None]
        changed = [self._take(verdict, now_ns, task_of) for verdict in decided]
        changed += [self._take(v, now_ns, task_of) for v in self._lasting(undecided)[:1]]
        named = {v.component for v in verdicts}
        changed += [
            self._recover(key, now_ns)
            for key in list(self._open)
            if key not in named and _is_over(self._open[key], tally, speaks)
        ]
        return changed

    def _lasting(self, undecided: Sequence[Verdict]) -> list[Verdict]:
        """Return what is open for a second window, and is no part of an incident by name.

        One of them is told at a time: loss and slowness are not mixed into one incident.
        """
        before, self._pending = self._pending, {v.symptom is Symptom.LATENCY for v in undecided}
        known = self._open.get(None)
        kinds = before & self._pending
        if known is not None:
            kinds &= {known.incident.verdict.symptom is Symptom.LATENCY}
        return [
            verdict
            for verdict in undecided
            if (verdict.symptom is Symptom.LATENCY) in kinds
            and not self._accounted(_pairs(verdict))
        ]

    def _take(
        self, verdict: Verdict, now_ns: int, task_of: Callable[[OrderedPair], str | None]
    ) -> Incident:
        pairs = _pairs(verdict)
        known = self._open.get(verdict.component) or self._revised(verdict, pairs, now_ns)
        if known is None:
            known = self._opened(verdict, pairs, now_ns)
        else:
            self._agree(known, verdict, now_ns)
        known.pairs |= set(sorted(pairs)[: max(0, PAIRS_KEPT - len(known.pairs))])
        tasks = {task for pair in pairs if (task := task_of(pair)) is not None}
        merged = tuple(sorted({*known.incident.tasks, *tasks}))
        known.incident = replace(known.incident, tasks=merged)
        return known.incident

    def _opened(self, verdict: Verdict, pairs: set[OrderedPair], now_ns: int) -> _Open:
        # The median: a pair that happened to lose a probe before is not the beginning.
        since = sorted(self._first_seen.get(pair, now_ns) for pair in pairs)
        detected = since[len(since) // 2] if since else now_ns
        sure = verdict.confidence >= FACT_CONFIDENCE and verdict.component is not None
        state = IncidentState.CONFIRMED if sure else IncidentState.OPEN
        incident = Incident(self._new_id(now_ns), state, verdict, detected, now_ns, now_ns)
        known = self._open[verdict.component] = _Open(incident, set())
        return known

    def _agree(self, known: _Open, verdict: Verdict, now_ns: int) -> None:
        old = known.incident
        better = verdict if verdict.confidence >= old.verdict.confidence else old.verdict
        # What broke the tie is counted once, and stays the reason while later windows agree.
        counted = (hops.COUNTED, hops.TIMED)
        counts = tuple(x for x in old.verdict.evidence if x.startswith(counted))
        if not any(x.startswith(counted) for x in better.evidence):
            better = replace(better, evidence=(*counts, *better.evidence))
        known.incident = replace(
            old, state=IncidentState.CONFIRMED, verdict=better, updated_ns=now_ns
        )

    def _revised(self, verdict: Verdict, pairs: set[OrderedPair], now_ns: int) -> _Open | None:
        for key, known in self._open.items():
            young = now_ns - known.incident.detected_ns < YOUNG_NS
            shared = len(pairs & known.pairs)
            fact = known.incident.verdict.confidence >= FACT_CONFIDENCE
            voted = verdict.component is not None and verdict.component.layer in VOTED
            if not young or not shared or verdict.component is None or (key and fact and voted):
                continue
            if key is not None and shared < OVERLAP * len(known.pairs):
                continue
            old = known.incident
            if key is not None and verdict.confidence < old.verdict.confidence:
                continue
            was = str(key) if key else "insufficient evidence"
            known.incident = replace(
                old, verdict=verdict, localized_ns=now_ns, updated_ns=now_ns,
                notes=(*old.notes, f"revised: was {was}"),
            )  # fmt: skip
            self._open[verdict.component] = self._open.pop(key)
            return known
        return None

    def _accounted(self, pairs: set[OrderedPair]) -> bool:
        # Undecided trouble of pairs that an incident with a name has already is no second one.
        return any(
            pairs & known.pairs for component, known in self._open.items() if component is not None
        )

    def _recover(self, key: Component | None, now_ns: int) -> Incident:
        incident = replace(
            self._open.pop(key).incident,
            state=IncidentState.RECOVERED,
            updated_ns=now_ns,
            recovered_ns=now_ns,
        )
        self._past[incident.id] = incident
        while len(self._past) > KEPT:
            self._past.pop(next(iter(self._past)))
        return incident


def _is_over(known: _Open, tally: Tally, speaks: Speaks) -> bool:
    verdict = known.incident.verdict
    if verdict.symptom is Symptom.SILENCE:
        return verdict.component is not None and speaks(verdict.component.name)
    counts = [tally(pair) for pair in known.pairs]
    sent, lost = sum(s for s, _ in counts), sum(n for _, n in counts)
    return lost <= CLEAN_RATE * sent


def _pairs(verdict: Verdict) -> set[OrderedPair]:
    if verdict.symptom is Symptom.SILENCE:
        return set()  # recovers when its host speaks again, whatever its peers lost meanwhile
    return {unordered((pair.source, pair.target)) for pair in verdict.failing}
