# SPDX-License-Identifier: Apache-2.0
"""Windows of given round trips, as an agent sends them."""

from collections.abc import Iterable, Mapping

from analyzer.intake.few import filled
from analyzer.intake.flows import FlowNumbers, WindowRows
from netagent.collect.windows import WindowTally
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.probing.session import ProbeMeasured
from netagent.wire.messages import Health, Summary

A, B = EndpointId("a", 0), EndpointId("b", 0)
WIDTH_NS = 5_000_000_000


def flow(port: int = 1) -> FlowId:
    return FlowId(A, B, port)


def summary(trips: Mapping[FlowId, Iterable[float]], start_ns: int = 0) -> Summary:
    """Return the summary of a window; `trips` is flow -> round trips in ns."""
    tally = WindowTally(large_class=0)
    for each, rtts_ns in trips.items():
        for seq, rtt_ns in enumerate(rtts_ns):
            tally.add(ProbeMeasured(each, seq, round(rtt_ns), 0, 0))
    return tally.close(
        Window(start_ns, WIDTH_NS), host="h", instance="i", findings=(), health=Health()
    )


def window(
    numbers: FlowNumbers, trips: Mapping[FlowId, Iterable[float]], start_ns: int = 0
) -> WindowRows:
    """Return the same as rows of `numbers`."""
    return filled(numbers.decode(summary(trips, start_ns)))
