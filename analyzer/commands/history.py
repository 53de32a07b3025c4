# SPDX-License-Identifier: Apache-2.0
"""Show what a component or a pair lost, minute by minute or hour by hour."""

import argparse
import csv
import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from analyzer.commands import connection
from analyzer.commands.connection import Connection, Refused
from analyzer.commands.instants import FORMS, UNITS_NS, instant_of
from analyzer.commands.text import COLUMNS, cut, instant, table
from netagent.model.errors import ConfigError
from netagent.model.path import Component, Kind, link, link_ends

EPILOG = """\
examples:
  netagent-analyzer history 'link leaf-1 -- spine-2'
  netagent-analyzer history train-a-0/rail0 train-a-1/rail0 --since 2h
  netagent-analyzer history --endpoint train-a-0/rail0 --since 7d
  netagent-analyzer history 'switch spine-2' --since 2026-11-01 \\
      --until 2026-11-02 --csv > spine-2.csv

What is asked for may also be named by --component, --source and --target.
A row is a minute; where more than six hours are asked for, it is an hour.
--tier chooses. LOST % is of the probes sent; a component counts those whose
way there and back is known. The mean of round trips is the geometric one, P50,
P90 and P99 are within 4 %; of several pairs they are of all round trips, and
for minutes of the last day only. W is how many windows were judged: 12 of a
minute, 720 of an hour, less where the analyzer was away. The newest minute is
there some twenty seconds after its end. It needs an admin's certificate.

exit status: 0 something is known; 1 nothing is; 2 usage; 3 the analyzer cannot
be reached
"""

