# SPDX-License-Identifier: Apache-2.0
"""The lab with RDMA endpoints and the kernel's datapath: three hosts, two rails, no agents."""

import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import OVS, RDMA, require
from tests.lab import Lab, LabError, Shape, rdma
from tests.lab.commands import run, wait_for
from tests.lab.namespaces import ours
from tests.lab.shape import Transport
from tests.lab.state import DIRECTORY
from tests.lab.workload import Endpoint, container_of

pytestmark = pytest.mark.rdma

SHAPE = Shape(hosts=3, rails=2, segments=2, spines=2, transport=Transport.RDMA)
LISTENING = "0A"  # TCP_LISTEN as /proc/net/tcp writes it
PORTS = itertools.count(18_600)
HEALED_S = 60

MACHINE = """
ip -d rule; ip route show table all; ip -br address; sysctl net.ipv4.conf.all net.ipv4.conf.default
ls /sys/class/infiniband
"""
ROUTER = "ip -br address; ip route show table all; tc qdisc; nft list ruleset"
HOST = f"""
{ROUTER}; ip link show rnic0; tc filter show dev rnic0 egress; ip link show br-phy0
ovs-vsctl --columns=name,options,mtu_request list Interface
ovs-ofctl -O OpenFlow15 --no-stats dump-flows br-int
"""


def machine() -> set[str]:
    return set(run("sh", "-c", MACHINE).splitlines())


@pytest.fixture(scope="module")
def before() -> set[str]:
    require(RDMA)
    return machine()


@pytest.fixture(scope="module")
def lab(before: set[str]) -> Iterator[Lab]:
    require(OVS)
    lab = Lab()
    lab.up(SHAPE, agents=False, traffic=None)
    yield lab
    lab.down()


def endpoint(container: str, rail: int = 0) -> Endpoint:
    return container_of(container, Transport.RDMA).endpoint(rail)


def reaches(lab: Lab, source: str, target: str, rail: int = 0, timeout_s: float = 1) -> int:
    address = endpoint(target, rail).address
    return lab.reaches(source, address, count=2, timeout_s=timeout_s)


def everything(lab: Lab) -> set[str]:
    """Return what the faults here may touch, by line, without the numbers of far interfaces."""
    found = {f"machine: {line}" for line in machine()}
    for names, look in ((("leaf-s0-r0", "spine-0"), ROUTER), (("h0", "h1"), HOST)):
        for name in names:
            found |= {f"{name}: {line}" for line in lab.run(name, "sh", "-c", look).splitlines()}
    return {" ".join(word.partition("@if")[0] for word in line.split()) for line in found}


def speaks_rdma(source: Endpoint, target: Endpoint) -> bool:
    """Tell whether a reliable connection between two RDMA devices carries messages."""
    try:
        indices = rdma.gid_index(source), rdma.gid_index(target)
    except LookupError:
        return False
    port = next(PORTS)
    common = ["timeout", "8", "ibv_rc_pingpong", "-p", str(port), "-n", "5", "-s", "64"]
    server = [*common, "-d", target.rdma_device, "-g", str(indices[1])]
    client = [*common, "-d", source.rdma_device, "-g", str(indices[0]), "127.0.0.1"]
    with subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as serving:
        wait_for("the server", lambda: listening(port) or serving.poll() is not None, timeout_s=30)
        done = subprocess.run(client, capture_output=True, check=False)
        serving.terminate()
    return done.returncode == 0


def listening(port: int) -> bool:
    lines = Path("/proc/net/tcp").read_text().splitlines()
    return any(f":{port:04X} " in line and f" {LISTENING} " in line for line in lines)


# --- the healthy network -----------------------------------------------------------------------


def test_packets_take_the_kernel_datapath(lab: Lab) -> None:
    assert lab.run("h0", "ovs-appctl", "dpif/show").startswith("system@ovs-system")


