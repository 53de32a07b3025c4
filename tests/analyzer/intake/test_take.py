# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from msgspec import structs

from analyzer.intake.flows import FlowNumbers
from analyzer.intake.take import keep, take, take_all
from netagent.collect.paths import PathsToSay, TracedPath
from netagent.collect.windows import WindowTally
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId, FlowId
from netagent.model.window import Window
from netagent.probing.session import ProbeReplied
from netagent.wire.messages import CounterColumns, Health, TrafficBlock

WIDTH_NS = 5_000_000_000
FLOW = FlowId(EndpointId("a", 0), EndpointId("b", 0), 40000)


def summary(**changes):
    tally = WindowTally(large_class=2)
    tally.add(ProbeReplied(FLOW, 1, 0))
    path = TracedPath(FLOW, reply=False, outer_port=1, hops=("leaf",))
    made = tally.close(
        Window(0, WIDTH_NS), host="h0", instance="i", findings=(), health=Health(),
        paths=PathsToSay((path,)),
    )  # fmt: skip
    return structs.replace(made, **changes)


def taken(message):
    return take(message, FlowNumbers(), width_ns=WIDTH_NS)


def kept(message):
    return keep(message, width_ns=WIDTH_NS)


def test_a_summary_is_decoded_for_the_diagnosis_and_for_the_analyzer():
    rows, paths = (whole := taken(summary())).rows, whole.paths
    assert rows.sent.tolist() == [1]
    assert [row.hops for row in paths.rows(np.arange(1))] == [("leaf",)]
    assert (kept(summary()).report.start_ns, kept(summary()).traffic) == (0, ())


@pytest.mark.parametrize("take_of", [taken, kept])
@pytest.mark.parametrize("change", [{"width_ns": 1}, {"start_ns": 1}])
def test_a_window_of_another_width_is_refused(take_of, change):
    with pytest.raises(RemoteProtocolError, match="set window_s alike"):
        take_of(summary(**change))


@pytest.mark.parametrize(
    "change",
    [
        {"stamps": b"\0" * 9},
        {"counters": CounterColumns(device=b"\1\0")},
        {"traffic": (TrafficBlock(start_ns=0, tick_ns=1),)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_makes_no_sense_to_the_analyzer_is_refused_whole(change):
    with pytest.raises(RemoteProtocolError):
        kept(summary(**change))


def test_what_makes_no_sense_to_the_diagnosis_is_refused_whole():
    with pytest.raises(RemoteProtocolError):
        taken(summary(endpoints=()))


def test_taken_together_they_are_what_each_is_alone():
    numbers, every = FlowNumbers(), [summary(host=f"h{n}") for n in range(2)]
    assert take_all(every, numbers, width_ns=WIDTH_NS) == [None, None]
    for each in every:
        take(each, numbers, width_ns=WIDTH_NS)
    known, none, odd = take_all(
        [every[0], summary(host="h3"), summary(host="h1", start_ns=1)], numbers, width_ns=WIDTH_NS
    )
    assert (none, odd) == (None, None)
    expected = take(every[0], numbers, width_ns=WIDTH_NS)
    assert known.rows.sent.tolist() == expected.rows.sent.tolist() == [1]
    assert known.rows.flow.tolist() == expected.rows.flow.tolist()
    assert known.paths.rows(np.arange(1)) == expected.paths.rows(np.arange(1))