HOURS_NS = 6 * UNITS_NS["h"]
"""Nanoseconds from which on hours are shown. Chosen: 360 minutes are some screens."""
WORST = 5
"""Most pairs named below the table. Chosen: they fit a screen."""
LIMIT = 10_000
"""Rows asked for at once."""
READING_S = 60.0
"""Seconds that the analyzer may take for a page. Chosen: a month of minutes is read in that."""
UNKNOWN = 404
QUANTILES = ("rtt_p50_ns", "rtt_p90_ns", "rtt_p99_ns")
BARS = " ▁▂▃▄▅▆▇█"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    text = "a component, KIND NAME; or an endpoint, or two: source and target"
    parser.add_argument("of", metavar="WHAT", nargs="*", help=text)
    parser.add_argument("--component", metavar="NAME", help="as incidents name it: KIND NAME")
    parser.add_argument("--endpoint", metavar="A", help="pairs with this end: CONTAINER/railN")
    parser.add_argument("--source", metavar="A", help="pairs that probe from here")
    parser.add_argument("--target", metavar="B", help="pairs that probe this")
    parser.add_argument("--since", metavar="T", default="1h", help=f"{FORMS} (default: 1h)")
    parser.add_argument("--until", metavar="T", help="likewise (default: now)")
    parser.add_argument("--tier", choices=("minute", "hour"), help="what a row stands for")
    parser.add_argument("--csv", action="store_true", help="print all rows as CSV")
    parser.add_argument("--plot", metavar="PNG", help="draw losses and round trips to a file")
    connection.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print history."""
    asked = query(args, now_ns=time.time_ns())
    with Connection(args) as analyzer:
        pages = _pages(analyzer, asked)
        if args.csv:
            return 0 if _write_csv(row for each in pages for row in each["rows"]) else 1
        if args.json:
            return _print_json(pages)
        told = Told()
        for each in pages:
            told.add(each)
        if len(told.pairs) > 1:
            told.add_quantiles(_together(analyzer, asked))
    for line in report(told):
        print(line)
    if args.plot and told.times:
        _plot(args.plot, _title(asked), told)
    return 0 if told.times else 1


def query(args: argparse.Namespace, *, now_ns: int) -> dict[str, str | int | None]:
    """Return what to ask the analyzer for. Raises ConfigError."""
    until_ns = instant_of(args.until, "--until", now_ns=now_ns) if args.until else None
    since_ns = instant_of(args.since, "--since", now_ns=now_ns)
    if since_ns >= (until_ns or now_ns):
        raise ConfigError("--since, --until", "ask for some time that is over")
    named = _named(args)
    if not any(named.values()):
        raise ConfigError("history", "name a component, an endpoint, or a source and a target")
    tier = args.tier or ("minute" if (until_ns or now_ns) - since_ns <= HOURS_NS else "hour")
    return {
        **named, "since_ns": since_ns, "until_ns": until_ns, "tier": tier,
    }  # fmt: skip


def _named(args: argparse.Namespace) -> dict[str, str | None]:
    """Return what is asked for, by options or without them. Raises ConfigError."""
    options = ("component", "endpoint", "source", "target")
    named: dict[str, str | None] = {name: getattr(args, name) for name in options}
    if named["component"]:
        named["component"] = _component(named["component"])
    if not args.of:
        return named
    if any(named.values()):
        raise ConfigError("history", f"{args.of[0]!r} beside options: name it one way")
    if len(args.of) == 2:
        return named | {"source": args.of[0], "target": args.of[1]}
    if len(args.of) > 2:
        raise ConfigError("history", "a component of several words wants quotes: 'link a -- b'")
    if " " not in args.of[0]:
        return named | {"endpoint": args.of[0]}
    return named | {"component": _component(args.of[0])}


def _component(text: str) -> str:
    """Return a component as incidents name it; of a link either end may come first."""
    try:
        found = Component.parse(text)
        return str(link(*link_ends(found)) if found.kind is Kind.LINK else found)
    except ValueError as error:
        raise ConfigError(
            "history", f"{error}, as `netagent-analyzer incidents` names it"
        ) from error


def _pages(analyzer: Connection, asked: dict[str, str | int | None]) -> Iterator[dict[str, Any]]:
    after = None
    while True:
        answer = analyzer.get("/v1/history", wait_s=READING_S, after=after, limit=LIMIT, **asked)
        yield answer
        after = answer["next"]
        if after is None:
            return


def _together(analyzer: Connection, asked: dict[str, str | int | None]) -> Iterable[dict[str, Any]]:
    """Return all pairs that were asked for as one, by time; nothing of an analyzer of before."""
    try:
        rows: list[dict[str, Any]] = analyzer.get(
            "/v1/history/together", wait_s=READING_S, **asked
        )["rows"]
    except Refused as error:
        if error.status != UNKNOWN:
            raise
        return []
    return rows


def _write_csv(rows: Iterable[dict[str, Any]]) -> int:
    """Print rows; return how many."""
    count, writer = 0, None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(sys.stdout, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)
        count += 1
    return count


def _print_json(pages: Iterable[dict[str, Any]]) -> int:
    whole: dict[str, Any] = {}
    for each in pages:
        if whole:
            whole["rows"] += each["rows"]
            whole["damaged"] += each["damaged"]
        else:
            whole = {name: value for name, value in each.items() if name != "next"}
    print(json.dumps(whole, indent=2))
    return 0 if whole["rows"] else 1


# --- for people ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Sums:
    """What was told of a time, or of a pair."""

    sent: int = 0
    lost: int = 0
    count: int = 0
    ln: float = 0.0
    """Sum of ln(ns) of the round trips."""
    most_ns: int = 0
    quantiles_ns: tuple[int | None, ...] = (None,) * len(QUANTILES)
    """As QUANTILES names them; None where they are not known, as of several rows."""
    windows: int = 0
    rows: int = 0

    def add(self, row: dict[str, Any]) -> None:
        """Add a row."""
        self.sent += row["sent"]
        self.lost += row["lost"]
        self.windows = max(self.windows, row["windows"])
        self.quantiles_ns = (None,) * len(QUANTILES) if self.rows else quantiles_of(row)
        self.rows += 1
        if row["rtt_count"]:
            self.most_ns = max(self.most_ns, row.get("rtt_max_ns", 0))
            self.count += row["rtt_count"]
            self.ln += row["rtt_count"] * math.log(max(1, row["rtt_mean_ns"]))

    @property
    def share(self) -> float:
        """Share of the probes that were lost."""
        return self.lost / self.sent if self.sent else 0.0

    @property
    def mean_us(self) -> float:
        """Geometric mean of the round trips, microseconds, as that of each row is."""
        return math.exp(self.ln / self.count) / 1e3 if self.count else 0.0


def quantiles_of(row: dict[str, Any]) -> tuple[int | None, ...]:
    """Return a row's quantiles; None for each that an analyzer of before does not tell."""
    return tuple(row.get(name) for name in QUANTILES)


