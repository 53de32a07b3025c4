# SPDX-License-Identifier: Apache-2.0
"""Which skeleton each task's ping lists follow, if any, and why. Reads no clock.

Theory of operation. A task begins on its basic list. Once its endpoints have been the same for long
enough, its skeleton is inferred from the traffic since then; where that is certain enough, pairs it
leaves out become rare. From then on each new stretch of traffic is held against it, and with the
first that does not fit the basic list is back: too large a list costs probes, a wrong skeleton
costs detection. The skeleton comes back by itself where traffic fits it again (a checkpoint ended);
else it is inferred anew from what came since.

Deciding is split in three, since inferring takes a while: `cases` says what there is to think
about, `analyzer.judging` thinks, in a thread, and `settle` takes the answer.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from analyzer.judging import FINE_NS, Case, Judgement, S, Used, history, key
from analyzer.registry import Registry
from analyzer.skeleton.series import TrafficSeries
from analyzer.traffic import TrafficBook
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.task import Task

LOOK_NS = 5 * S
"""A task is looked at so often; less often where thinking takes long."""
INFER_NS = 10 * S
"""Without success, inferring is tried again after so long."""
AGAIN_NS = 300 * S
"""A skeleton in use is inferred again, from more traffic, after so long."""
MAX_SHARE = 0.1
"""Of the time, at most, is spent thinking about one task."""
LATE_NS = 3 * S
"""Traffic has come so long after the end of its window, if it comes."""
FINE_S = 180.0
"""A task that is being learned is sampled in fine ticks for so long; and then on, where that is
where its skeleton came from."""
FINE_AGAIN_NS = 60 * S
"""Fine ticks that are wanted further are asked for again."""
FINE_PAUSE_NS = (600 * S, 3600 * S)
"""A task of which nothing was learned is sampled finely again after so long, at first and later."""
FINE_RETRY_NS = 10 * S
FINE_RETRIES = 5
"""An agent that does not answer is asked again so often; then with the others, the next time."""
LEARNING = "not enough traffic yet"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a task's ping lists follow. Instants are Unix nanoseconds."""

    version: int
    """Grows with each change."""
    since_ns: int
    used: Used | None
    """None: the basic list."""
    reason: str
    """Why the basic list; or what speaks against the skeleton."""


@dataclass(slots=True)
class _Life:
    """What is remembered of one task."""

    members: tuple[Endpoint, ...]
    plan: Plan
    from_ns: int
    kept: Used | None = None
    look_ns: int = 0
    infer_ns: int = 0
    busy: bool = False
    fine_ns: int | None = None
    """When fine ticks were last asked for; None: they are to be."""
    fine_pause_ns: int = FINE_PAUSE_NS[0]
    fine_retry_ns: int | None = None
    """When to ask again, since not all agreed."""
    fine_retries: int = 0


