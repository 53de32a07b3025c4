# SPDX-License-Identifier: Apache-2.0
"""Samples of what the judge says: what windows add up to."""

from collections.abc import Iterator

from analyzer.history.figures import Group, Told
from analyzer.server.metrics.families import Buckets, Row

Family = tuple[str, list[Row]]


def judged(told: Told, *, age_ns: int, wall_ns: int) -> Iterator[Family]:
    """Yield families without their prefix, each with its samples; `told` is `age_ns` old."""
    groups = [(_labels(group), group) for group in told.groups]
    yield "rtt_seconds", [(at, Buckets(each.buckets, each.sum_s)) for at, each in groups]
    yield "probes_sent_total", [(at, float(each.sent)) for at, each in groups]
    yield "probes_lost_total", [(at, float(each.lost)) for at, each in groups]
    yield "round_seconds", [(at, each.round_s) for at, each in groups]
    yield "flows", [((), float(told.flows))]
    yield "flows_path_unknown", [((), float(told.unknown_paths))]
    yield "findings", [((kind,), float(count)) for kind, count in sorted(told.findings.items())]
    yield "windows_judged_total", [((), float(told.windows))]
    yield "history_lost_total", [((), float(told.history.get("minutes_lost", 0)))]
    if told.newest_end_ns:
        age_s = max(0, wall_ns - told.newest_end_ns) / 1e9
        yield "window_age_seconds", [((), age_s)]
    yield "figures_age_seconds", [((), age_ns / 1e9)]


def _labels(group: Group) -> tuple[str, str, str]:
    return group.task, group.source, group.target