def test_all_endpoints_of_a_tenant_and_rail_reach_each_other(lab: Lab) -> None:
    containers = lab.state().containers
    lost = [
        (one.id, other.id, rail)
        for one, other in itertools.permutations(containers, 2)
        for rail in range(SHAPE.rails)
        if one.task == other.task and reaches(lab, one.id, other.id, rail) < 2
    ]
    assert len(containers) == 6
    assert lost == []


def test_tenants_do_not_reach_each_other(lab: Lab) -> None:
    assert endpoint("train-a-1").address != endpoint("train-b-1").address
    assert reaches(lab, "train-a-0", "train-b-1", timeout_s=0.2) == 0


@pytest.mark.parametrize("rail", range(SHAPE.rails))
def test_rdma_devices_speak_to_each_other_over_the_tunnel(lab: Lab, rail: int) -> None:
    def encapsulated() -> int:
        return int(lab.run("h2", "cat", f"/sys/class/net/br-phy{rail}/statistics/rx_packets"))

    earlier = encapsulated()
    assert speaks_rdma(endpoint("train-a-0", rail), endpoint("train-a-2", rail))
    assert encapsulated() >= earlier + 10
    assert not speaks_rdma(endpoint("train-a-0", rail), endpoint("train-b-2", rail))


def test_full_packets_fit_the_tunnel_and_larger_ones_are_refused(lab: Lab) -> None:
    target = endpoint("train-a-2").address
    ping = "ping -n -q -M do -c 1 -W 1 -I $LAB_RAIL0_INTERFACE"
    lab.run("train-a-0", "sh", "-c", f"{ping} -s 1422 {target}")
    with pytest.raises(LabError, match=r"message too long|exit 1"):
        lab.run("train-a-0", "sh", "-c", f"{ping} -s 1423 {target}")


def test_a_command_of_a_container_is_told_its_devices(lab: Lab) -> None:
    told = lab.run("train-b-1", "sh", "-c", "echo $LAB_RAIL1_DEVICE $LAB_RAIL1_ADDRESS")
    assert told.split() == ["rxe-b1-r1", "10.1.1.11"]
    assert (Path("/sys/class/infiniband") / "rxe-b1-r1").exists()


def test_training_traffic_flows_and_is_counted(lab: Lab) -> None:
    lab.restart("traffic")

    def flows() -> bool:
        counts = lab.status()["traffic"].values()
        return len(counts) == 2 and all(count["received"] > 50 for count in counts)

    wait_for("traffic of both tasks", flows, timeout_s=30)
    lab.processes.kill("traffic")


# --- containers --------------------------------------------------------------------------------


def test_a_container_stops_gracefully_and_starts_again(lab: Lab) -> None:
    before = everything(lab)
    lab.stop_container("train-b-1")
    assert "train-b-1" not in lab.run("h1", "ovs-vsctl", "list-ports", "br-int")
    assert "-b1-" not in "".join(machine())
    with pytest.raises(LabError, match="no namespace"):
        lab.run("train-b-1", "true")
    lab.start_container("train-b-1")
    assert reaches(lab, "train-b-0", "train-b-1") == 2
    assert everything(lab) == before


def test_a_crashed_container_comes_back_on_the_same_port(lab: Lab) -> None:
    lab.inject("container-crash", "train-a-1")
    assert "-a1-" not in "".join(machine())
    assert lab.run("h1", "ovs-vsctl", "list-ports", "br-int").count("train-a-1") == SHAPE.rails
    assert reaches(lab, "train-a-0", "train-a-1", timeout_s=0.2) == 0
    lab.heal()
    assert reaches(lab, "train-a-0", "train-a-1") == 2
    assert speaks_rdma(endpoint("train-a-1", 1), endpoint("train-a-0", 1))


# --- faults ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(lab: Lab) -> set[str]:
    """Return all that faults may touch while none is injected."""
    return everything(lab)


