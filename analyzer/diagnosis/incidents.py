# SPDX-License-Identifier: Apache-2.0
"""Verdicts over time: opened, confirmed, recovered. Pure.

An incident is keyed by its component. It opens with a decided verdict, or, undecided, once the
same trouble lasts a second window. It is confirmed by the next window that agrees, or at once by a
fact (a walk, a host's own finding). While it is young, a better verdict about the same failing
pairs revises it instead of opening a second one. It recovers when a whole window passes in which
its pairs are probed and lose nothing, or in which none of them exists any more; where few probes
are lost in a window, several such windows must pass. While they exist and none of them is probed,
as when the management network fails, nothing is known of it: it stays, and says so.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from hashlib import blake2b

from analyzer.detect.held import AGAIN_NS
from analyzer.diagnosis.rhythms import carried
from analyzer.localize.case import MAX_PAIRS_QUOTED, OrderedPair, subjects_of
from netagent.model.anomaly import Subject
from netagent.model.evidence import Evidence, EvidenceKind
from netagent.model.ids import EndpointId
from netagent.model.path import Component, Kind, Layer, link_ends
from netagent.model.verdict import Incident, IncidentState, Symptom, Verdict

YOUNG_NS = 20_000_000_000
"""Nanoseconds after its detection in which a better verdict about the same pairs revises an
incident. Chosen: four default windows; later, another fault is likelier."""
UNNAMED_NS = 60_000_000_000
"""The same of an incident that names nobody, where most of its pairs are named and nothing is left
undecided. Chosen: a dozen windows; where ways are not traced, what tells switches apart is late."""
OVERLAP = 0.5
"""Least share of an incident's subjects that a verdict must share to revise it. Chosen: a majority
means the same trouble."""
OVERLAP_OF_SOME = 0.2
"""The same where the verdict quotes only some of its pairs. Chosen: the others are not compared."""
FACT_CONFIDENCE = 0.98
"""Confidence from which a verdict is a fact and confirms an incident at once (decision 10). Chosen:
above what a vote reaches, 0.975."""
OF_HOSTS = {Layer.CONTAINER, Layer.HOST, Layer.RNIC}
"""Layers that votes name where a controller left something out of a host's tables."""
VOTED = {Layer.UNDERLAY, Layer.HOST}
"""Layers that only votes name: they do not revise what a fact settled."""
PAIRS_KEPT = 256
"""Most failing pairs remembered per incident. Chosen: enough to recognise it again, and memory
stays bounded."""
ADOPT_NS = 60_000_000_000
"""Nanoseconds after a restart within which an open incident must be seen again. Chosen: some
windows, in which agents connect again."""
ADOPT_LATE_NS = 240_000_000_000
"""The same of a controller's part. Chosen: its difference has to last for two minutes anew."""
ADOPT_HELD_NS = ADOPT_NS + AGAIN_NS
"""The same of what holds a job up. Once agents are there again, a hang has to last anew."""
BY_CHANCE = 0.01
"""Probability that trouble which goes on loses nothing for as long as it takes to be over. Chosen:
one incident in a hundred is closed and opened again."""
UNSEEN_WINDOWS = 2
"""Windows in a row without a probe of its pairs after which an incident is unobserved. Chosen:
where targets are many, a pair may miss its turn in one."""
MOST_CLEAN = 12
"""Most windows for which it is waited. Chosen: a minute."""
ORPHANED = "the analyzer restarted and has not seen it since"

HostOf = Callable[[EndpointId], str | None]
"""Function that returns the host of an endpoint; None of one that is not known."""
TasksAt = Callable[[Component], Collection[str]]
"""Function that returns whose tasks a component is; none of one that many share."""
Unseen = Callable[[Collection[Subject]], bool]
"""Function that returns whether nothing was measured of subjects that still exist."""
Over = Callable[[Symptom, Collection[Subject]], bool]
"""Function that asks a symptom's detector whether some subjects are well again."""


@dataclass(slots=True)
class _Open:
    incident: Incident
    subjects: set[Subject]
    """All subjects that have deviated so far."""
    adopt_until_ns: int | None = None
    """Instant until which a restored incident must be seen again; None otherwise."""
    clean: int = 0
    """Windows in a row in which its subjects were well."""
    unseen: int = 0
    """Windows in a row in which nothing was measured of its subjects."""


