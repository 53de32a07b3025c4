# SPDX-License-Identifier: Apache-2.0
"""Judges one task by its traffic: learn a skeleton, compare it with new traffic, or drop it.

`judge` takes a `Case` and the book of series. It may take seconds, so it runs in a thread.
`analyzer.skeleton.plans` decides what follows from the judgement.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzer.intake.traffic import TICKS, TrafficBook
from analyzer.skeleton.fidelity import Fingerprint, fingerprint, misfit
from analyzer.skeleton.hint import Hint, infer_with
from analyzer.skeleton.infer import MIN_TICKS, Skeleton
from analyzer.skeleton.series import Floats, TrafficSeries
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId
from netagent.model.task import Task

S = 1_000_000_000
"""Nanoseconds in a second."""
SHORTEST_PERIOD = 10
"""Least ticks in an iteration. Chosen: in fewer ticks the stages' lags cannot be distinguished."""
FINE_NS = S // 10
"""Nanoseconds in a fine tick. Chosen: a tenth of a second shows iterations of a few seconds, and is
the agents' shortest tick."""
FINE_TICKS = 400
"""Least ticks of a history whose ticks are below a second. Chosen: in fewer, pulses of microbatches
look like iterations."""
BUSY_BYTES_PER_S = 65_536
"""Mean bytes per second and endpoint below which a task does not train. Chosen: twice what
netagent's own probes send."""
BUSY_NS = 30 * S
"""Nanoseconds of newest traffic whose mean decides whether a task is busy. Chosen: longer than the
gap in most iterations, short enough to notice a start."""
SLACK_NS = 30 * S
"""Nanoseconds that late traffic is waited for before it counts as missing. Chosen: an agent that
retries a delivery needs some seconds; longer delays the discovery of a misfit."""
BUSIEST, BEGUN = 0.95, 0.3
"""Quantile of the ticks that stands for a busy tick, and the share of it with which a job begins.
Chosen: startup traffic stays below that share, a job's first burst does not."""
KNOWN = 0.9
"""Least share of the endpoints that must report a tick for it to count. Chosen: a few silent hosts
do not stop the judgement."""


@dataclass(frozen=True, slots=True)
class Used:
    """A skeleton, with the fingerprint that later traffic is compared with."""

    skeleton: Skeleton
    fingerprint: Fingerprint | None
    """None of one that operators state: it follows from no traffic."""
    tick_ns: int
    members: frozenset[tuple[EndpointId, str]]
    """Endpoints, with their hosts, for which the skeleton holds."""
    ids: tuple[EndpointId, ...]
    """Endpoint of each row of the skeleton."""
    pairs: frozenset[tuple[EndpointId, EndpointId]]
    """Pairs of endpoints that the task uses, each in both orders."""

    def targets(self) -> dict[EndpointId, tuple[EndpointId, ...]]:
        """Return whom each endpoint exchanges with, in order."""
        found: dict[EndpointId, list[EndpointId]] = {each: [] for each in self.ids}
        for source, target in sorted(self.pairs):
            found[source].append(target)
        return {source: tuple(each) for source, each in found.items()}


@dataclass(frozen=True, slots=True)
class Case:
    """One task to judge, with all that `judge` needs besides traffic. Instants are Unix ns."""

    task: Task
    members: tuple[Endpoint, ...]
    used: Used | None
    """Skeleton in use; None: the basic list."""
    kept: Used | None
    """Skeleton that fitted these members before."""
    from_ns: int
    """Traffic before this instant is ignored."""
    until_ns: int
    """Traffic after this instant has not all come yet."""
    infer: bool
    """Whether to infer a skeleton now."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The skeleton that a task shall use, and the reason."""

    used: Used | None
    """None: the basic list."""
    reason: str
    broke: bool = False
    """A skeleton that was in use no longer fits."""
    busy: bool = True
    """Whether the task sends enough to learn something from."""


def judge(case: Case, book: TrafficBook) -> Judgement:
    """Judge one task. The book may grow meanwhile: newer traffic does no harm."""
    if case.used is not None:
        rate = _stretch(case, book, case.used)
        why = _misfit(rate, case.used)
        if why:
            return Judgement(None, why, broke=True)
        better = _learn(case, book) if case.infer else Judgement(None, "")
        changed = better.used is not None and better.used.pairs != case.used.pairs
        return better if changed else Judgement(case.used, "")
    if case.kept is not None:
        rate = _stretch(case, book, case.kept)
        if rate is not None and not _misfit(rate, case.kept):
            return Judgement(case.kept, "")
    busy = _is_busy(case, book)
    learned = _learn(case, book) if case.infer and busy else Judgement(None, "")
    reason = learned.reason if busy else "it sends next to nothing"
    return replace(learned, reason=reason, busy=busy)


