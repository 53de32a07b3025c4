# SPDX-License-Identifier: Apache-2.0
"""What one summary holds, decoded: what the diagnosis takes, and what the analyzer itself does.

Each is taken whole or refused whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.intake.flows import FlowNumbers, WindowRows
from analyzer.intake.paths import PathTable, paths_of
from analyzer.intake.reports import Report, report_of
from analyzer.intake.traffic import Traffic, traffic_of
from netagent.model.errors import RemoteProtocolError
from netagent.wire.messages import Summary, SummaryHead


@dataclass(frozen=True, slots=True)
class Taken:
    """What the diagnosis takes of a summary."""

    rows: WindowRows
    paths: PathTable


@dataclass(frozen=True, slots=True)
class Kept:
    """What the analyzer itself takes of a summary."""

    report: Report
    traffic: tuple[Traffic, ...]


def take(summary: Summary, numbers: FlowNumbers, *, width_ns: int) -> Taken:
    """Return what the diagnosis takes of `summary`; all windows here are `width_ns` wide.

    Raises RemoteProtocolError where any part of it makes no sense. Then nothing is taken, except
    that its flows may have got numbers.
    """
    _check_width(summary, width_ns)
    paths = paths_of(summary)
    return Taken(numbers.decode(summary), paths)


def take_all(
    summaries: Sequence[Summary], numbers: FlowNumbers, *, width_ns: int
) -> list[Taken | None]:
    """Return what `take` does of each, at a part of its cost; None of whom it has to look at."""
    paths = [_paths_if_any(each, width_ns) for each in summaries]
    sound = [n for n, each in enumerate(paths) if each is not None]
    found: list[Taken | None] = [None] * len(summaries)
    for n, rows in zip(sound, numbers.decode_all([summaries[n] for n in sound]), strict=True):
        mine = paths[n]
        if rows is not None and mine is not None:
            found[n] = Taken(rows, mine)
    return found


def _paths_if_any(summary: Summary, width_ns: int) -> PathTable | None:
    try:
        _check_width(summary, width_ns)
        return paths_of(summary)
    except RemoteProtocolError:
        return None  # `take` says what is wrong


def keep(summary: SummaryHead, *, width_ns: int) -> Kept:
    """Return what the analyzer itself takes of `summary`; all windows here are `width_ns` wide.

    Raises RemoteProtocolError where any part of it makes no sense.
    """
    _check_width(summary, width_ns)
    return Kept(report_of(summary), tuple(traffic_of(summary)))


def _check_width(summary: SummaryHead, width_ns: int) -> None:
    if summary.width_ns != width_ns or summary.start_ns % width_ns:
        raise RemoteProtocolError(
            f"window {summary.start_ns} of {summary.width_ns} ns; here all windows are of "
            f"{width_ns} ns and aligned: set window_s alike"
        )