@pytest.fixture
def healed(lab: Lab, whole: set[str]) -> Iterator[None]:
    """Heal after the test and see that all is as it was."""
    yield
    lab.heal()
    # ovs-vswitchd follows its database, and bridges their ports, a moment later.
    try:
        wait_for("all to be as before", lambda: everything(lab) == whole, timeout_s=HEALED_S)
    except LabError as error:
        error.add_note("\n".join(sorted(everything(lab) ^ whole)))
        raise
    assert reaches(lab, "train-a-0", "train-a-1") == 2
    assert speaks_rdma(endpoint("train-a-0"), endpoint("train-a-1"))


@pytest.mark.usefixtures("healed")
def test_a_slow_link_delays_both_ways(lab: Lab) -> None:
    lab.inject("link-delay", ms=20)
    out = lab.run("leaf-s0-r0", "ping", "-n", "-q", "-c", "2", SHAPE.router_address("spine-0"))
    assert float(out.rpartition("= ")[2].split("/")[0]) >= 40


@pytest.mark.usefixtures("healed")
def test_an_rdma_port_that_is_down_says_so_and_carries_nothing(lab: Lab) -> None:
    fault = lab.inject("rdma-port-down")
    assert (fault.target, fault.truth.component) == ("train-a-1/rail0", "rnic h1/rxe-a1-r0")
    state = Path("/sys/class/infiniband/rxe-a1-r0/ports/1/state")
    wait_for("the port to be down", lambda: "DOWN" in state.read_text(), timeout_s=30)
    assert reaches(lab, "train-a-0", "train-a-1", timeout_s=0.2) == 0
    assert not speaks_rdma(endpoint("train-a-0"), endpoint("train-a-1"))
    assert speaks_rdma(endpoint("train-a-0", 1), endpoint("train-a-1", 1))


@pytest.mark.usefixtures("healed")
def test_a_changed_gid_is_another_address_that_nobody_knows(lab: Lab) -> None:
    changed = endpoint("train-a-1")
    lab.inject("gid-change")
    foreign = f"ffff:{0x0A80:04x}:000b"  # ::ffff:10.128.0.11

    def replaced() -> bool:
        by_address = [gid for gid in rdma.gids(changed).values() if ":ffff:" in gid]
        return [gid[-len(foreign) :] for gid in by_address] == [foreign]

    wait_for("the new GID", replaced, timeout_s=30)
    assert reaches(lab, "train-a-0", "train-a-1", timeout_s=0.2) == 0
    assert not speaks_rdma(endpoint("train-a-0"), changed)


@pytest.mark.usefixtures("healed")
def test_ping_passes_a_flow_that_drops_rdma_only(lab: Lab) -> None:
    fault = lab.inject("rdma-drop", "h0/train-a-2/rail0")
    assert fault.truth.component == "flow h0/br-int/table=30"
    assert reaches(lab, "train-a-0", "train-a-2") == 2
    assert not speaks_rdma(endpoint("train-a-0"), endpoint("train-a-2"))
    assert speaks_rdma(endpoint("train-a-1"), endpoint("train-a-2"))


@pytest.mark.usefixtures("healed")
def test_a_filter_on_an_uplink_drops_what_is_tunnelled_and_nothing_else(lab: Lab) -> None:
    fault = lab.inject("tc-drop")
    assert fault.truth.component == "rnic h1/rnic0"
    assert reaches(lab, "train-a-0", "train-a-1", timeout_s=0.2) == 0
    assert reaches(lab, "train-a-0", "train-a-1", rail=1) == 2
    assert lab.reaches("h1", SHAPE.router_address("leaf-s0-r0")) == 3


@pytest.mark.usefixtures("healed")
def test_a_narrow_uplink_drops_large_packets_without_a_word(lab: Lab) -> None:
    lab.inject("encap-mtu")
    assert reaches(lab, "train-a-0", "train-a-1") == 2
    ping = "ping -n -M do -c 2 -i 0.2 -W 1 -s 1422 -I $LAB_RAIL0_INTERFACE"
    for source, target in (("train-a-0", "train-a-1"), ("train-a-1", "train-a-0")):
        command = f"{ping} {endpoint(target).address} 2>&1 || true"
        said = lab.run(source, "sh", "-c", command)
        assert "2 packets transmitted, 0 received, 100% packet loss" in said
        assert "errors" not in said


