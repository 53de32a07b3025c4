# SPDX-License-Identifier: Apache-2.0
"""Which outer flows are traced; what is sent and heard needs the lab."""

from types import SimpleNamespace

import pytest

from netagent.adapters.paths import tracer as module
from netagent.adapters.paths.tracer import FORGET_EVERY_NS, STALE_NS, Tracer
from netagent.config import TraceConfig
from netagent.model.ids import EndpointId, FlowId
from netagent.probing.paths import OuterFlow
from netagent.wire.frame import Frame

FLOW = FlowId(EndpointId("a", 0), EndpointId("b", 0), 40000)
OUTER = [OuterFlow("198.18.0.1", "198.18.0.2", port) for port in (50000, 50001)]


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(ns=10 * STALE_NS)
    monkeypatch.setattr(module, "now_ns", lambda: now.ns)
    monkeypatch.setattr(Tracer, "_exchange", lambda tracer, at_ns: None)
    return now


def saw(tracer, outer, clock):
    tracer._saw(SimpleNamespace(outer=outer, frame=Frame(1, 2)), clock.ns)


def traced(tracer):
    tracer.step()
    return set(tracer._paths._traces)


def test_the_outer_flow_seen_last_is_traced_until_it_is_stale(clock):
    tracer = Tracer(TraceConfig(), lambda sighting: FLOW)
    assert traced(tracer) == set()
    saw(tracer, OUTER[0], clock)
    assert traced(tracer) == {OUTER[0]}
    saw(tracer, OUTER[1], clock)
    assert traced(tracer) == {OUTER[1]}
    clock.ns += STALE_NS - FORGET_EVERY_NS
    assert traced(tracer) == {OUTER[1]}
    saw(tracer, OUTER[1], clock)
    clock.ns += STALE_NS - FORGET_EVERY_NS
    assert traced(tracer) == {OUTER[1]}
    clock.ns += FORGET_EVERY_NS
    assert traced(tracer) == set()
    assert tracer.of_flow(FLOW) is None


def test_what_is_known_of_flows_that_ended_does_not_add_up(clock, monkeypatch):
    flows = [FlowId(FLOW.source, FLOW.target, port) for port in range(40000, 40020)]
    now = SimpleNamespace(flow=FLOW)
    tracer = Tracer(TraceConfig(), lambda sighting: now.flow)
    monkeypatch.setattr(tracer._paths, "hops", lambda outer: ("10.0.0.1",))
    for now.flow in flows:
        saw(tracer, OUTER[0], clock)
        tracer.step()
        assert tracer.traced()
        clock.ns += STALE_NS // 2
    assert len(tracer._outer) == len(tracer._longest) == 2


def test_a_flow_that_nobody_wants_is_traced_no_more(clock):
    tracer = Tracer(TraceConfig(), lambda sighting: FLOW)
    saw(tracer, OUTER[0], clock)
    tracer.keep(lambda flow: flow != FLOW)
    assert traced(tracer) == set()
