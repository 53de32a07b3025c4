# SPDX-License-Identifier: Apache-2.0
"""Flow tables say fine, probes are lost: the incident names the stage that a trace has seen.

A lab whose analyzer asks for the traces by itself, over the agents' RPC. A VNI that the far end
does not accept is in its flow tables after all, and needs no trace. A flood of upcalls is left to
`test_vanishing`: whether it first starves the datapath, ovs-vswitchd or the agents is chance in a
guest.
"""

import time

import pytest

from bpf.trace.journey import PLACES
from tests.conftest import KERNEL, RDMA, require
from tests.lab import Lab
from tests.lab.demo import SETTLE_S, SHAPES, TASKS, Observer
from tests.lab.shape import Transport

pytestmark = [pytest.mark.kernel, pytest.mark.lab]

FIND_WITHIN_S = 180
"""Two windows of doubt, then a trace: emulated, its programs compile for half a minute."""
RECOVER_WITHIN_S = 60

UPLINK = PLACES["encapsulate", "uplink_transmit"]
ARRIVAL = PLACES["uplink_receive", "decapsulate"]


@pytest.fixture(scope="module")
def lab():
    require(KERNEL)
    require(RDMA)
    made = Lab()
    made.up(SHAPES[Transport.RDMA], tasks=TASKS[Transport.RDMA], traffic=None)
    try:
        yield made
    finally:
        assert made.down() == []


@pytest.fixture(scope="module")
def observer(lab):
    with lab.services().client() as client:
        made = Observer(client)
        made.wait(lambda: False, timeout_s=SETTLE_S[Transport.RDMA])
        yield made


@pytest.mark.parametrize(
    ("fault", "parameters", "stage"),
    [
        ("tc-drop", {}, UPLINK),
        ("encap-mtu", {"bytes": 1100}, UPLINK),  # the largest RDMA packet has 1126 by then
        ("far-vni", {}, "no tunnel port takes"),
        ("tunnel-source-filtered", {}, ARRIVAL),
    ],
)
def test_what_the_tables_do_not_show_ends_in_its_stage(lab, observer, fault, parameters, stage):
    observer.remember()
    began_s = time.monotonic()
    injected = lab.inject(fault, **parameters)

    def named():
        for each in observer.new():
            text = "\n".join([each["summary"], *each["evidence"]])
            if each["component"] == injected.truth.component and stage in text:
                return each
        return None

    incident = observer.wait(named, timeout_s=FIND_WITHIN_S)
    took_s = time.monotonic() - began_s
    opened = observer.new()
    lab.heal(injected.key)
    print(f"{fault}: {took_s:.1f} s, {[(e['component'], e['summary']) for e in opened]}")
    recovered = observer.wait(
        lambda: all(each["state"] == "recovered" for each in observer.new()),
        timeout_s=RECOVER_WITHIN_S,
    )
    assert incident, opened  # last, so that what comes next begins in health
    assert recovered
