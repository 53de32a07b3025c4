# SPDX-License-Identifier: Apache-2.0
"""Decides which skeleton each task's ping lists follow, if any, and why. Reads no clock.

Theory of operation. A task begins on its basic list. Once its endpoints have stayed the same for
some minutes, its skeleton is inferred from the traffic since then. Where the skeleton is certain,
the pairs it leaves out become rare. From then on each new stretch of traffic is compared with it.
The first stretch that does not fit brings the basic list back: too large a list costs probes, a
wrong skeleton costs detection. Where traffic fits again (a checkpoint ended), the skeleton comes
back; else a new one is inferred from the traffic since then.

A decision has three steps, since inferring takes seconds: `cases` returns the tasks to judge,
`analyzer.skeleton.judging` judges them in a thread, and `settle` takes the judgement.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from analyzer.intake.traffic import TICKS, TrafficBook
from analyzer.roster.registry import EndpointRecord, Registry
from analyzer.skeleton.judging import FINE_NS, Case, Judgement, S, Used, history, key, used_of
from analyzer.skeleton.logged import Disagreement, disagreement
from analyzer.skeleton.series import TrafficSeries
from analyzer.skeleton.stated import Stated, ends_of
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.task import Task

LOOK_NS = 5 * S
"""Least nanoseconds between two judgements of a task. Chosen: the default window's width, since no
new traffic comes before."""
INFER_NS = 10 * S
"""Least nanoseconds from a failed inference to the next one. Chosen: a skeleton soon after there is
enough traffic, against the time of inferring."""
GROWN = 0.1
"""Share by which a task's traffic grows until its skeleton is inferred again, where that failed.
Chosen: from less no other result comes; busy tasks without a skeleton took whole cores."""
AGAIN_NS = 300 * S
"""Least nanoseconds from a successful inference to the next one. Chosen: more traffic may show a
better skeleton, but a fitting one is in no hurry."""
MAX_SHARE = 0.1
"""Largest share of the time spent inferring one task's skeleton. Chosen: leaves the core to the
diagnosis; a large task is inferred less often."""
LATE_NS = 3 * S
"""Nanoseconds after the end of a window until its traffic is expected to have come. Chosen: an
agent sends a window within that time unless it has to retry."""
FINE_S = 180.0
"""Seconds that a request for fine ticks lasts. Chosen: long enough to learn a skeleton from; an
analyzer that dies leaves no host sampling finely for longer."""
FINE_AGAIN_NS = 60 * S
"""Nanoseconds after which a request for fine ticks is renewed, while a skeleton rests on them.
Chosen: two renewals may fail before a request ends."""
FINE_PAUSE_NS = (600 * S, 3600 * S)
"""First and longest pause, in nanoseconds, after fine ticks from which nothing was learned. Chosen:
such a task may never be learned, and sampling ten times a second costs the hosts CPU."""
LEARNING = "not enough traffic yet"
STATED_NS = 120 * S
"""Nanoseconds for which what a job's operators state counts. Chosen: several looks at them."""
LASTS = 3
"""Looks in a row at which operators and traffic contradict each other, or do not any more, before
that is reported, or over. Chosen: a minute; a job that was started anew is learned by then."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a task's ping lists follow. Instants are Unix nanoseconds."""

    version: int
    """Grows with each change."""
    since_ns: int
    used: Used | None
    """None: the basic list."""
    reason: str
    """Why the task has the basic list; with a skeleton, what lowers its confidence."""
    source: str = "traffic"
    """``traffic``, or ``operators`` where the job's own groups are followed."""


@dataclass(slots=True)
class _Quarrel:
    """What a task sends against what its operators say, look by look."""

    differs: Disagreement | None = None
    """The newest one; it stays until as many looks as `LASTS` had none."""
    looks: int = 0
    """In a row that are not as what is reported."""
    told: bool = False

    def look(self, found: Disagreement | None) -> Disagreement | None:
        """Take what a look found; return what is to be reported."""
        self.differs = found or self.differs
        self.looks = self.looks + 1 if (found is not None) != self.told else 0
        if self.looks >= LASTS:
            self.told, self.looks = not self.told, 0
        return self.differs if self.told else None


