# SPDX-License-Identifier: Apache-2.0
"""How a host's flows differ from what the rows of both databases ask for, bounded."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeVar

from analyzer.controllers.messages import (
    MOST_DIFFERENT,
    MOST_MATCH,
    AskDifference,
    Differences,
    FewerFlows,
    MissingFlow,
    MissingPort,
    StaleFlows,
    UnclearFlow,
)
from analyzer.intent.bindings import held
from analyzer.intent.earlier import Earlier, state_of
from analyzer.intent.logical import LogicalFlow, difference
from analyzer.intent.selected import Selected

_T = TypeVar("_T")


def differences(
    rows: Selected, asked: AskDifference, earlier: Earlier, now_s: float
) -> Differences:
    """Return how the flows of a chassis differ from what rows of both databases ask for."""
    host = rows.host(asked.chassis)
    installed = Counter((cookie, metadata) for _, cookie, metadata in asked.installed)
    flows = Counter(cookie for _, cookie, _ in asked.installed)
    tables: defaultdict[int, set[int]] = defaultdict(set)
    cookies: defaultdict[int, set[int]] = defaultdict(set)
    for table, cookie, _ in asked.installed:
        tables[cookie].add(table)
        cookies[table].add(cookie)
    explainer = rows.explainer()
    places = {explainer.place_of(found): table for table, found in cookies.items()}
    found = difference(rows.flows, host, installed, rows.others)
    ports = held(rows.bindings, host, asked.chassis, tables, asked.kinds, asked.moving)
    logical = {each.cookie for each in rows.flows if each.datapaths & host.datapaths.keys()}
    there = {
        key: cookie
        for key, (_, cookie, _) in zip(asked.keys, asked.installed, strict=False)
        if key and cookie in logical
    }
    gone = earlier.gone(asked.chassis, state_of(rows, host), there, now_s)
    missing = {each.cookie for each in found.missing}
    fewer = sorted((cookie, counts) for cookie, counts in gone.items() if cookie not in missing)
    lists: tuple[Sequence[object], ...] = (
        found.missing, fewer, ports.lacking, found.stale, found.unclear,
    )  # fmt: skip
    return Differences(
        query=asked.query,
        missing=tuple(_missing(each, rows, places) for each in _some(found.missing)),
        fewer=tuple(
            FewerFlows(
                cookie=flow.cookie,
                stage=flow.stage,
                match=flow.match[:MOST_MATCH],
                owner=rows.owner(flow),
                had=had,
                has=has,
            )
            for cookie, (had, has) in _some(fewer)
            if (flow := explainer.flows.get(cookie)) is not None
        ),
        ports=tuple(
            MissingPort(port=e.port, cookie=e.cookie, tables=e.tables, is_here=e.is_here)
            for e in _some(ports.lacking)
        ),
        stale=tuple(
            StaleFlows(cookie=each, tables=tuple(sorted(tables[each])), flows=flows[each])
            for each in _some(found.stale)
        ),
        unclear=tuple(
            UnclearFlow(
                cookie=each.cookie,
                stage=each.stage,
                match=each.match[:MOST_MATCH],
                owner=rows.owner(each),
            )
            for each in _some(found.unclear)
        ),
        more=sum(max(0, len(each) - MOST_DIFFERENT) for each in lists),
        compared=found.compared,
        compared_ports=ports.compared,
        several=len({c for (c, _), count in installed.items() if count > 1 and c in logical}),
        is_remembered=earlier.remembers(asked.chassis),
        alone=len(ports.alone),
    )


def _missing(
    flow: LogicalFlow, rows: Selected, places: Mapping[tuple[str, int] | None, int]
) -> MissingFlow:
    return MissingFlow(
        cookie=flow.cookie,
        stage=flow.stage,
        pipeline=flow.pipeline,
        logical_table=flow.table,
        table=places.get((flow.pipeline, flow.table), -1),
        priority=flow.priority,
        match=flow.match[:MOST_MATCH],
        networks=tuple(sorted(flow.datapaths)),
        owner=rows.owner(flow),
    )


def _some(found: Sequence[_T]) -> Sequence[_T]:
    return found[:MOST_DIFFERENT]
