# SPDX-License-Identifier: Apache-2.0
"""Which skeleton each task's ping lists follow, if any, and why. Reads no clock.

Theory of operation. A task begins on its basic list. Once its endpoints have been the same for long
enough, its skeleton is inferred from the traffic since then; where that is certain enough, pairs it
leaves out become rare. From then on each new stretch of traffic is held against it, and with the
first that does not fit the basic list is back: too large a list costs probes, a wrong skeleton
costs detection. The skeleton comes back by itself where traffic fits it again (a checkpoint ended);
else it is inferred anew from what came since.

Deciding is split in three, since inferring takes a while: `cases` says what there is to think
about, `judge` thinks, in a thread if need be, and `settle` takes the answer.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzer.registry import Registry
from analyzer.skeleton.fidelity import Fingerprint, fingerprint, misfit
from analyzer.skeleton.hint import Hint, infer_with
from analyzer.skeleton.infer import MIN_TICKS, Skeleton
from analyzer.skeleton.series import Floats, TrafficSeries
from analyzer.traffic import TICKS, TrafficBook
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.task import Task

S = 1_000_000_000
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
SHORTEST_PERIOD = 10
"""Ticks of an iteration; in a shorter one stages cannot be told apart."""
FINE_NS = S // 10
FINE_TICKS = 400
"""Least history in ticks below a second: pulses of microbatches are no iterations."""
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
BUSY_BYTES_PER_S = 65_536
"""An endpoint that sends less on average trains nothing: netagent's own probes take half of it."""
BUSY_NS = 30 * S
SLACK_NS = 30 * S
"""Traffic that comes so late is waited for, before it counts as missing."""
BUSIEST, BEGUN = 0.95, 0.3
"""A job begins with the first tick that has so large a share of what its busy ticks have."""
KNOWN = 0.9
"""Share of the endpoints whose newest ticks must have come."""

LEARNING = "not enough traffic yet"


@dataclass(frozen=True, slots=True)
class Used:
    """A skeleton with what it takes to check it."""

    skeleton: Skeleton
    fingerprint: Fingerprint
    tick_ns: int
    members: frozenset[tuple[EndpointId, str]]
    """For whom it holds: endpoints with their hosts."""
    ids: tuple[EndpointId, ...]
    """By row of the skeleton."""
    known: frozenset[EndpointId]
    """The same."""
    pairs: frozenset[tuple[EndpointId, EndpointId]]
    """Both ways."""

    def uses(self, source: EndpointId, target: EndpointId) -> bool:
        """Whether a pair is on it, or of an endpoint of which it knows nothing."""
        return (source, target) in self.pairs or not {source, target} <= self.known


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


