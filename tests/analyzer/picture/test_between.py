# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given

from analyzer.picture import between as module
from analyzer.picture.asked import Between
from analyzer.picture.between import between
from netagent.model.ids import EndpointId
from tests.analyzer.picture.scenes import (
    ENDPOINTS,
    PORTS,
    Flow,
    flows,
    mean_ns,
    quantile,
    scene_of,
    whole,
)


@given(flows)
def test_a_pair_is_its_flows_and_each_flow_its_port(window):
    scene = scene_of(window)
    for source, target in {(f.source, f.target) for f in window}:
        asked = Between(source=ENDPOINTS[source].id, target=ENDPOINTS[target].id)
        drawn, mine = (
            between(scene, asked),
            [f for f in window if (f.source, f.target) == (source, target)],
        )
        trips = [t for f in mine for t in f.trips]
        assert (drawn["sent"], drawn["lost"]) == (
            sum(f.sent for f in mine),
            sum(f.lost for f in mine),
        )
        for name, share in (("p50_ns", 0.5), ("p95_ns", 0.95), ("p99_ns", 0.99)):
            expected = quantile(trips, share)
            assert drawn[name] is expected is None or drawn[name] == pytest.approx(
                expected, rel=0.011
            )
        if trips:
            assert drawn["rtt"]["network_ns"] == pytest.approx(mean_ns(trips), abs=1)
            assert drawn["rtt"]["prober_ns"] == 100 + source
            assert drawn["rtt"]["responder_ns"] == 200 + target
        else:
            assert drawn["rtt"] is None
        ports = {each["port"]: each for each in drawn["ports"]}
        assert ports.keys() == {f.port for f in mine}
        for flow in mine:
            each = ports[flow.port]
            assert (each["sent"], each["lost"]) == (flow.sent, flow.lost)
            ways = [whole(window, flow, reply=reply) for reply in (False, True)]
            assert [each["path"], each["back"]] == [list(w) if w else None for w in ways]


def test_of_a_pair_that_nobody_probes_nothing_is_known():
    scene = scene_of([Flow(0, 2, PORTS[0], 0, (1_000,), (0, 0))])
    for target in (ENDPOINTS[4].id, EndpointId("nobody", 0)):
        drawn = between(scene, Between(source=ENDPOINTS[0].id, target=target))
        assert (drawn["sent"], drawn["rtt"], drawn["p99_ns"], drawn["ports"]) == (0, None, None, [])


def test_who_may_not_see_the_pair_is_told_of_no_probe():
    scene = scene_of([Flow(0, 2, PORTS[0], 0, (1_000,), (0, 0))])
    ends = {"source": ENDPOINTS[0].id, "target": ENDPOINTS[2].id}
    assert between(scene, Between(**ends, tasks=("t0",)))["sent"] == 1
    assert between(scene, Between(**ends, tasks=("t1",)))["sent"] == 0


def test_more_ports_than_are_told_are_counted(monkeypatch):
    monkeypatch.setattr(module, "MAX_PORTS", 1)
    window = [Flow(0, 2, port, 0, (1_000,), (0, 0)) for port in PORTS]
    drawn = between(scene_of(window), Between(source=ENDPOINTS[0].id, target=ENDPOINTS[2].id))
    assert (len(drawn["ports"]), drawn["ports_omitted"], drawn["sent"]) == (1, 1, 2)
