# SPDX-License-Identifier: Apache-2.0
"""A task's skeleton from its traffic: section 5.1 of SkeletonHunter, with phase and reasons."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analyzer.skeleton import cluster, parallelism, spectrum
from analyzer.skeleton.positions import Positions, positions, scattered
from analyzer.skeleton.series import (
    Ints,
    TrafficSeries,
    basic_edges,
    carried,
    cliques,
    unique_edges,
)
from analyzer.skeleton.superset import ANY, Superset, superset

IRREGULAR = "the groups follow no regular layout over the hosts"
UNORDERED = "nobody says in which order ranks lie over the hosts"
UNUSED = 0.7
"""Confidence of a superset that leaves no pair out: it is right, and of no use. Chosen: below
CONFIDENT."""
ONE_HOST = "all endpoints are on one host: no network pair"
CONFIDENT = 0.8
"""Least confidence at which a skeleton is used. Chosen: below it the basic list costs probes, while
a wrong skeleton costs detection."""
MIN_TICKS = 240
"""Least ticks of a series: four minutes of seconds. Chosen: fewer give too few transform windows
for two independent halves."""
REGULAR = 0.75
"""Share of the positions that must follow a layout before it decides for the others. Chosen: noise
misplaces fewer; a job in another order follows no layout as well."""
STRAGGLERS = 1
"""Hosts that may send what another stage sends without refuting a layout. Chosen: one may straggle,
two are a list of hosts out of order."""
MIN_RHYTHM = 0.1
"""Least mean squared coherence of a job's endpoints; noise has nearly none. Chosen: too low groups
endpoints that share nothing, too high gives up noisy jobs."""
MAX_UNKNOWN = 0.3
"""Largest share of a series' ticks that may be unknown; with more, the series counts as missing.
Chosen: gaps are interpolated, and too many of them would be the signal."""
TELLING = 0.05
"""Least share of signal, not noise, in what positions send unlike their stage, for experts to show.
Chosen: with less, finding no experts proves nothing."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """Which endpoint pairs a task uses. Rows are those of the traffic series."""

    confidence: float
    reason: str
    dp: int
    pp: int
    tp: int
    ep: int
    groups: dict[str, list[list[int]]]
    """``dp``, ``pp`` or ``ep`` -> groups of two rows or more; of a superset ``stage``."""
    edges: Ints
    """(n_edges, 2): unordered pairs, smaller row first; the basic list where not confident."""
    candidates: tuple[cluster.Candidate, ...] = ()
    period_s: float = 0.0
    """Seconds an iteration takes; 0 where unknown."""
    stage: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """(n_endpoints,): pipeline stage of each endpoint; empty where unknown."""
    superset: bool = False
    """Whether edges are a superset: who belongs to one replica is unknown, and `dp` counts the
    experts too."""
    rows: Ints = field(default_factory=lambda: np.empty((0, 0), np.int64))
    """(n_positions, width): rows of the positions whose stage is sure, or ABSENT at the end; empty
    where these follow from the hosts and `tp`."""

    @property
    def confident(self) -> bool:
        """Whether the edges are the skeleton's, not the basic list's."""
        return self.confidence >= CONFIDENT


def infer(series: TrafficSeries, describe: spectrum.Describe = spectrum.features) -> Skeleton:
    """Return the skeleton of one task; the basic list, with the reason, where it is not certain.

    `describe` makes features of compressed series.
    """
    if len(np.unique(series.host)) < 2:
        return _basic(series, ONE_HOST)
    if why := untold(series):
        return _basic(series, why)
    order, uneven = by_host(series)
    mine, absent = scattered(series) if uneven else (positions(series, order), 0)
    if absent:
        return _basic(series, f"{uneven}, and of {absent} positions no endpoint is known")
    made = describe(mine.values)
    if made.rhythm < MIN_RHYTHM:
        return _basic(series, "the endpoints have no common rhythm")
    found = cluster.candidates(made)
    exact = None if uneven else _told(series, mine, made, found)
    if exact is not None and (exact.confident or describe is not spectrum.features):
        return exact  # what a superset's confidence is worth was measured with our features alone
    wide = superset(mine, made, found, series.tick_s)
    return replace(_widened(series, mine, wide, exact, uneven), candidates=tuple(found))


def by_host(series: TrafficSeries) -> tuple[Ints, str]:
    """Return the rows as (n_hosts, rails), and why that cannot be done; empty where it can."""
    rails = np.unique(series.rail)
    order = np.lexsort((series.rail, series.host))
    hosts = len(np.unique(series.host))
    if hosts < 2:
        return order[None], ONE_HOST
    if series.shared(series.host):
        return order[None], "two containers are on one rail of one host"
    if hosts * len(rails) != len(series):
        return order[None], f"not every host has all of the {len(rails)} rails"
    return order.reshape(hosts, len(rails)), ""


def untold(series: TrafficSeries) -> str:
    """Return why nothing can be inferred from a series; empty where something may be."""
    ticks = series.rate.shape[1]
    if ticks < MIN_TICKS:
        return f"{ticks} ticks are too few: {MIN_TICKS} are needed"
    unknown = np.isnan(series.rate)
    missing = int(np.sum(unknown.mean(axis=1) > MAX_UNKNOWN))
    if missing:
        return f"the series of {missing} endpoints are missing for the most part"
    silent = int(np.sum(np.nansum(series.rate, axis=1) == 0))
    if silent:
        return f"{silent} of {len(series)} endpoints send nothing"
    return ""


def _told(
    series: TrafficSeries, mine: Positions, made: spectrum.Features, found: list[cluster.Candidate]
) -> Skeleton:
    chosen = cluster.choose(found, made)
    stages = chosen.groups
    lag_s, period_s = parallelism.lags(mine.values, chosen.label, series.tick_s)
    stage = np.argsort(parallelism.in_order(lag_s, period_s))[chosen.label]
    layout = parallelism.regular(stage, stages)
    is_regular = series.ordered and _is_regular(layout, made, mine, chosen.size)
    stage = layout.stage if is_regular else stage
    haste = parallelism.own_haste(mine.values, stage, mine.noise)
    experts = parallelism.experts(haste, stage)
    seats = np.lexsort((experts.replica, experts.expert, stage))
    ranks = mine.rows[seats].reshape(stages, experts.ep, -1, mine.tp)
    findings = _Findings(
        found, chosen, is_regular, IRREGULAR if series.ordered else UNORDERED, made.rhythm,
        series.rate.shape[1] * series.tick_s / period_s,
        told_apart=experts.ep > 1 or chosen.size < 4 or not haste.share < TELLING,
    )  # fmt: skip
    confidence, lack = _confidence(findings)
    if confidence < CONFIDENT:
        return _basic(series, lack, confidence, found)
    made_of = assembled(series, ranks, matched=is_regular, period_s=period_s)
    return replace(made_of, confidence=confidence, reason=lack, candidates=tuple(found))


def _is_regular(
    layout: parallelism.Layout, made: spectrum.Features, mine: Positions, size: int
) -> bool:
    """Whether a layout may decide for the positions that the signal put elsewhere.

    It may not where two or more hosts clearly send what another stage sends: the hosts are in
    another order. One such host may be a straggler.
    """
    if size == 1:
        return layout.agreement == 1
    odd = parallelism.insisting(made.early, made.late, layout.stage)
    return layout.agreement >= REGULAR and len(np.unique(mine.host[odd])) <= STRAGGLERS


def _widened(
    series: TrafficSeries, mine: Positions, wide: Superset, exact: Skeleton | None, uneven: str
) -> Skeleton:
    """Return the superset, where it is certain and leaves pairs out; else what is less."""
    why = uneven or (exact.reason if exact is not None else "")
    basic = basic_edges(series.host, series.rail)
    edges = wide.edges(mine, basic)
    if wide.confidence < CONFIDENT or len(edges) == len(basic):
        lack = wide.lack or "pairs of groups that follow each other are all that there are"
        return exact or _basic(series, f"{why}; {lack}", min(wide.confidence, UNUSED))
    stage = wide.stage(mine)
    sure = wide.label != ANY
    named = [np.flatnonzero(stage == number).tolist() for number in range(len(wide.near))]
    return Skeleton(
        wide.confidence, f"all pairs between stages that follow each other: {why}",
        wide.size, len(wide.near), mine.tp, 1, {"stage": named}, edges,
        period_s=wide.period_s, stage=stage, superset=True, rows=mine.rows[sure],
    )  # fmt: skip


def assembled(
    series: TrafficSeries, ranks: Ints, *, matched: bool = True, period_s: float = 0.0
) -> Skeleton:
    """Return the skeleton of rows laid out as (stages, experts, replicas, tensor ranks).

    Without `matched`, it is unknown which members of two stages belong to one replica.
    """
    groups = {
        "dp": np.moveaxis(ranks, 2, -1),
        "pp": np.moveaxis(ranks, 0, -1),
        "ep": np.moveaxis(ranks, 1, -1),
    }
    edges = [
        cliques(groups[kind].reshape(-1, groups[kind].shape[-1]), series.host, series.rail)
        for kind in ("dp", "ep")
    ]
    edges.append(_chain(ranks, series, matched=matched))
    stages, experts, replicas, tensor = ranks.shape
    return Skeleton(
        1.0, "", replicas, stages, tensor, experts,
        {kind: _lists(rows) for kind, rows in groups.items()},
        unique_edges(edges), period_s=period_s, stage=stage_of(ranks),
    )  # fmt: skip


def stage_of(ranks: Ints) -> Ints:
    """Return (n_endpoints,) the stage of each row of a layout."""
    stage = np.empty(ranks.size, np.int64)
    stage[ranks.reshape(len(ranks), -1)] = np.arange(len(ranks))[:, None]
    return stage


@dataclass(frozen=True, slots=True)
class _Findings:
    """The inputs of the confidence."""

    found: Sequence[cluster.Candidate]
    chosen: cluster.Candidate
    is_regular: bool
    irregular: str
    """What to say where the layout is not regular."""
    rhythm: float
    periods: float
    told_apart: bool


def _chain(ranks: Ints, series: TrafficSeries, *, matched: bool) -> Ints:
    if matched:
        pairs = np.stack([ranks[:-1].ravel(), ranks[1:].ravel()], axis=1)
    else:
        # Replicas are unknown: take all pairs of neighbouring stages.
        one = ranks[:-1].reshape(len(ranks) - 1, -1)
        two = ranks[1:].reshape(len(ranks) - 1, -1)
        size = one.shape[1]
        pairs = np.stack([np.repeat(one, size, 1).ravel(), np.tile(two, (1, size)).ravel()], axis=1)
    return carried(pairs, series.host, series.rail)


def _lists(rows: Ints) -> list[list[int]]:
    size = rows.shape[-1]
    return np.sort(rows.reshape(-1, size), axis=1).tolist() if size > 1 else []


def _confidence(mine: _Findings) -> tuple[float, str]:
    """Return the confidence, and the reason that lowers it most; empty where none does."""
    chosen = mine.chosen
    others = [c.separation for c in mine.found if c.size != chosen.size]
    if chosen.groups > 1:
        separated = (chosen.separation - 0.5) / 0.35
    else:
        separated = (0.8 - max(others, default=0.0)) / 0.4
    parts = {
        "the groups are not well separated": separated,
        mine.irregular: 1.0 if mine.is_regular else 0.7,
        f"only {mine.periods:.1f} iterations were seen": mine.periods / parallelism.MIN_PERIODS,
        "the endpoints hardly share a rhythm": mine.rhythm / spectrum.SURE_RHYTHM,
        "replicas and experts cannot be told apart": 1.0 if mine.told_apart else 0.85,
    }
    confidence = math.prod(min(max(part, 0.0), 1.0) for part in parts.values())
    worst = min(parts, key=lambda part: parts[part])
    return confidence, "" if parts[worst] >= 1 else worst


def _basic(
    series: TrafficSeries,
    why: str,
    confidence: float = 0.0,
    found: Sequence[cluster.Candidate] = (),
) -> Skeleton:
    groups: dict[str, list[list[int]]] = {"dp": [], "pp": [], "ep": []}
    edges = basic_edges(series.host, series.rail)
    return Skeleton(confidence, why, 0, 0, 0, 0, groups, edges, tuple(found))
