# SPDX-License-Identifier: Apache-2.0
"""Simpler rules on the same logs: ratios to means, who waits least, and one iteration alone."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from analyzer.detect.operators.case import Case
from analyzer.detect.operators.iterations import iterations
from analyzer.detect.operators.lateness import LATE, STANDING_OUT, excess_us
from analyzer.detect.operators.matrix import marks_by_means
from analyzer.detect.operators.neighbours import with_peers
from analyzer.detect.operators.positions import stages
from analyzer.detect.operators.verdict import Culprit, Holdup, Verdict, Who
from analyzer.detect.operators.votes import spread
from analyzer.operators.aggregate import aggregate
from analyzer.operators.log import Kind, Log

WAITS_LESS = 0.8
"""Aegis' alpha: who waits less than this part of the mean computed longer (NSDI '25)."""


def verdicts(log: Log) -> Mapping[str, Verdict]:
    """Return what each simpler rule says of a log."""
    log = with_peers(log)
    found = iterations(log)
    sums = aggregate(log, found.step, found.steps)
    case = Case(sums, stages(log, sums.ranks, found.step), log.groups, log.places)
    return {
        "ratios to means": _means(log), "who waits least": _least(log, case),
        "one iteration": _once(case),
    }  # fmt: skip


def _verdict(kind: Who, *named: tuple[int, ...]) -> Verdict:
    slow = Holdup.SLOW_RANK if kind is Who.RANK else Holdup.SLOW_COMMUNICATION
    culprits = tuple(Culprit(kind, ranks, 0.5, "") for ranks in named)
    return Verdict(slow if named else Holdup.NOTHING, "", culprits, innocent=kind is Who.RANK)


def _means(log: Log) -> Verdict:
    """Return what DeepEP's ratios find in the mean times between ranks: receives, as they wait."""
    rows = (log.kind == Kind.RECV) & (log.peer >= 0)
    ranks, place = np.unique(np.concatenate([log.peer[rows], log.rank[rows]]), return_inverse=True)
    if not len(ranks):
        return _verdict(Who.RANK)
    source, target = np.split(place, 2)
    at, count = source * len(ranks) + target, len(ranks) ** 2
    total = np.asarray(np.bincount(at, log.duration_ns[rows] / 1e3, count), np.float64)
    delay = _divided(total, np.bincount(at, minlength=count)).reshape(len(ranks), -1)
    found = marks_by_means(delay)
    if found.senders or found.receivers:
        order = sorted(found.senders, key=lambda each: -np.nanmean(delay[each]))
        return _verdict(Who.RANK, *((int(ranks[each]),) for each in order))
    edges = sorted(found.edges, key=lambda each: -delay[each])
    return _verdict(Who.EDGE, *((int(ranks[a]), int(ranks[b])) for a, b in edges))


def _divided(total: NDArray[np.float64], count: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(np.divide(total, count, where=count > 0, out=np.full(len(total), np.nan)))


def _least(log: Log, case: Case) -> Verdict:
    """Return who waits least over all, if much less than the mean."""
    rows = (log.kind == Kind.RECV) | (log.kind == Kind.COLLECTIVE)
    ranks = case.sums.ranks
    waited = np.bincount(
        np.searchsorted(ranks, log.rank[rows]), log.duration_ns[rows] / 1e3, len(ranks)
    )
    order = np.argsort(waited, kind="stable")
    named = [n for n in order[:2].tolist() if waited[n] < WAITS_LESS * waited.mean()]
    return _verdict(Who.RANK, *((int(ranks[n]),) for n in named))


def _once(case: Case) -> Verdict:
    """Return who is late in the longest iteration, by the rule that votes in every one."""
    late = excess_us(case) / case.step_us[:, None]
    worst = late[int(np.argmax(case.step_us))]
    wide = max(STANDING_OUT * float(spread(worst)), LATE)
    order = np.argsort(-worst, kind="stable")[:2].tolist()
    ranks = case.sums.ranks
    return _verdict(Who.RANK, *((int(ranks[n]),) for n in order if worst[n] > wide))
