# SPDX-License-Identifier: Apache-2.0
"""What one summary holds, decoded: what the diagnosis takes, and what the analyzer itself does.

Each is taken whole or refused whole.
"""

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