@dataclass(slots=True)
class _Life:
    """The state of one task. Instants are Unix nanoseconds."""

    members: tuple[Endpoint, ...]
    excuse: str
    """Why the task may have no skeleton, whatever its traffic; empty where it may."""
    plan: Plan
    from_ns: int
    targets: dict[EndpointId, tuple[EndpointId, ...]] | None = None
    """Whom each endpoint exchanges with, by the plan; None: unknown."""
    kept: Used | None = None
    look_ns: int = 0
    infer_ns: int = 0
    busy: bool = False
    busy_ns: int = 0
    """Since when it is."""
    fine_ns: int | None = None
    """When fine ticks were last requested; None: request them once the task is busy."""
    fine_pause_ns: int = FINE_PAUSE_NS[0]
    stated: Plan | None = None
    """What its operators state, which goes before what its traffic shows."""
    stated_ns: int = 0
    """When they did so last."""
    quarrel: _Quarrel = field(default_factory=_Quarrel)

    @property
    def followed(self) -> Plan:
        """Return what ping lists follow."""
        return self.stated or self.plan

    def patience_ns(self, now_ns: int) -> int:
        """Return for how long it is not inferred again after that failed."""
        traffic_ns = now_ns - max(self.from_ns, self.busy_ns) if self.busy else 0
        # Of more than its newest ticks nothing is kept.
        return max(INFER_NS, round(GROWN * min(traffic_ns, TICKS * S)))