class IncidentBook:
    """All incidents of one analyzer."""

    _echoes: AbstractSet[Component | None] = frozenset()
    """Components that the window before accused of slowness that had an incident already."""

    def __init__(self) -> None:
        self._open: dict[Component | None, _Open] = {}
        self._pending: set[bool] = set()
        """Whether the window before left slowness (True), or loss (False), undecided."""
        self._first_seen: dict[Subject, int] = {}
        self._opened_count = 0

    def restore(self, incidents: Iterable[Incident], *, now_ns: int) -> None:
        """Take over those that were open before a restart; they have to be seen again in time."""
        for incident in incidents:
            if incident.state is not IncidentState.RECOVERED:
                verdict = incident.verdict
                subjects = set(subjects_of(verdict))
                until_ns = now_ns + _adopting_ns(verdict)
                self._open[verdict.component] = _Open(incident, subjects, until_ns)

    def open(self) -> list[Incident]:
        """Return the incidents that are not over, oldest first."""
        known = [each.incident for each in self._open.values()]
        return sorted(known, key=lambda incident: (incident.detected_ns, incident.id))

    def standing(self) -> frozenset[Component]:
        """Return components with an open incident."""
        return frozenset(c for c in self._open if c is not None)

    def saw(self, subjects: Iterable[Subject], *, now_ns: int) -> None:
        """Remember since when each of these deviates; what is not named deviates no more."""
        self._first_seen = {each: self._first_seen.get(each, now_ns) for each in subjects}

    def apply(
        self,
        verdicts: Sequence[Verdict],
        *,
        over: Over,
        now_ns: int,
        task_of: Callable[[OrderedPair], str | None],
        host_of: HostOf = lambda _: None,
        tasks_at: TasksAt = lambda _: (),
        unseen: Unseen = lambda _: False,
    ) -> list[Incident]:
        """Take the verdicts of a closed window; return the incidents that changed."""
        decided = self._beyond_echoes([v for v in verdicts if v.component is not None], now_ns)
        undecided = [v for v in verdicts if v.component is None]
        named = {v.component for v in verdicts}
        told = [*decided, *self._lasting(undecided)[:1]]
        changed = [
            self._take(verdict, named, now_ns, task_of, host_of, tasks_at) for verdict in told
        ]
        changed += [
            self._recover(key, now_ns)
            for key in list(self._open)
            if key not in named and self._is_over(key, over, now_ns)
        ]
        return changed + self._observed(named, unseen, now_ns)

    def _observed(
        self, named: Collection[Component | None], unseen: Unseen, now_ns: int
    ) -> list[Incident]:
        """Return the incidents of which nothing is measured any more, and those seen again."""
        changed = []
        for key, known in self._open.items():
            dark = key not in named and unseen(known.subjects)
            known.unseen = known.unseen + 1 if dark else 0
            since_ns = known.incident.unobserved_ns
            if since_ns is None and known.unseen >= UNSEEN_WINDOWS:
                since_ns = now_ns
            elif since_ns is not None and not dark:
                since_ns = None
            if since_ns != known.incident.unobserved_ns:
                known.incident = replace(known.incident, unobserved_ns=since_ns, updated_ns=now_ns)
                changed.append(known.incident)
        return changed

    def _is_over(self, key: Component | None, over: Over, now_ns: int) -> bool:
        known = self._open[key]
        if known.adopt_until_ns is not None and now_ns >= known.adopt_until_ns:
            notes = (*known.incident.notes, ORPHANED)
            known.incident = replace(known.incident, notes=notes)
            return True
        known.clean = known.clean + 1 if over(known.incident.verdict.symptom, known.subjects) else 0
        return known.clean >= _windows(known.incident.verdict)

    def _beyond_echoes(self, decided: Sequence[Verdict], now_ns: int) -> list[Verdict]:
        """Return verdicts without those that another incident may account for, seen once only.

        Slow pairs that have an incident already are slow by what comes and goes; while it is away,
        chance chooses among the other ways of the same pairs.
        """
        echoes = {v.component for v in decided if self._echoed(v, now_ns)}
        before, self._echoes = self._echoes, echoes
        return [v for v in decided if v.component not in echoes - before]

    def _echoed(self, verdict: Verdict, now_ns: int) -> bool:
        if verdict.symptom is not Symptom.LATENCY or verdict.component in self._open:
            return False
        subjects = subjects_of(verdict)
        return any(
            known.incident.verdict.symptom is Symptom.LATENCY
            and now_ns - known.incident.detected_ns >= YOUNG_NS  # else it is revised
            and len(known.subjects.intersection(subjects)) >= OVERLAP * len(subjects)
            for key, known in self._open.items()
            if key is not None
        )

    def _lasting(self, undecided: Sequence[Verdict]) -> list[Verdict]:
        """Return undecided verdicts that last a second window and belong to no named incident.

        Only one of them is reported at a time: one incident does not mix loss and slowness.
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
            and not self._accounted(subjects_of(verdict))
        ]

    def _take(
        self,
        verdict: Verdict,
        named: Collection[Component | None],
        now_ns: int,
        task_of: Callable[[OrderedPair], str | None],
        host_of: HostOf,
        tasks_at: TasksAt,
    ) -> Incident:
        subjects = subjects_of(verdict)
        known = self._open.get(verdict.component) or self._revised(
            verdict, subjects, named, now_ns, host_of
        )
        if known is None:
            known = self._opened(verdict, subjects, now_ns)
        else:
            self._agree(known, verdict, now_ns)
        known.adopt_until_ns, known.clean = None, 0
        room = max(0, PAIRS_KEPT - len(known.subjects))
        fitting = subjects if len(subjects) <= room else sorted(subjects, key=str)[:room]
        known.subjects.update(fitting)
        pairs = [each for each in subjects if isinstance(each, tuple)]
        tasks = {task for pair in pairs if (task := task_of(pair)) is not None}
        tasks |= _tasks_in(verdict)
        if not tasks and not known.incident.tasks and verdict.component is not None:
            # What ended at once was taken off all lists before a probe of it was lost.
            tasks = set(tasks_at(verdict.component))
        merged = tuple(sorted({*known.incident.tasks, *tasks}))
        known.incident = replace(known.incident, tasks=merged)
        return known.incident

    def _opened(self, verdict: Verdict, subjects: Collection[Subject], now_ns: int) -> _Open:
        # The median: a pair that happened to lose a probe before is not the beginning.
        pairs = [each for each in subjects if isinstance(each, tuple)]
        since = sorted(self._first_seen.get(pair, now_ns) for pair in pairs)
        detected = since[len(since) // 2] if since else now_ns
        sure = verdict.confidence >= FACT_CONFIDENCE and verdict.component is not None
        state = IncidentState.CONFIRMED if sure else IncidentState.OPEN
        incident = Incident(self._new_id(verdict, now_ns), state, verdict, detected, now_ns, now_ns)
        known = self._open[verdict.component] = _Open(incident, set())
        return known

    def _new_id(self, verdict: Verdict, now_ns: int) -> str:
        # The same windows give the same names: a replay is compared with what was told.
        self._opened_count += 1
        kind = verdict.component.kind if verdict.component else ""
        what = f"{now_ns} {self._opened_count} {kind} {verdict.symptom}"
        tag = blake2b(what.encode(), digest_size=2).hexdigest()
        return f"i{now_ns // 1_000_000_000:x}-{tag}"

    def _agree(self, known: _Open, verdict: Verdict, now_ns: int) -> None:
        old = known.incident
        better = verdict if verdict.confidence >= old.verdict.confidence else old.verdict
        better = replace(better, evidence=carried(better.evidence, verdict.evidence))
        # What broke the tie is counted once, and stays the reason while later windows agree.
        counts = tuple(each for each in old.verdict.evidence if _is_counted(each))
        if not any(map(_is_counted, better.evidence)):
            better = replace(better, evidence=(*counts, *better.evidence))
        better = _with_compared(better, verdict, old.verdict)
        known.incident = replace(
            old, state=IncidentState.CONFIRMED, verdict=better, updated_ns=now_ns
        )

    def _revised(
        self,
        verdict: Verdict,
        subjects: Collection[Subject],
        named: Collection[Component | None],
        now_ns: int,
        host_of: HostOf,
    ) -> _Open | None:
        if verdict.symptom is Symptom.MISSING:
            return None  # what never came was never part of anything else
        for key, known in self._open.items():
            if key is not None and key in named:
                continue  # it is at fault too, by the same window
            age_ns = now_ns - known.incident.detected_ns
            young = age_ns < YOUNG_NS or _is_reason(verdict, known)
            unnamed = key is None and None not in named and age_ns < UNNAMED_NS
            shared = len(known.subjects.intersection(subjects))
            fact = known.incident.verdict.confidence >= FACT_CONFIDENCE
            voted = verdict.component is not None and verdict.component.layer in VOTED
            port = _is_port_of(key, verdict)
            if not (young or unnamed) or verdict.component is None:
                continue
            if key and fact and voted and not port:
                continue
            overlap = OVERLAP_OF_SOME if len(subjects) >= MAX_PAIRS_QUOTED else OVERLAP
            most = shared and shared >= overlap * len(known.subjects)
            is_mine = most or (shared and young and key is None)
            within = (
                port
                or _is_link_of(key, verdict.component)
                or _within(known.subjects, verdict.component, host_of)
            )
            if not is_mine and not within:
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

    def _accounted(self, subjects: Collection[Subject]) -> bool:
        # Undecided trouble of pairs that an incident with a name has already is no second one.
        return any(
            known.subjects.intersection(subjects)
            for component, known in self._open.items()
            if component is not None
        )

    def _recover(self, key: Component | None, now_ns: int) -> Incident:
        return replace(
            self._open.pop(key).incident,
            state=IncidentState.RECOVERED,
            updated_ns=now_ns,
            recovered_ns=now_ns,
            unobserved_ns=None,
        )


def _adopting_ns(verdict: Verdict) -> int:
    """Return within which time a verdict of before a restart has to be seen again."""
    if verdict.symptom is Symptom.HELD_UP:
        return ADOPT_HELD_NS
    return ADOPT_LATE_NS if verdict.layer is Layer.CONTROLLER else ADOPT_NS


def _is_reason(verdict: Verdict, known: _Open) -> bool:
    """Return whether a controller is named where what it left out of hosts' tables was, or nobody.

    It is told of late, as it has to last, and revises an incident of any age. So does what is
    missing in a table, where a controller had not been asked whether it wants that.
    """
    if verdict.component is None:
        return False
    old = known.incident.verdict
    is_fact = old.confidence >= FACT_CONFIDENCE
    if verdict.component.layer is Layer.OVERLAY:
        return old.layer is Layer.OVERLAY and verdict.confidence >= FACT_CONFIDENCE > old.confidence
    if verdict.component.layer is not Layer.CONTROLLER:
        return False
    return old.layer in {None, Layer.OVERLAY} or (old.layer in OF_HOSTS and not is_fact)


def _is_link_of(key: Component | None, component: Component) -> bool:
    """Return whether a switch is named where one of its links was: it lost what the switch did."""
    if key is None or key.kind is not Kind.LINK or component.kind is not Kind.SWITCH:
        return False
    return component.name in link_ends(key)


def _is_port_of(key: Component | None, verdict: Verdict) -> bool:
    """Return whether a leaf is named where one of its RNICs was, whose hosts told of it sooner."""
    if key is None or key.kind is not Kind.RNIC or verdict.component is None:
        return False
    suspects = {each.component for each in verdict.alternatives}
    return verdict.component.kind is Kind.SWITCH and key in suspects


def _within(subjects: Collection[Subject], component: Component, host_of: HostOf) -> bool:
    """Return whether all these pairs have an end in a container, or on a host.

    A host that dies as a window ends has lost probes of one RNIC only by then.
    """

    def is_end(end: EndpointId) -> bool:
        if component.kind is Kind.CONTAINER:
            return end.container == component.name
        return component.kind is Kind.HOST and host_of(end) == component.name

    # Of no subject at all it would be true of any two.
    return bool(subjects) and all(
        isinstance(each, tuple) and any(map(is_end, each)) for each in subjects
    )


def _windows(verdict: Verdict) -> int:
    """Return in how many windows nothing may be lost before that means that the trouble is over.

    What loses two probes in a window loses none in every seventh, though nothing was mended.
    """
    seen = {e.kind: e.values for e in verdict.evidence if isinstance(e, Evidence)}
    tally, pooled = seen.get(EvidenceKind.TALLY), seen.get(EvidenceKind.POOLED)
    if tally is None or not tally["lost"]:
        return 1
    # Other pairs than those that lost then may lose next, and are not its subjects.
    a_window = tally["lost"] / (pooled["windows"] if pooled else 1) / 2
    clean: int = math.ceil(-math.log(BY_CHANCE) / a_window)
    return min(MOST_CLEAN, clean)


def _with_compared(better: Verdict, new: Verdict, old: Verdict) -> Verdict:
    """Return the verdict that is kept, with the newest comparison of tables of the two.

    Of two verdicts without a name the surer one may lack it; it was made, and is missing no more.
    """
    if any(map(_is_compared, better.evidence)) or better.component is not None:
        return better
    for each in (new, old):
        if made := tuple(filter(_is_compared, each.evidence)):
            return replace(better, evidence=(*better.evidence, *made), missing=each.missing)
    return better


def _is_compared(evidence: Evidence | str) -> bool:
    return isinstance(evidence, Evidence) and evidence.kind is EvidenceKind.COMPARED


def _tasks_in(verdict: Verdict) -> set[str]:
    """Return the tasks that miss a container by this verdict, which has no pair to tell them."""
    seen = (each for each in verdict.evidence if isinstance(each, Evidence))
    return {each.values["task"] for each in seen if each.kind is EvidenceKind.AWAITED}


def _is_counted(evidence: Evidence | str) -> bool:
    kinds = {EvidenceKind.COUNTED, EvidenceKind.TIMED}
    return isinstance(evidence, Evidence) and evidence.kind in kinds