@pytest.mark.usefixtures("healed")
def test_a_far_end_that_accepts_another_vni_only_loses_what_arrives(lab: Lab) -> None:
    flows = ("ovs-ofctl", "--no-stats", "dump-flows", "br-int")
    before = [lab.run(host, *flows) for host in SHAPE.host_names]
    fault = lab.inject("far-vni")
    assert fault.truth.component == "tunnel h1/vxlan0"
    assert reaches(lab, "train-a-0", "train-a-1", timeout_s=0.2) == 0
    assert reaches(lab, "train-a-0", "train-a-1", rail=1) == 2
    assert reaches(lab, "train-a-0", "train-a-2") == 2
    assert [lab.run(host, *flows) for host in SHAPE.host_names] == before


@pytest.mark.usefixtures("healed")
def test_a_filtered_tunnel_source_concerns_one_pair_of_hosts(lab: Lab) -> None:
    with pytest.raises(LabError, match="1 is no other host"):
        lab.inject("tunnel-source-filtered", source=1)
    lab.inject("tunnel-source-filtered", source=0)
    assert reaches(lab, "train-a-0", "train-a-1", timeout_s=0.2) == 0
    assert reaches(lab, "train-a-2", "train-a-1") == 2
    assert reaches(lab, "train-a-0", "train-a-2") == 2


@pytest.mark.usefixtures("healed")
def test_a_flood_of_new_flows_overflows_the_upcall_queue(lab: Lab) -> None:
    def lost(host: str) -> int:
        lookups = lab.run(host, "ovs-appctl", "dpctl/show")
        return int(lookups.partition("lost:")[2].split()[0])

    earlier, elsewhere = lost("h1"), lost("h0")
    fault = lab.inject("upcall-flood", seconds=30)
    assert fault.truth.component == "vswitch h1"
    wait_for("lost upcalls", lambda: lost("h1") > earlier + 1000, timeout_s=30)
    daemon = lab.processes.pid("h1/ovs-vswitchd")
    assert daemon is not None
    assert len(os.sched_getaffinity(daemon)) == 1
    lab.heal()
    assert os.sched_getaffinity(daemon) == os.sched_getaffinity(0)
    assert os.getpriority(os.PRIO_PROCESS, daemon) == os.getpriority(os.PRIO_PROCESS, 0)
    assert not [name for name in lab.processes.alive() if "flooder" in name]
    assert lost("h0") == elsewhere


@pytest.mark.usefixtures("healed")
def test_without_its_daemon_a_virtual_switch_forwards_what_it_knows(lab: Lab) -> None:
    assert reaches(lab, "train-a-1", "train-a-2") == 2
    lab.inject("vswitchd-killed", "h1")
    assert reaches(lab, "train-a-1", "train-a-2") == 2
    lab.restart("vswitchd", "h1")
    assert reaches(lab, "train-b-1", "train-b-2") == 2


@pytest.mark.parametrize("name", ["link-loss", "mtu-blackhole", "slow-link", "spine-down",
                                  "rnic-down", "flow-loop", "wrong-tunnel-remote"])  # fmt: skip
@pytest.mark.usefixtures("healed")
def test_a_fault_changes_the_lab_and_heals_exactly(lab: Lab, whole: set[str], name: str) -> None:
    lab.inject(name)
    assert everything(lab) != whole


# --- the end -----------------------------------------------------------------------------------


def test_down_gives_the_machine_back_as_it_was(lab: Lab, before: set[str]) -> None:
    lab.inject("rdma-port-down")
    lab.store.path.unlink()
    assert lab.down() == []
    assert ours() == []
    assert not DIRECTORY.exists()
    assert machine() == before