class Skeletons:
    """The plans of all tasks."""

    def __init__(self, registry: Registry, *, window_s: int = 5, enabled: bool = True) -> None:
        self._registry, self._enabled = registry, enabled
        self._late_ns = window_s * S + LATE_NS
        self._lives: dict[str, _Life] = {}
        self._changed = {task.id for task in registry.tasks()}
        """Tasks of which something changed since `refresh` saw them last."""
        registry.watchers.append(self)

    def moved(self, before: EndpointRecord | None, after: EndpointRecord | None) -> None:
        """Take a change of an endpoint: who comes counts as used until `refresh` has seen it."""
        ends = [r.endpoint if r is not None and r.active else None for r in (before, after)]
        same = len({(key(e), e.task) if e is not None else None for e in ends}) == 1
        for task in {r.endpoint.task for r in (before, after) if r is not None}:
            self._changed.add(task)
            if not same and task in self._lives:
                self._lives[task].targets = None

    def declared(self, task: str) -> None:
        """Take a change of what is declared of `task`."""
        self._changed.add(task)

    def used(self, task: str, source: EndpointId) -> tuple[EndpointId, ...] | None:
        """Return whom an endpoint of `task` exchanges with; None while that is not known."""
        life = self._lives.get(task)
        return None if life is None or life.targets is None else life.targets.get(source)

    def plan(self, task: str) -> Plan | None:
        """Return the plan of `task`; None before `refresh` has seen the task."""
        life = self._lives.get(task)
        return life.followed if life else None

    def plans(self) -> dict[str, Plan]:
        """Return the plans of all tasks."""
        return {task: life.followed for task, life in self._lives.items()}

    # --- what operators state ---------------------------------------------------------------------

    def state(self, task: str, said: Stated, now_ns: int) -> set[str]:
        """Take what a task's operators state; return the hosts whose ping list changes.

        Where they contradict its traffic neither is followed: one of both is of something else.
        """
        life = self._lives.get(task)
        if life is None or life.excuse or life.members != said.members:
            return set()
        traffic = life.plan.used.skeleton if life.plan.used is not None else None
        ends = ends_of(life.members)
        differs = disagreement(traffic, said.skeleton, ends) if traffic is not None else None
        life.quarrel.look(differs)
        life.stated_ns = now_ns
        if differs is not None:
            return self._follow(life, None, differs.text, now_ns)
        if not said.skeleton.confident:
            return self._leave(life, now_ns)
        return self._follow(life, used_of(said.skeleton, life.members), "", now_ns)

    def quarrel(self, task: str) -> Disagreement | None:
        """Return how a task's operators contradict its traffic, where that lasts."""
        life = self._lives.get(task)
        return life.quarrel.differs if life is not None and life.quarrel.told else None

    def _follow(self, life: _Life, used: Used | None, reason: str, now_ns: int) -> set[str]:
        before = life.followed
        same = (before.used.pairs if before.used else None) == (used.pairs if used else None)
        if life.stated is not None and same:
            life.stated = replace(life.stated, reason=reason)
            return set()
        life.stated = Plan(before.version + 1, now_ns, used, reason, "operators")
        life.targets = used.targets() if used is not None else None
        return set() if same else _hosts(life.members)

    def _leave(self, life: _Life, now_ns: int) -> set[str]:
        """Follow the traffic again; return the hosts whose ping list changes."""
        left, life.stated = life.stated, None
        if left is None:
            return set()
        version = max(left.version, life.plan.version) + 1
        life.plan = replace(life.plan, version=version, since_ns=now_ns)
        used = life.plan.used
        life.targets = used.targets() if used is not None else None
        same = (left.used.pairs if left.used else None) == (used.pairs if used else None)
        return set() if same else _hosts(life.members)

    def recent(
        self, task: str, book: TrafficBook, tick_ns: int | None, now_ns: int
    ) -> TrafficSeries | None:
        """Return the recent traffic of `task`, as for inference; None where none is known."""
        life, known = self._lives.get(task), self._registry.task(task)
        if life is None or known is None:
            return None
        used = life.plan.used or life.kept
        ticks = [tick_ns] if tick_ns else [used.tick_ns] if used else book.ticks_ns()[::-1]
        members = tuple(self._registry.active_endpoints(task))
        until_ns = now_ns - self._late_ns
        from_ns = life.from_ns if life.plan.used else 0
        case = Case(known, members, None, None, from_ns, until_ns, infer=False)
        found = (history(case, book, each) for each in ticks)
        return next((each for each in found if each is not None and each.rate.size), None)

    # --- in steps --------------------------------------------------------------------------------

    def refresh(self, now_ns: int) -> set[str]:
        """Read tasks and members from the registry; return the hosts whose ping list changes.

        A task whose members change loses its skeleton.
        """
        changed, self._changed = self._changed, set()
        touched: set[str] = set()
        for each in self._lives.values():
            if each.stated is not None and now_ns - each.stated_ns >= STATED_NS:
                touched |= self._leave(each, now_ns)
        for name in sorted(changed):
            task, life = self._registry.task(name), self._lives.get(name)
            if task is None:
                self._lives.pop(name, None)
                continue
            members = tuple(self._registry.active_endpoints(name))
            excuse = self._excuse(task, members)
            if life is None:
                plan = Plan(1, now_ns, None, excuse or LEARNING)
                self._lives[name] = _Life(members, excuse, plan, now_ns)
                continue
            life.excuse = excuse
            if [key(e) for e in life.members] != [key(e) for e in members]:
                touched |= self._restart(life, members, now_ns)
            elif excuse:
                touched |= self._leave(life, now_ns) | self._change(life, None, excuse, now_ns)
            elif life.followed.used is not None and life.targets is None:  # who left is back
                life.targets = life.followed.used.targets()
                touched |= _hosts(members)
        return touched

    def _restart(self, life: _Life, members: tuple[Endpoint, ...], now_ns: int) -> set[str]:
        left, came = (
            len({key(e) for e in one} - {key(e) for e in other})
            for one, other in ((life.members, members), (members, life.members))
        )
        reason = f"membership changed: {came} endpoints came, {left} left"
        hosts = _hosts(life.members)
        touched = self._leave(life, now_ns)
        life.quarrel = _Quarrel()
        life.members, life.from_ns, life.infer_ns = members, now_ns, now_ns
        life.fine_ns, life.fine_pause_ns = None, FINE_PAUSE_NS[0]
        touched |= self._change(life, None, life.excuse or reason, now_ns)
        return touched | hosts if touched else set()

    def _excuse(self, task: Task, members: Sequence[Endpoint]) -> str:
        """Return why a task may have no skeleton, whatever its traffic; empty where it may."""
        if not self._enabled:
            return "skeletons are switched off in the analyzer's configuration"
        if not task.skeleton:
            return "the task opted out"
        expected = len(task.containers) * task.rnics_per_container if task.declared else 0
        if len(members) < expected:
            return f"{len(members)} of {expected} endpoints are up"
        if len(_hosts(members)) < 2:
            return "all endpoints are on one host: no network pair"
        return ""

    def cases(self, now_ns: int) -> list[Case]:
        """Return the tasks to judge now."""
        found = []
        for name, life in self._lives.items():
            if now_ns < life.look_ns or life.excuse:
                continue
            task = self._registry.task(name)
            if task is None:
                continue
            infer = now_ns >= life.infer_ns
            if not infer and life.plan.used is None and life.kept is None:
                continue  # nothing to compare its traffic with
            life.look_ns = now_ns + LOOK_NS
            until_ns = now_ns - self._late_ns
            fits = life.kept is not None and life.kept.members == frozenset(map(key, life.members))
            kept = life.kept if fits else None
            case = Case(task, life.members, life.plan.used, kept, life.from_ns, until_ns, infer)
            found.append(case)
        return found

    def settle(self, case: Case, judgement: Judgement, *, now_ns: int, took_ns: int) -> set[str]:
        """Take the judgement of a case; return the hosts whose ping list changes."""
        life = self._lives.get(case.task.id)
        if (
            life is None
            or life.members != case.members
            or life.plan.used is not case.used
            or self._registry.task(case.task.id) != case.task
            or life.excuse
        ):
            return set()  # the task changed while it was judged
        if case.infer:
            again_ns = AGAIN_NS if judgement.used is not None else life.patience_ns(now_ns)
            life.infer_ns = now_ns + max(again_ns, round(took_ns / MAX_SHARE))
        if judgement.busy and not life.busy:
            life.fine_ns, life.fine_pause_ns, life.busy_ns = None, FINE_PAUSE_NS[0], now_ns
        life.busy = judgement.busy
        if judgement.broke:
            life.kept, life.from_ns, life.infer_ns = case.used, now_ns, now_ns
            life.fine_ns = None
        elif judgement.used is not None:
            life.kept = judgement.used
        return self._change(life, judgement.used, judgement.reason, now_ns)

    def _change(self, life: _Life, used: Used | None, reason: str, now_ns: int) -> set[str]:
        plan = life.plan
        if used is plan.used:
            life.plan = replace(plan, reason=reason or plan.reason)
            return set()
        life.plan = Plan(plan.version + 1, now_ns, used, reason)
        if life.stated is not None:  # what operators state is followed
            return set()
        life.targets = used.targets() if used is not None else None
        return _hosts(life.members)

    # --- fine ticks -------------------------------------------------------------------------------

    def to_sample(self, now_ns: int) -> dict[str, float]:
        """Return the hosts that shall sample in fine ticks now -> seconds."""
        hosts: dict[str, float] = {}
        for life in self._lives.values():
            if life.excuse or not self._wants_fine(life, now_ns):
                continue
            life.fine_ns = now_ns
            hosts |= dict.fromkeys(_hosts(life.members), FINE_S)
        return hosts

    def _wants_fine(self, life: _Life, now_ns: int) -> bool:
        used = life.plan.used or life.kept
        if used is not None and used.tick_ns > FINE_NS and life.plan.used is not None:
            return False  # its iterations are long enough
        if life.fine_ns is None:
            return life.busy
        since_ns = now_ns - life.fine_ns
        if used is not None and used.tick_ns <= FINE_NS:
            return since_ns >= FINE_AGAIN_NS
        if life.busy and since_ns >= FINE_S * S + life.fine_pause_ns:
            life.fine_pause_ns = min(2 * life.fine_pause_ns, FINE_PAUSE_NS[1])
            return True
        return False


def _hosts(members: Iterable[Endpoint]) -> set[str]:
    return {each.host for each in members}
