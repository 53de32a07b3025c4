# SPDX-License-Identifier: Apache-2.0
"""All that one summary holds, decoded: taken whole, or refused whole."""

from dataclasses import dataclass

from analyzer.intake.flows import FlowNumbers, WindowRows
from analyzer.intake.paths import PathTable, paths_of
from analyzer.intake.reports import Report, report_of
from analyzer.intake.traffic import Traffic, traffic_of
from netagent.model.errors import RemoteProtocolError
from netagent.wire.messages import Summary


@dataclass(frozen=True, slots=True)
class Taken:
    """A summary, decoded."""

    rows: WindowRows
    paths: PathTable
    report: Report
    traffic: tuple[Traffic, ...]


def take(summary: Summary, numbers: FlowNumbers, *, width_ns: int) -> Taken:
    """Return the decoded `summary`; `width_ns` is the width of all windows of this analyzer.

    Raises RemoteProtocolError where any part of it makes no sense. Then nothing is taken, except
    that its flows may have got numbers.
    """
    if summary.width_ns != width_ns or summary.start_ns % width_ns:
        raise RemoteProtocolError(
            f"window {summary.start_ns} of {summary.width_ns} ns; here all windows are of "
            f"{width_ns} ns and aligned: set window_s alike"
        )
    report, traffic = report_of(summary), tuple(traffic_of(summary))
    paths = paths_of(summary)
    return Taken(numbers.decode(summary), paths, report, traffic)
