# SPDX-License-Identifier: Apache-2.0
"""A small lab, really brought up: two hosts in two segments, one rail, two spines."""

import select
import socket
import struct
from collections.abc import Iterator

import pytest

from tests.conftest import OVS, require
from tests.lab import Lab, LabError, Shape
from tests.lab.commands import wait_for
from tests.lab.namespaces import in_thread, ours
from tests.lab.ovs import kernel_datapath
from tests.lab.shape import vtep
from tests.lab.state import DIRECTORY
from tests.waiting import wait_until

pytestmark = pytest.mark.ovs

SHAPE = Shape(hosts=2, rails=1, segments=2, spines=2)
PEER = "10.0.0.11"
FLOWS = 32
IP_RECVERR = 11  # linux/in.h; not in the socket module before Python 3.14


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    require(OVS)
    lab = Lab()
    try:
        lab.up(SHAPE, agents=False, traffic=None)
        yield lab
    finally:
        lab.down()


def datagrams(source: str, address: str, port: int = 9) -> None:
    """Send one datagram from each of many ports of a namespace."""

    def send() -> None:
        for offset in range(FLOWS):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.bind(("", 20_000 + offset))
                sender.sendto(b"x", (address, port))

    in_thread(source, send)


def transmitted(lab: Lab, router: str, interface: str) -> int:
    counters = lab.run(router, "cat", f"/sys/class/net/{interface}/statistics/tx_packets")
    return int(counters)


def answering_router(source: str, source_address: str, target: str, port: int, ttl: int) -> str:
    """Return who says that a packet to the VXLAN port lived no longer than `ttl` hops."""

    def ask() -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
            asker.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
            asker.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
            asker.bind((source_address, port))
            asker.sendto(b"x" * 32, (target, 4789))
            poll = select.poll()
            poll.register(asker, 0)  # an error in the queue is always reported
            assert poll.poll(2000), "no answer"
            _, ancillary, _, _ = asker.recvmsg(512, 512, socket.MSG_ERRQUEUE)
            return offender(ancillary[0][2])

    return in_thread(source, ask)


def offender(data: bytes) -> str:
    """Return the address in ``struct sock_extended_err`` of a TTL-exceeded answer."""
    _, origin, kind, code = struct.unpack_from("IBBB", data)
    assert (origin, kind, code) == (2, 11, 0)  # SO_EE_ORIGIN_ICMP, time exceeded in transit
    return socket.inet_ntoa(data[20:24])


# --- the healthy network ----------------------------------------------------------------------


def test_a_tenant_reaches_itself(lab: Lab) -> None:
    assert lab.reaches("train-a-0", PEER) == 3
    assert lab.reaches("train-b-1", "10.0.0.10") == 3


def test_the_first_packets_do_not_wait_for_address_resolution(lab: Lab) -> None:
    out = lab.run("train-b-0", "ping", "-n", "-q", "-c", "1", "-W", "1", PEER)
    assert float(out.rpartition("= ")[2].split("/")[0]) < 500


def test_overlapping_tenants_do_not_reach_each_other(lab: Lab) -> None:
    before = received(lab, "train-b-1")
    assert lab.reaches("train-a-0", PEER, count=5) == 5
    assert received(lab, "train-b-1") == before


def received(lab: Lab, container: str) -> int:
    return int(lab.run(container, "cat", "/sys/class/net/eth0/statistics/rx_packets"))


def test_full_packets_fit_the_tunnel(lab: Lab) -> None:
    options = ("-M", "do", "-s", "1422", "-c", "1", "-W", "1")
    lab.run("train-a-0", "ping", "-n", "-q", *options, PEER)


def test_source_ports_spread_over_both_spines(lab: Lab) -> None:
    spines = [f"to-{spine}" for spine in SHAPE.spine_names]
    before = [transmitted(lab, "leaf-s0-r0", interface) for interface in spines]
    datagrams("na-train-a-0", PEER)
    sent: list[int] = []

    def all_left() -> bool:
        after = [transmitted(lab, "leaf-s0-r0", interface) for interface in spines]
        sent[:] = [now - then for now, then in zip(after, before, strict=True)]
        return sum(sent) >= FLOWS

    wait_until(all_left, "datagrams at the leaf")
    assert min(sent) >= FLOWS // 8


def test_every_router_answers_ttl_exceeded_with_its_own_address(lab: Lab) -> None:
    answers = {
        ttl: {
            answering_router("na-h0", vtep(0, 0), vtep(1, 0), 30_000 + port, ttl)
            for port in range(16)
        }
        for ttl in (1, 2, 3)
    }
    assert answers == {
        1: {SHAPE.router_address("leaf-s0-r0")},
        2: {SHAPE.router_address(spine) for spine in SHAPE.spine_names},
        3: {SHAPE.router_address("leaf-s1-r0")},
    }


