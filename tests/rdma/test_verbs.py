# SPDX-License-Identifier: Apache-2.0
"""The door of libibverbs on Soft-RoCE: what it opens, and that the kernel takes it all back."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from netagent.adapters.rdma import verbs
from netagent.adapters.rdma.messages import Place
from netagent.adapters.rdma.port import RdmaPort
from netagent.probing.rdma.gids import choose_gid, verbose_gid
from netagent.probing.rdma.steering import VENDOR_RXE, Steering
from tests.conftest import RDMA, require
from tests.rdma.pair import FLOWS, Side, cabled, eventually, resources, run, spawn

pytestmark = pytest.mark.rdma

KILLED = 100
NEST = """
import os, signal, sys
sys.path.insert(0, os.getcwd())
from netagent.adapters.rdma import verbs
from netagent.adapters.rdma.messages import Place
from netagent.adapters.rdma.port import QKEY, RdmaPort
from netagent.wire import frame
verbs.load()
device, gid, peer, times = *sys.argv[1:4], int(sys.argv[4])
for _ in range(times):
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        port = RdmaPort.open(Place(device=device, gid=gid, path=""), flows=4)
        handle = port.handle(peer, port.ports[0])
        for flow in range(4):
            port.send(flow, handle, (17, QKEY), frame.encode(frame.Frame(1, 1)), length=64)
        os.write(tell, b"x")
        signal.pause()
    os.close(tell)
    assert os.read(ready, 1) == b"x"
    os.close(ready)
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
print("killed", times, flush=True)
"""


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    require(RDMA)
    with cabled(2) as made:
        yield made


@pytest.fixture
def device(sides: tuple[Side, Side]) -> Iterator[verbs.Device]:
    made = verbs.Device(sides[0].device)
    yield made
    made.close()


def test_a_device_tells_its_gids_by_type_and_address(sides, device):
    assert device.vendor_id == VENDOR_RXE
    index = choose_gid(device.gids(), verbs.ROCE_V2, sides[0].address)
    assert index is not None
    path = f"/sys/class/infiniband/{device.name}/ports/1/gids/{index}"
    assert run("cat", path).strip() == verbose_gid(sides[0].gid)
    assert choose_gid(device.gids(), verbs.ROCE_V2, sides[1].address) is None


def test_events_are_never_waited_for(sides, device):
    assert device.events() == []
    run("ip", "link", "set", sides[0].netdev, "down")
    found: list[str] = []
    eventually(lambda: found.extend(device.events()) or "PORT_ERR" in found, "the event")
    assert not device.active()
    run("ip", "link", "set", sides[0].netdev, "up")
    eventually(lambda: found.extend(device.events()) or "PORT_ACTIVE" in found, "the event")
    assert device.active()
    sides[0].route()


def test_what_does_not_exist_is_an_os_error(sides):
    with pytest.raises(OSError, match="no-such-device"):
        verbs.Device("no-such-device")
    before = resources(sides)
    gone = Place(device=sides[0].device, gid="::ffff:192.0.2.1", path="")
    with pytest.raises(OSError, match="no RoCE v2 GID"):
        RdmaPort.open(gone, flows=FLOWS)
    assert resources(sides) == before


def test_a_handle_for_a_dead_address_is_an_os_error(sides):
    port = RdmaPort.open(sides[0].place, flows=1)
    try:
        with pytest.raises(OSError, match="address handle"):
            port.handle("::ffff:10.78.2.250", port.ports[0])
    finally:
        port.close()


def test_a_port_has_a_queue_pair_per_flow_and_gives_all_back(sides):
    before = resources(sides)
    port = RdmaPort.open(sides[0].place, flows=FLOWS)
    assert port.steering is Steering.QUEUE_PAIR
    assert len(port.qpns) == len(set(port.ports)) == FLOWS
    assert not port.stamped
    held = resources(sides)[sides[0].device]
    assert held["qp"] == before[sides[0].device]["qp"] + FLOWS
    port.close()
    port.close()
    assert resources(sides) == before


def test_a_process_that_is_started_meanwhile_takes_no_memory_of_ours(sides):
    port = RdmaPort.open(sides[0].place, flows=1)
    try:
        assert subprocess.run(["true"], check=True).returncode == 0
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        handle = port.handle(sides[1].gid, port.ports[0])
        for _ in range(100):
            assert port.send(0, handle, (0xFFFFF0, 1), bytes(24), length=64)
        handle.close()
    finally:
        port.close()


def test_a_hundred_kills_leave_nothing_in_the_kernel(sides):
    before = resources(sides)
    nest = spawn(NEST, sides[0].device, sides[0].gid, sides[1].gid, str(KILLED))
    said, _ = nest.communicate(timeout=200)
    assert said == f"killed {KILLED}\n"
    assert nest.returncode == 0
    eventually(lambda: resources(sides) == before, "the clean-up")
