# SPDX-License-Identifier: Apache-2.0
"""What the programs count, on a real datapath, against what was sent."""

import secrets
import struct

import pytest

from bpf.trace.journey import EGRESS, INGRESS, diagnose, view_of
from tests.kernel.conftest import Lens, packets
from tests.kernel.overlay import UPLINK, Overlay
from tests.waiting import wait_until

pytestmark = pytest.mark.kernel

COUNT = 23


def port() -> int:
    """Return a UDP port of this test's own."""
    return 20_000 + secrets.randbelow(20_000)


def test_every_stage_counts_what_is_sent_and_its_histogram_as_many(lens: Lens, overlay: Overlay):
    sender, receiver = overlay.hosts
    target = port()
    flow = f"udp,nw_src=10.0.0.10,nw_dst=10.0.0.12,tp_dst={target}"

    def send() -> None:
        overlay.deliver("a", count=COUNT, target_port=target)

    send()  # the datapath has the flow now
    out = lens.look(sender, flow, send)
    way = [stage for stage in EGRESS if not stage.startswith("rxe")]
    assert {stage: packets(out)[stage] for stage in way} == dict.fromkeys(way, COUNT)
    for row in out["stages"]:
        followed = row["stage"] in way[1:]
        assert row["samples"] == (COUNT if followed else 0), row["stage"]
        assert sum(count for _, count in row["buckets"]) == row["samples"]
        assert not followed or 0 < row["p50_ns"] <= row["p99_ns"]
    into = lens.look(receiver, flow, send)
    way = [stage for stage in INGRESS if not stage.startswith("rxe")]
    assert {stage: packets(into)[stage] for stage in way} == dict.fromkeys(way, COUNT)
    assert out["lost"] == into["lost"] == dict.fromkeys(out["lost"], 0)
    assert out["drops"] == into["drops"] == []
    assert str(diagnose(sender=view_of(out), receiver=view_of(into))).startswith("no packet vanish")


def test_other_flows_and_other_hosts_do_not_count(lens: Lens, overlay: Overlay):
    target = port()
    for flow in (
        f"udp,tp_dst={target + 1}",
        f"tcp,tp_dst={target}",
        f"udp,nw_src=10.0.0.11,tp_dst={target}",
        f"udp,nw_dst=10.0.1.0/24,tp_dst={target}",
        f"udp,tp_src=7,tp_dst={target}",
        f"udp,tp_dst={target},in_port=b0",
    ):
        seen = lens.look(
            overlay.hosts[0], flow, lambda: overlay.deliver("a", count=3, target_port=target)
        )
        assert sum(packets(seen).values()) == 0, flow
        assert seen["ports"] == seen["outers"] == seen["journeys"] == [], flow


def test_a_vni_excludes_the_other_tenant_with_the_same_addresses(lens: Lens, overlay: Overlay):
    target = port()
    flow = f"udp,nw_dst=10.0.0.12,tp_dst={target},tun_id=100"

    def send() -> None:
        overlay.deliver("a", count=5, target_port=target)
        overlay.deliver("b", count=7, target_port=target)

    send()
    into = lens.look(overlay.hosts[1], flow, send)
    assert {packets(into)[stage] for stage in INGRESS[:-1]} == {5}
    out = lens.look(overlay.hosts[0], flow, send)
    assert packets(out)["port_receive"] == 12  # no VNI yet
    assert packets(out)["encapsulate"] == packets(out)["uplink_transmit"] == 5
    foreign = {row["stage"]: row["foreign"] for row in out["stages"]}
    assert foreign["encapsulate"] == foreign["uplink_transmit"] == 7
    assert diagnose(sender=view_of(out), receiver=view_of(into)).where is None
    by_port = lens.look(overlay.hosts[0], f"{flow},in_port=a0", send)
    assert {packets(by_port)[stage] for stage in EGRESS[1:]} == {5}


def test_a_miss_is_an_upcall_and_comes_back(lens: Lens, overlay: Overlay):
    target, host = port(), overlay.hosts[0]

    def send() -> None:
        host.forget()
        overlay.deliver("a", count=1, target_port=target)
        wait_until(lambda: "actions" in host.appctl("dpctl/dump-flows"), "a flow")

    seen = lens.look(host, f"udp,tp_dst={target}", send)
    assert seen["upcalls"] == [{"command": "miss", "result": "ok", "packets": 1}]
    counted = packets(seen)
    assert (counted["lookup"], counted["upcall"], counted["execute"]) == (1, 1, 1)
    assert counted["actions"] == counted["uplink_transmit"] == 1
    times = {row["stage"]: row["p50_ns"] for row in seen["stages"]}
    assert 0 < times["upcall"] < times["execute"]
    (journey,) = seen["journeys"]
    stages = [hop["stage"] for hop in journey["hops"]]
    assert stages[:5] == ["port_receive", "lookup", "upcall", "execute", "actions"]
    assert stages[-1] == "uplink_transmit"


def test_outer_source_ports_are_those_on_the_wire(lens: Lens, overlay: Overlay):
    target, host = port(), overlay.hosts[0]
    sources = [30_000 + index for index in range(8)]

    def send() -> None:
        for source in sources:
            overlay.deliver("a", count=2, target_port=target, source_port=source)

    with host.capture(UPLINK) as wire:
        seen = lens.look(host, f"udp,tp_dst={target}", send)
        on_wire: dict[int, int] = {}
        while len(on_wire) < len(sources):
            frame = wire.recv(2048)
            # Ethernet 14, IPv4 20, UDP 8, VXLAN 8, Ethernet 14, IPv4 20.
            outer, inner = (struct.unpack_from("!HH", frame.ljust(88), at) for at in (34, 84))
            if outer[1] == 4789 and inner[1] == target:
                on_wire[inner[0]] = outer[0]
    told = {}
    for row in seen["outers"]:
        assert (row["source"], row["vni"], row["packets"]) == (host.address, 100, 2)
        told[int(row["flow"].split("tp_src=")[1].split(",")[0])] = row["source_port"]
    assert told == on_wire
    assert sorted(told) == sources


def test_roce_in_software_is_told_whatever_the_filter(lens: Lens, overlay: Overlay):
    seen = lens.look(
        overlay.hosts[0],
        "tcp,tp_dst=1",
        lambda: overlay.deliver("a", count=4, target_port=4791),
    )
    sent = {(row["device"], row["encapsulated"]): row["packets"] for row in seen["roce"]}
    assert sent[UPLINK, True] == sent["vxlan_sys_4789", False] == 4


def test_a_flood_is_counted_whole_and_what_was_not_told_is_counted(lens: Lens, overlay: Overlay):
    """The ring buffer (64 pages) holds 2,600 events; nobody reads it during the flood."""
    target = port()
    seen = lens.look(
        overlay.hosts[0],
        f"udp,tp_dst={target}",
        lambda: overlay.deliver("a", count=1_500, target_port=target),
        events_per_s=100_000,
    )
    assert packets(seen)["uplink_transmit"] == 1_500
    assert seen["lost"]["events_lost"] > 0
    limited = lens.look(
        overlay.hosts[0],
        f"udp,tp_dst={target}",
        lambda: overlay.deliver("a", count=1_500, target_port=target),
        events_per_s=160,
        journeys_per_s=100,
    )
    assert packets(limited)["uplink_transmit"] == 1_500
    assert limited["lost"]["not_followed"] > 0
    assert limited["lost"]["not_sampled"] > 0
    assert limited["lost"]["events_lost"] == 0