class Skeletons:
    """The plans of all tasks."""

    def __init__(self, registry: Registry, *, window_s: int = 5, enabled: bool = True) -> None:
        self._registry, self._enabled = registry, enabled
        self._late_ns = window_s * S + LATE_NS
        self._lives: dict[str, _Life] = {}
        self._revision = -1
        """Of the registry, as it was last looked at."""

    def uses(self, task: str, source: EndpointId, target: EndpointId) -> bool:
        """Whether `task` uses a pair, as far as is known."""
        life = self._lives.get(task)
        return life is None or life.plan.used is None or life.plan.used.uses(source, target)

    def plan(self, task: str) -> Plan | None:
        """Return what the ping lists of `task` follow; None before it was looked at."""
        life = self._lives.get(task)
        return life.plan if life else None

    def plans(self) -> dict[str, Plan]:
        """Return the plans of all tasks."""
        return {task: life.plan for task, life in self._lives.items()}

    def recent(
        self, task: str, book: TrafficBook, tick_ns: int | None, now_ns: int
    ) -> TrafficSeries | None:
        """Return what `task` sent lately, as it is inferred from; None where nothing is known."""
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
        """Take in which tasks there are, and who is in them; return hosts whose list that changes.

        A skeleton does not outlive the membership that it was inferred for.
        """
        if self._revision == self._registry.revision:
            return set()
        self._revision = self._registry.revision
        tasks = {task.id: task for task in self._registry.tasks()}
        touched: set[str] = set()
        for gone in self._lives.keys() - tasks.keys():
            del self._lives[gone]
        for name, task in tasks.items():
            members = tuple(self._registry.active_endpoints(name))
            life = self._lives.get(name)
            if life is None:
                plan = Plan(1, now_ns, None, self._excuse(task, members) or LEARNING)
                self._lives[name] = _Life(members, plan, now_ns)
            elif [key(e) for e in life.members] != [key(e) for e in members]:
                touched |= self._restart(life, task, members, now_ns)
            elif excuse := self._excuse(task, members):
                touched |= self._change(life, None, excuse, now_ns)
        return touched

    def _restart(
        self, life: _Life, task: Task, members: tuple[Endpoint, ...], now_ns: int
    ) -> set[str]:
        left, came = (
            len({key(e) for e in one} - {key(e) for e in other})
            for one, other in ((life.members, members), (members, life.members))
        )
        reason = f"membership changed: {came} endpoints came, {left} left"
        hosts = _hosts(life.members)
        life.members, life.from_ns, life.infer_ns = members, now_ns, now_ns
        life.fine_ns, life.fine_pause_ns = None, FINE_PAUSE_NS[0]
        touched = self._change(life, None, self._excuse(task, members) or reason, now_ns)
        return touched | hosts if touched else set()

    def _excuse(self, task: Task, members: Sequence[Endpoint]) -> str:
        """Return why a task has no skeleton, whatever its traffic; empty where it may."""
        if not self._enabled:
            return "skeletons are switched off in the analyzer's configuration"
        if not task.skeleton:
            return "the task opted out"
        expected = len(task.containers) * task.rnics_per_container if task.declared else 0
        if len(members) < expected:
            return f"{len(members)} of {expected} endpoints are up"
        if len(_hosts(members)) < 2:
            return "all endpoints are on one host: no network pair"
        if len({(each.host, each.id.rail) for each in members}) < len(members):
            return "two of its endpoints are on one rail of one host"
        return ""

    def cases(self, now_ns: int) -> list[Case]:
        """Return what there is to think about now."""
        found = []
        for name, life in self._lives.items():
            task = self._registry.task(name)
            if task is None or now_ns < life.look_ns or self._excuse(task, life.members):
                continue
            life.look_ns = now_ns + LOOK_NS
            infer = now_ns >= life.infer_ns
            until_ns = now_ns - self._late_ns
            fits = life.kept is not None and life.kept.members == frozenset(map(key, life.members))
            kept = life.kept if fits else None
            case = Case(task, life.members, life.plan.used, kept, life.from_ns, until_ns, infer)
            found.append(case)
        return found

    def settle(self, case: Case, judgement: Judgement, *, now_ns: int, took_ns: int) -> set[str]:
        """Take what came of a case; return the hosts whose ping list that changes."""
        life = self._lives.get(case.task.id)
        if (
            life is None
            or life.members != case.members
            or life.plan.used is not case.used
            or self._registry.task(case.task.id) != case.task
            or self._excuse(case.task, life.members)
        ):
            return set()  # overtaken
        if case.infer:
            again_ns = INFER_NS if judgement.used is None else AGAIN_NS
            life.infer_ns = now_ns + max(again_ns, round(took_ns / MAX_SHARE))
        if judgement.busy and not life.busy:
            life.fine_ns, life.fine_pause_ns = None, FINE_PAUSE_NS[0]
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
        return _hosts(life.members)

    # --- fine ticks -------------------------------------------------------------------------------

    def to_sample(self, now_ns: int) -> dict[str, float]:
        """Return the hosts to sample in fine ticks now -> for how many seconds."""
        hosts: dict[str, float] = {}
        for name, life in self._lives.items():
            task = self._registry.task(name)
            if (
                task is None
                or self._excuse(task, life.members)
                or not self._wants_fine(life, now_ns)
            ):
                continue
            life.fine_ns, life.fine_retry_ns = now_ns, None
            hosts |= dict.fromkeys(_hosts(life.members), FINE_S)
        return hosts

    def not_sampled(self, hosts: Collection[str], now_ns: int) -> None:
        """Ask again soon: `hosts` did not agree to what `to_sample` wanted."""
        for life in self._lives.values():
            if life.fine_ns != now_ns or not _hosts(life.members) & set(hosts):
                continue
            life.fine_retries = (life.fine_retries + 1) % (FINE_RETRIES + 1)
            if life.fine_retries:
                life.fine_retry_ns = now_ns + FINE_RETRY_NS

    def _wants_fine(self, life: _Life, now_ns: int) -> bool:
        used = life.plan.used or life.kept
        if used is not None and used.tick_ns > FINE_NS and life.plan.used is not None:
            return False  # its iterations are long enough
        if life.fine_ns is None:
            return life.busy
        since_ns = now_ns - life.fine_ns
        if life.fine_retry_ns is not None:
            return now_ns >= life.fine_retry_ns
        if used is not None and used.tick_ns <= FINE_NS:
            return since_ns >= FINE_AGAIN_NS
        if life.busy and since_ns >= FINE_S * S + life.fine_pause_ns:
            life.fine_pause_ns = min(2 * life.fine_pause_ns, FINE_PAUSE_NS[1])
            return True
        return False


def _hosts(members: Iterable[Endpoint]) -> set[str]:
    return {each.host for each in members}