@dataclass(slots=True)
class Told:
    """All rows, by time and by pair."""

    times: dict[int, Sums] = field(default_factory=dict)
    pairs: dict[tuple[str, str], Sums] = field(default_factory=dict)
    damaged: int = 0

    def add(self, page: dict[str, Any]) -> None:
        """Add a page."""
        self.damaged += page["damaged"]
        for row in page["rows"]:
            self.times.setdefault(row["start_ns"], Sums()).add(row)
            if "source" in row:
                self.pairs.setdefault((row["source"], row["target"]), Sums()).add(row)

    def add_quantiles(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add quantiles of all pairs together, by time."""
        for row in rows:
            if row["start_ns"] in self.times:
                self.times[row["start_ns"]].quantiles_ns = quantiles_of(row)


def report(told: Told) -> Iterator[str]:
    """Yield a line for each time, and what loses most."""
    if not told.times:
        yield "nothing is known of it in that time, or of that name: `netagent-analyzer"
        yield "incidents` names components, `netagent-analyzer endpoints` names endpoints"
    else:
        header = (
            "FROM (UTC)", "SENT", "LOST", "LOST %", "P50 us", "P90 us", "P99 us", "MAX us", "W",
        )  # fmt: skip
        yield from table(header, (_row(at, each) for at, each in told.times.items()))
        yield ""
        yield _spark("lost ", [each.share for each in told.times.values()], "{:.3%}")
        yield _spark("mean ", [each.mean_us for each in told.times.values()], "{:.1f} us")
        p99_us = [(each.quantiles_ns[-1] or 0) / 1e3 for each in told.times.values()]
        if any(p99_us):
            yield _spark("p99  ", p99_us, "{:.1f} us")
        if not told.pairs:
            yield "(what was lost elsewhere on the same ways counts, too; `incidents` says where)"
    yield from _worst(told)
    if told.damaged:
        yield f"{told.damaged} files are damaged and were left out; the log names them"


def _row(start_ns: int, sums: Sums) -> tuple[object, ...]:
    def us(ns: float | None) -> str:
        return f"{ns / 1e3:.1f}" if ns else "-"

    return (
        instant(start_ns)[:16], sums.sent, sums.lost, f"{100 * sums.share:.3f}",
        *map(us, sums.quantiles_ns), us(sums.most_ns), sums.windows,
    )  # fmt: skip


def _spark(name: str, values: Sequence[float], form: str) -> str:
    """Return a line of bars, the largest of several where they are too many."""
    width = COLUMNS - 24
    size = -(-len(values) // width)
    tops = [max(values[n : n + size]) for n in range(0, len(values), size)]
    most = max(tops)
    bars = "".join(BARS[round(each / most * (len(BARS) - 1)) if most else 0] for each in tops)
    return f"{name}|{bars}| most {form.format(most)}"


def _worst(told: Told) -> Iterator[str]:
    lossy = [(pair, sums) for pair, sums in told.pairs.items() if sums.lost]
    if len(told.pairs) < 2 or not lossy:
        return
    yield ""
    yield f"{len(lossy)} of {len(told.pairs)} pairs lost probes; most of them:"
    for (source, target), sums in sorted(lossy, key=lambda each: -each[1].lost)[:WORST]:
        yield cut(f"  {sums.lost} of {sums.sent}  {source} -> {target}")


def _title(asked: dict[str, str | int | None]) -> str:
    names = ("component", "endpoint", "source", "target")
    return ", ".join(f"{name} {asked[name]}" for name in names if asked[name])


def _plot(path: str, title: str, told: Told) -> None:
    from analyzer.commands.plot import draw_history  # noqa: PLC0415 - it needs numpy

    times = list(told.times.values())
    lines_us = {"mean": [each.mean_us or None for each in times]}
    for n, name in enumerate(("p50", "p90", "p99")):
        known = [each.quantiles_ns[n] for each in times]
        if any(known):
            lines_us[name] = [None if ns is None else ns / 1e3 for ns in known]
    draw_history(path, title, list(told.times), [100 * each.share for each in times], lines_us)
