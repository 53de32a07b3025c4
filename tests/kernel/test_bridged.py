# SPDX-License-Identifier: Apache-2.0
"""The uplink is a port of a bridge: tunnel packets pass the switch twice and count once."""

import pytest

from bpf.trace.journey import EGRESS, INGRESS, diagnose, view_of
from tests.kernel.conftest import Lens, packets
from tests.kernel.overlay import UPLINK, Overlay

pytestmark = pytest.mark.kernel

COUNT = 23
FLOW = "udp,nw_src=10.0.0.10,tp_dst=7000"


def test_tunnel_packets_count_at_the_uplink_only(lens: Lens, bridged: Overlay):
    def send() -> None:
        bridged.deliver("a", count=COUNT, target_port=7000)

    send()
    out, into = (lens.look(host, FLOW, send) for host in bridged.hosts)
    assert {packets(out)[stage] for stage in EGRESS if "rxe" not in stage} == {COUNT}
    assert {packets(into)[stage] for stage in INGRESS if "rxe" not in stage} == {COUNT}
    devices = {row["device"] for row in out["ports"] if row["stage"] == "uplink_transmit"}
    assert devices == {UPLINK}
    assert diagnose(sender=view_of(out), receiver=view_of(into)).where is None


def test_a_drop_in_the_uplinks_bridge(lens: Lens, bridged: Overlay):
    host = bridged.hosts[0]

    def send() -> None:
        bridged.send("a", count=COUNT, target_port=7000, source_port=7001)

    rule = "priority=9,udp,tp_dst=4789,actions=drop"
    host.ofctl("add-flow", rule, bridge="br-phy")
    host.forget()
    lens.look(host, FLOW, send)  # the datapath has the dropping flow now
    verdict = diagnose(sender=view_of(lens.look(host, FLOW, send)))
    assert verdict.where == "uplink transmit (after encapsulation)"
    assert any("after encapsulate" in line and "OVS_" in line for line in verdict.evidence)
