# SPDX-License-Identifier: Apache-2.0
import numpy as np

from analyzer.detect.latency.floors import FACTOR, SHIFT_NS, Floor, Floors, Sensitivity
from analyzer.intake.flows import FlowNumbers
from netagent.model.endpoint import Endpoint
from netagent.model.ids import EndpointId, FlowId


def endpoint(container, task):
    return Endpoint(
        EndpointId(container, 0), task, "h", "10.0.0.1", "", "172.16.0.1", "r0", "br-int", "p"
    )


A, B = endpoint("a", "mine"), endpoint("b", "other")
KNOWN = {A.id: A, B.id: B}


def numbered(count=2):
    numbers = FlowNumbers()
    ends = [(A, B), (B, A)] * count
    flow = [numbers.number(FlowId(a.id, b.id, n)) for n, (a, b) in enumerate(ends)]
    return numbers, np.array(flow)


def test_a_task_may_have_its_own():
    numbers, flow = numbered()
    floors = Floors(Sensitivity(tasks=(("mine", Floor(2.0, 50_000.0)),)))
    factor, shift_ns = floors.at(flow, numbers, KNOWN)
    assert factor.tolist() == [2.0, FACTOR] * 2
    assert shift_ns.tolist() == [50_000.0, SHIFT_NS] * 2


def test_without_any_all_are_alike():
    numbers, flow = numbered()
    factor, shift_ns = Floors(Sensitivity(Floor(1.5, 9.0))).at(flow, numbers, KNOWN)
    assert (factor.tolist(), shift_ns.tolist()) == ([1.5] * 4, [9.0] * 4)


def test_a_number_that_is_another_flow_now_is_asked_anew():
    numbers, flow = numbered()
    floors = Floors(Sensitivity(tasks=(("mine", Floor(2.0, 50_000.0)),)))
    floors.at(flow, numbers, KNOWN)
    floors.forget(flow)
    assert floors.at(flow, numbers, {})[0].tolist() == [FACTOR] * 4


def test_there_is_room_for_any_number():
    numbers, flow = numbered(1_500)
    floors = Floors(Sensitivity(tasks=(("mine", Floor(2.0, 50_000.0)),)))
    assert floors.at(flow, numbers, KNOWN)[0].tolist() == [2.0, FACTOR] * 1_500