def test_answers_are_not_rate_limited(lab: Lab) -> None:
    for port in range(200):
        answering_router("na-h0", vtep(0, 0), vtep(1, 0), 31_000 + port, 1)


def test_ports_carry_their_external_ids(lab: Lab) -> None:
    lookup = ("ovs-vsctl", "get", "Interface", "train-a-0-r0")
    assert lab.run("h0", *lookup, "external_ids:sandbox").strip() == "train-a-0"
    assert lab.run("h0", *lookup, "ofport").strip() == "100"


# --- faults and changes -----------------------------------------------------------------------


def test_a_deleted_flow_breaks_one_tenant_until_healed(lab: Lab) -> None:
    fault = lab.inject("flow-deleted")
    assert fault.truth.component == "flow h0/br-int/table=40"
    assert lab.reaches("train-a-0", PEER, timeout_s=0.2) == 0
    assert lab.reaches("train-b-0", PEER) == 3
    lab.heal("flow-deleted")
    assert lab.reaches("train-a-0", PEER) == 3


def test_a_spine_that_is_down_loses_its_share_and_heals_exactly(lab: Lab) -> None:
    def all_there_is() -> dict[str, str]:
        look = ("sh", "-c", "ip route; ls /sys/class/net")
        return {router: lab.run(router, *look) for router in SHAPE.router_names}

    whole = all_there_is()
    lab.inject("spine-down")
    before, counts = received(lab, "train-a-1"), [0]

    def arrived() -> bool:
        counts.append(received(lab, "train-a-1") - before)
        return 0 < counts[-1] == counts[-2]

    datagrams("na-train-a-0", PEER)
    wait_until(arrived, "datagrams by the other spine")
    assert counts[-1] < FLOWS
    lab.heal()
    assert lab.reaches("train-a-0", PEER) == 3
    assert all_there_is() == whole


def test_a_virtual_switch_comes_back_with_flows_and_addresses(lab: Lab) -> None:
    lab.inject("vswitchd-killed", "h0")
    # The kernel goes on forwarding the flows that it knows.
    known = 3 if kernel_datapath() else 0
    assert lab.reaches("train-a-0", PEER, timeout_s=0.2) == known
    lab.restart("vswitchd", "h0")
    assert lab.reaches("train-a-0", PEER) == 3
    lab.heal()


def test_a_crashed_container_comes_back_on_the_same_port(lab: Lab) -> None:
    lab.inject("container-crash", "train-a-1")
    assert "na-train-a-1" not in ours()
    assert lab.run("h1", "ovs-vsctl", "list-ports", "br-int").count("train-a-1") == 1
    assert lab.reaches("train-a-0", PEER, timeout_s=0.2) == 0
    lab.heal()
    wait_for("its port", lambda: lab.reaches("train-a-0", PEER) == 3, timeout_s=30)


def test_a_container_stops_gracefully_and_starts_again(lab: Lab) -> None:
    lab.stop_container("train-b-1")
    assert "train-b-1" not in lab.run("h1", "ovs-vsctl", "list-ports", "br-int")
    assert "02:00:00:02:00:0b" not in lab.run("h0", "ovs-ofctl", "dump-flows", "br-int")
    lab.start_container("train-b-1")
    assert lab.reaches("train-b-0", PEER) == 3
    with pytest.raises(LabError, match="runs already"):
        lab.start_container("train-b-1")


def test_flaps_end_with_their_fault(lab: Lab) -> None:
    lab.inject("rnic-flapping", period_s=0.2)
    wait_for("loss", lambda: lab.reaches("train-a-0", PEER, timeout_s=0.2) < 3, timeout_s=30)
    lab.heal()
    assert not [name for name in lab.processes.alive() if "flapper" in name]
    wait_for("the link", lambda: lab.reaches("train-a-0", PEER) == 3, timeout_s=30)


# --- the end ----------------------------------------------------------------------------------


def test_a_second_lab_is_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match="is up") as refused:
        lab.up(SHAPE)
    assert "down" in refused.value.remedy


def test_down_leaves_nothing_even_when_the_state_is_lost(lab: Lab) -> None:
    lab.store.path.unlink()
    assert lab.down() == []
    assert ours() == []
    assert not DIRECTORY.exists()
    with pytest.raises(LabError, match="no lab is up"):
        lab.status()
