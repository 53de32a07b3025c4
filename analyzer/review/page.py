# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file: no script, nothing from elsewhere, all that hosts said escaped."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from analyzer.review.report import Plain

HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>netagent report</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem;
  color: #1d232a; background: #fff }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.1rem; margin: 1.8rem 0 .4rem }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .2rem .8rem
  .2rem 0; border-bottom: 1px solid #dde2e8; overflow-wrap: anywhere }
td.n, th.n { text-align: right; white-space: nowrap } p.q { color: #5b6673; margin: .2rem 0 }
b.bar { display: inline-block; height: .6rem; background: #c0392b }
@media (prefers-color-scheme: dark) { body { color: #e6e9ed; background: #14181d }
  th, td { border-color: #333b45 } p.q { color: #9aa5b1 } }
</style></head><body>
"""
BAR_PX = 160
"""Pixels of the longest bar."""


def html_of(told: Plain) -> str:
    """Return the whole file."""
    return "".join((HEAD, *_body(told), "</body></html>\n"))


def _body(told: Plain) -> Iterator[str]:
    yield f"<h1>What the network did</h1><p class=q>{_when(told['since_ns'])} to "
    yield f"{_when(told['until_ns'])}, UTC</p>"
    counts = told["incidents"]
    yield "<h2>Incidents</h2>"
    yield _table(
        ("all", "active", "undecided", "masked", "called right", "called wrong", "not judged"),
        [[counts[name] for name in (
            "all", "active", "undecided", "masked", "called_right", "called_wrong", "not_judged",
        )]],
    )  # fmt: skip
    yield _table(("layer", "incidents"), counts["by_layer"].items())
    yield "<h2>Seconds</h2>"
    names = ("count", "least", "median", "p90", "most")
    yield _table(("", *names), [
        ("from what was seen first to a name", *_of(told["named_after_s"], names)),
        ("to the recovery", *_of(told["recovered_after_s"], names)),
    ])  # fmt: skip
    for title, rows, columns in (
        ("Parts at fault", told["parts"], ("component", "incidents", "seconds")),
        ("Tasks hit", told["tasks"], ("task", "incidents", "seconds")),
        ("Called wrong", told["called_wrong"], ("id", "said", "component", "note", "by")),
    ):
        yield f"<h2>{title}</h2>"
        yield _table(columns, (_of(row, columns) for row in rows))
    yield "<h2>Links that lost most</h2>"
    yield from _worst(told["worst"])
    yield "<h2>What was not watched</h2>"
    yield from _unwatched(told["unwatched"])


def _worst(rows: Sequence[Plain] | None) -> Iterator[str]:
    if rows is None:
        yield "<p class=q>It takes an administrator's certificate to read them.</p>"
        return
    most = max((row["share"] for row in rows), default=0) or 1
    yield "<table><tr><th>link<th class=n>sent<th class=n>lost<th class=n>share"
    yield "<th class=n>p99, us<th></tr>"
    for row in rows:
        width = round(BAR_PX * row["share"] / most)
        yield f"<tr><td>{_cell(row['component'])}<td class=n>{_cell(row['sent'])}"
        yield f"<td class=n>{_cell(row['lost'])}<td class=n>{row['share']:.4%}"
        p99_ns = row.get("rtt_p99_ns")
        yield f"<td class=n>{'-' if p99_ns is None else f'{p99_ns / 1e3:.1f}'}"
        yield f"<td><b class=bar style='width:{width}px'></b></tr>"
    said = (
        "Each lost probe counts on all links that it crossed, also on good ones. "
        "p99 of round trips is the longest of an hour."
        if rows
        else "none"
    )
    yield f"</table><p class=q>{said}</p>"


def _unwatched(told: Plain) -> Iterator[str]:
    if told["windows_share"] is not None:
        yield f"<p>{told['windows_share']:.1%} of the time no window was judged: "
        yield f"{told['windows_missed']} of {told['windows_expected']} windows"
        since_ns = told["windows_since_ns"]
        yield f", counted from {_when(since_ns)}.</p>" if since_ns is not None else ".</p>"
    elif told["windows_expected"] == 0:
        yield "<p>No window was judged so far that is on disk.</p>"
    yield f"<p>{_cell(told['unobserved_incidents'])} incidents are not measured any more.</p>"
    columns = ("what", "why", "count")
    yield _table(columns, (_of(row, columns) for row in told["unprobed_now"]))


def _of(row: Plain, names: Sequence[str]) -> list[Any]:
    return [row[name] for name in names]


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [list(row) for row in rows]
    if not lines:
        return "<p class=q>none</p>"
    head = "".join(
        f"<th{_align(value)}>{_cell(name)}" for name, value in zip(header, lines[0], strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f"<td{_align(each)}>{_cell(each)}" for each in row) + "</tr>"
        for row in lines
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _align(value: Any) -> str:
    return " class=n" if isinstance(value, int | float) else ""


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    return escape(str(value))


def _when(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M")