def _misfit(rate: Floats | None, used: Used) -> str:
    if rate is None or used.fingerprint is None:
        return ""
    return misfit(rate, used.fingerprint)


def _is_busy(case: Case, book: TrafficBook) -> bool:
    """Whether recent traffic is enough to learn from; True where no recent traffic is known."""
    ticks, end = BUSY_NS // S, case.until_ns // S
    rate = book.series(_places(case.members), S, end - ticks, ticks)
    known = ~np.isnan(rate)
    return not known.any() or float(rate[known].mean()) >= BUSY_BYTES_PER_S


def _learn(case: Case, book: TrafficBook) -> Judgement:
    best: Skeleton | None = None
    for tick_ns in book.ticks_ns():
        series = history(case, book, tick_ns)
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
    made = used_of(found, case.members)
    tick_ns = round(series.tick_s * S)
    return replace(made, fingerprint=fingerprint(series, found), tick_ns=tick_ns)


def used_of(found: Skeleton, members: Sequence[Endpoint]) -> Used:
    """Return a skeleton with whom it is of; no traffic is compared with it."""
    ids = [each.id for each in members]
    one_way = [(ids[a], ids[b]) for a, b in found.edges.tolist()]
    both = frozenset((*one_way, *((b, a) for a, b in one_way)))
    return Used(found, None, S, frozenset(map(key, members)), tuple(ids), both)


def history(case: Case, book: TrafficBook, tick_ns: int) -> TrafficSeries | None:
    """Return a task's traffic in ticks of `tick_ns`, from the job's start on; None without any."""
    end = case.until_ns // tick_ns
    ticks = min(TICKS, end - -(-case.from_ns // tick_ns))
    if ticks <= 0:
        return None
    rate = _begun(_known(book.series(_places(case.members), tick_ns, end - ticks, ticks)))
    place = {container: at for at, container in enumerate(_in_order(case))}
    containers = np.asarray([place[each.id.container] for each in case.members], np.int64)
    return TrafficSeries(
        rate, tick_ns / S, *_numbered(case), _names(case.members), containers, is_ordered(case)
    )


def _stretch(case: Case, book: TrafficBook, used: Used) -> Floats | None:
    """Return the newest stretch that came; None where it begins before `case.from_ns`."""
    if used.fingerprint is None:
        return None
    ticks, end = used.fingerprint.ticks, case.until_ns // used.tick_ns
    slack = SLACK_NS // used.tick_ns
    rate = book.series(_places(case.members), used.tick_ns, end - ticks - slack, ticks + slack)
    told = np.flatnonzero((~np.isnan(rate)).mean(axis=0) >= KNOWN)
    last = ticks + slack - 1
    if len(told) and told[-1] >= ticks - 1:
        last = int(told[-1])  # later ticks have not come yet from most endpoints
    begin_ns = (end - ticks - slack + last + 1 - ticks) * used.tick_ns
    if case.used is None and begin_ns < case.from_ns:
        return None
    return rate[:, last + 1 - ticks : last + 1]


def _known(rate: Floats) -> Floats:
    """Return (n, ticks) `rate` from the first to the last tick that most endpoints report."""
    told = np.flatnonzero((~np.isnan(rate)).mean(axis=0) >= KNOWN)
    return rate[:, told[0] : told[-1] + 1] if len(told) else rate[:, :0]


def _begun(rate: Floats) -> Floats:
    """Return (n, ticks) `rate` without the quiet ticks before the job began."""
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


def is_ordered(case: Case) -> bool:
    """Whether somebody says in which order ranks fill the containers: a list of them, or numbers.

    Names that differ in their numbers only are in order (`pod-1-rank-2`); so are those that differ
    first in numbers that follow each other, whatever stands behind (`worker-3-x7k2p`).
    """
    there = {each.id.container for each in case.members}
    if case.task.declared and there <= set(case.task.containers):
        return True
    if len({re.sub(r"\d+", "0", container) for container in there}) == 1:
        return True
    parts = zip(*(re.split(r"(\d+)", container) for container in there), strict=False)
    first = next(column for column in parts if len(set(column)) > 1)
    if not all(part.isdecimal() for part in first):
        return False
    numbers = sorted(map(int, first))
    return numbers == list(range(numbers[0], numbers[0] + len(there)))


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


def key(endpoint: Endpoint) -> tuple[EndpointId, str]:
    """Return how a skeleton identifies an endpoint: by its ID and its host."""
    return endpoint.id, endpoint.host


def _places(members: Iterable[Endpoint]) -> list[tuple[EndpointId, str]]:
    return [(each.id, each.host) for each in members]


def _names(members: Iterable[Endpoint]) -> tuple[str, ...]:
    return tuple(str(each.id) for each in members)
