# SPDX-License-Identifier: Apache-2.0
"""What an agent reports about itself and its RNICs in a window, for people to read."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.intake.windows import AHEAD_NS
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.wire.columns import unpack
from netagent.wire.messages import CounterColumns, Health, SummaryHead

STAMPS = ("kernel", "process", "rnic")
"""Names of who takes the stamps t2 and t5, by the number in `Summary.stamps`. A larger number marks
an endpoint of another host."""
MAX_COUNTERS, MAX_STAMPS, MAX_NAME = 4096, 4096, 255
"""Most counters, own endpoints, and characters of a device or counter. Chosen: eight times those
that agents send, and as many as may be registered; bounds what one host has kept and told of it."""


@dataclass(frozen=True, slots=True)
class Report:
    """An agent's report on one window of its host."""

    start_ns: int
    health: Health
    counters: Mapping[str, Mapping[str, int]]
    """RDMA device -> counter -> its increase in the window."""
    omitted: int
    """Number of counters that the agent left out; it leaves out the least important ones."""
    stamps: Mapping[EndpointId, str]
    """The host's own endpoints -> one of `STAMPS`."""


FORGET_NS = 600_000_000_000
"""Nanoseconds after which the report of a silent agent is forgotten. Chosen: minutes after its
incident opened."""


class Reports:
    """The newest report of each agent."""

    def __init__(self) -> None:
        self._newest: dict[str, Report] = {}

    def take(self, host: str, report: Report, now_ns: int) -> None:
        """Keep a report, unless a newer one is known, or its clock is ahead."""
        known = self._newest.get(host)
        if report.start_ns > now_ns + AHEAD_NS:
            return
        # One of the future is of a clock that went back since.
        if known is None or not report.start_ns < known.start_ns <= now_ns:
            self._newest[host] = report

    def of(self, host: str) -> Report | None:
        """Return the newest report of the agent of `host`; None without one."""
        return self._newest.get(host)

    def forget(self, now_ns: int) -> None:
        """Drop what is old."""
        self._newest = {
            host: report
            for host, report in self._newest.items()
            if report.start_ns > now_ns - FORGET_NS
        }


def report_of(summary: SummaryHead) -> Report:
    """Return what `summary` reports; RemoteProtocolError where its columns do not agree."""
    if summary.stamps and len(summary.stamps) != len(summary.endpoints):
        raise RemoteProtocolError(
            f"{len(summary.stamps)} stamps for {len(summary.endpoints)} endpoints"
        )
    if (own := sum(number < len(STAMPS) for number in summary.stamps)) > MAX_STAMPS:
        raise RemoteProtocolError(f"{own} endpoints of one host; {MAX_STAMPS} at most")
    stamps = {
        endpoint: STAMPS[number]
        for endpoint, number in zip(summary.endpoints, summary.stamps, strict=False)
        if number < len(STAMPS)
    }
    counters = summary.counters
    return Report(summary.start_ns, summary.health, _grown(counters), counters.omitted, stamps)


def _grown(columns: CounterColumns) -> dict[str, dict[str, int]]:
    if max(map(len, (*columns.devices, *columns.counters)), default=0) > MAX_NAME:
        raise RemoteProtocolError(f"a counter's name of more than {MAX_NAME} characters")
    if (count := len(columns.device) // 2) > MAX_COUNTERS:
        raise RemoteProtocolError(f"{count} counters of one host; {MAX_COUNTERS} at most")
    grown: dict[str, dict[str, int]] = defaultdict(dict)
    rows = (unpack(columns, name) for name in ("device", "counter", "delta"))
    try:
        for device, counter, delta in zip(*rows, strict=True):
            grown[columns.devices[device]][columns.counters[counter]] = delta
    except (IndexError, ValueError) as error:
        raise RemoteProtocolError(f"counter columns do not agree: {error}") from error
    return dict(grown)