@dataclass(frozen=True, slots=True)
class Case:
    """One task to think about: what `judge` needs."""

    task: Task
    members: tuple[Endpoint, ...]
    used: Used | None
    kept: Used | None
    """One that fitted these members before."""
    from_ns: int
    """Traffic before says nothing."""
    until_ns: int
    infer: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of it."""

    used: Used | None
    reason: str
    broke: bool = False
    """A skeleton that was in use no longer fits."""
    busy: bool = True
    """Whether the task sends enough to learn something from."""


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
        found = (_history(case, book, each) for each in ticks)
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
            elif [_key(e) for e in life.members] != [_key(e) for e in members]:
                touched |= self._restart(life, task, members, now_ns)
            elif excuse := self._excuse(task, members):
                touched |= self._change(life, None, excuse, now_ns)
        return touched

    def _restart(
        self, life: _Life, task: Task, members: tuple[Endpoint, ...], now_ns: int
    ) -> set[str]:
        left, came = (
            len({_key(e) for e in one} - {_key(e) for e in other})
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
            fits = life.kept is not None and life.kept.members == frozenset(map(_key, life.members))
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


def judge(case: Case, book: TrafficBook) -> Judgement:
    """Think about one task. Reads what is in the book meanwhile, too: that does no harm."""
    if case.used is not None:
        rate = _stretch(case, book, case.used)
        why = misfit(rate, case.used.fingerprint) if rate is not None else ""
        if why:
            return Judgement(None, why, broke=True)
        better = _learn(case, book) if case.infer else Judgement(None, "")
        changed = better.used is not None and better.used.pairs != case.used.pairs
        return better if changed else Judgement(case.used, "")
    if case.kept is not None:
        rate = _stretch(case, book, case.kept)
        if rate is not None and not misfit(rate, case.kept.fingerprint):
            return Judgement(case.kept, "")
    busy = _is_busy(case, book)
    learned = _learn(case, book) if case.infer and busy else Judgement(None, "")
    reason = learned.reason if busy else "it sends next to nothing"
    return replace(learned, reason=reason, busy=busy)


def _is_busy(case: Case, book: TrafficBook) -> bool:
    """Whether there is traffic; where nothing came in lately, there may be."""
    ticks, end = BUSY_NS // S, case.until_ns // S
    rate = book.series(_places(case.members), S, end - ticks, ticks)
    known = ~np.isnan(rate)
    return not known.any() or float(rate[known].mean()) >= BUSY_BYTES_PER_S


def _learn(case: Case, book: TrafficBook) -> Judgement:
    best: Skeleton | None = None
    for tick_ns in book.ticks_ns():
        series = _history(case, book, tick_ns)
        least = MIN_TICKS if tick_ns >= S else FINE_TICKS
        if series is None or series.rate.shape[1] < least:
            continue
        found = infer_with(series, _hint(case, series))
        if found.confident and found.period_s >= SHORTEST_PERIOD * series.tick_s:
            return Judgement(_used(case, series, found), found.reason)
        if not found.confident and (best is None or found.confidence > best.confidence):
            best = found
    return Judgement(None, best.reason if best else "")


def _used(case: Case, series: TrafficSeries, found: Skeleton) -> Used:
    ids = [each.id for each in case.members]
    one_way = [(ids[a], ids[b]) for a, b in found.edges.tolist()]
    return Used(
        found,
        fingerprint(series, found),
        round(series.tick_s * S),
        frozenset(map(_key, case.members)),
        tuple(ids),
        frozenset(ids),
        frozenset((*one_way, *((b, a) for a, b in one_way))),
    )


def _history(case: Case, book: TrafficBook, tick_ns: int) -> TrafficSeries | None:
    """Return all the traffic of a task that says something; None where there is none."""
    end = case.until_ns // tick_ns
    ticks = min(TICKS, end - -(-case.from_ns // tick_ns))
    if ticks <= 0:
        return None
    rate = _begun(_known(book.series(_places(case.members), tick_ns, end - ticks, ticks)))
    return TrafficSeries(rate, tick_ns / S, *_numbered(case), _names(case.members))


def _stretch(case: Case, book: TrafficBook, used: Used) -> Floats | None:
    """Return the newest stretch that came; None where not all of it is of this time."""
    ticks, end = used.fingerprint.ticks, case.until_ns // used.tick_ns
    slack = SLACK_NS // used.tick_ns
    rate = book.series(_places(case.members), used.tick_ns, end - ticks - slack, ticks + slack)
    told = np.flatnonzero((~np.isnan(rate)).mean(axis=0) >= KNOWN)
    last = ticks + slack - 1
    if len(told) and told[-1] >= ticks - 1:
        last = int(told[-1])  # what is later is late for most
    begin_ns = (end - ticks - slack + last + 1 - ticks) * used.tick_ns
    if case.used is None and begin_ns < case.from_ns:
        return None
    return rate[:, last + 1 - ticks : last + 1]


def _known(rate: Floats) -> Floats:
    """Return (n, ticks) `rate` from the first to the last tick that most endpoints tell."""
    told = np.flatnonzero((~np.isnan(rate)).mean(axis=0) >= KNOWN)
    return rate[:, told[0] : told[-1] + 1] if len(told) else rate[:, :0]


def _begun(rate: Floats) -> Floats:
    """Return (n, ticks) `rate` without the quiet before the job began, which is no iteration."""
    if not rate.size:
        return rate
    sent = np.nan_to_num(rate).mean(axis=0)
    busiest = float(np.quantile(sent[len(sent) // 2 :], BUSIEST))
    return rate[:, int(np.argmax(sent >= BEGUN * busiest)) :]


def _numbered(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers of hosts, in the order of ranks, and rails."""
    place = {container: at for at, container in enumerate(_in_order(case))}
    first: dict[str, int] = {}
    for each in case.members:
        at = place[each.id.container]
        first[each.host] = min(at, first.get(each.host, at))
    number = {host: at for at, host in enumerate(sorted(first, key=lambda host: first[host]))}
    hosts = np.asarray([number[each.host] for each in case.members], np.int64)
    return hosts, np.asarray([each.id.rail for each in case.members], np.int64)


def _in_order(case: Case) -> list[str]:
    """Return the containers in the order of their ranks: as declared, else by their names."""
    there = {each.id.container for each in case.members}
    declared = [container for container in case.task.containers if container in there]
    if case.task.declared and len(declared) == len(there):
        return declared
    return sorted(there, key=natural)


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts ``worker-10`` after ``worker-9``."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]


def _hint(case: Case, series: TrafficSeries) -> Hint | None:
    if case.task.parallelism is None:
        return None
    place = {container: at for at, container in enumerate(_in_order(case))}
    order = sorted(
        range(len(case.members)),
        key=lambda row: (place[case.members[row].id.container], series.rail[row]),
    )
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Hint(case.task.parallelism, rank)


def _key(endpoint: Endpoint) -> tuple[EndpointId, str]:
    return endpoint.id, endpoint.host


def _places(members: Iterable[Endpoint]) -> list[tuple[EndpointId, str]]:
    return [(each.id, each.host) for each in members]


def _names(members: Iterable[Endpoint]) -> tuple[str, ...]:
    return tuple(str(each.id) for each in members)


def _hosts(members: Iterable[Endpoint]) -> set[str]:
    return {each.host for each in members}
