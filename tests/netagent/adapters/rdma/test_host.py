# SPDX-License-Identifier: Apache-2.0
"""What the RDMA side of a host makes of rates and of traffic; all else of it needs a guest."""

import asyncio
import os
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from netagent.adapters.host import traffic
from netagent.adapters.rdma import host as module
from netagent.adapters.rdma.host import RdmaHost
from netagent.adapters.rdma.messages import Place
from netagent.concurrency import TaskGroup, timeout
from netagent.config import AgentConfig, AnalyzerConfig
from netagent.host.bypassed import Carried
from netagent.host.facts import HostView, Namespace
from netagent.host.rates import HOLD_NS
from netagent.host.rdma_facts import RdmaDevice, RdmaPort, RdmaView
from netagent.model.endpoint import Endpoint, RdmaAddress
from netagent.model.finding import FindingKind
from netagent.model.ids import EndpointId
from netagent.probing.transport import Askers
from tests.conftest import NETNS, require

CONFIG = AgentConfig(host="h0", analyzer=AnalyzerConfig(url="http://127.0.0.1:1"))
KEY = EndpointId("c0", 0)
ENDPOINT = Endpoint(KEY, "t", "h0", "10.0.0.1", "", "172.30.0.1", "rnic0", "br-int", "p")
GID = "::ffff:10.0.0.1"
PORT = RdmaPort("mlx5_0", 1, "ACTIVE", "Ethernet", rate_bps=400 * 10**9, lanes=4)
HALF = replace(PORT, rate_bps=200 * 10**9, lanes=2)


@pytest.fixture
def rdma(monkeypatch):
    monkeypatch.setattr(module, "now_ns", count(HOLD_NS, HOLD_NS).__next__)
    with closing(RdmaHost(CONFIG, Askers(), lambda: None)) as made:
        made.addresses[KEY] = RdmaAddress("mlx5_0", GID, (17,), 1, 1024)
        yield made


def saw(rdma, *ports):
    """Return what is found after the device was read with its port like each of these."""
    rdma._host = HostView(endpoints=(ENDPOINT,))
    for port in ports:
        rdma._on_rnics(RdmaView((RdmaDevice("mlx5_0", ports=(port,)),), "shared"))
    return {finding.kind: finding for finding in rdma.state().findings}


def test_a_port_that_runs_slower_than_it_did_is_found_and_since_when(rdma):
    assert saw(rdma, PORT, PORT, HALF) == {}
    found = saw(rdma, HALF)[FindingKind.RATE_REDUCED]
    assert "mlx5_0 runs at 200 Gb/s (2 lanes), and ran at 400 Gb/s" in found.text
    assert found.wall_ns > 0
    assert saw(rdma, HALF, HALF)[FindingKind.RATE_REDUCED] == found
    assert saw(rdma, PORT, PORT) == {}


def test_a_port_that_is_down_is_not_slow(rdma):
    down = replace(HALF, state="DOWN")  # drivers keep a rate
    assert list(saw(rdma, PORT, PORT, down, down)) == [FindingKind.RNIC_DOWN]


class Heard:
    """Takes what is compared, and says when."""

    def __init__(self):
        self.read, self.came = {}, asyncio.Event()

    def observe(self, read, *, now_ns):
        assert now_ns > 0
        self.read.update(read)
        self.came.set()
        return ()


@pytest.mark.netns
def test_a_device_and_the_interface_of_its_container_are_read_together(rdma, tmp_path, monkeypatch):
    require(NETNS)
    counters = tmp_path / "class/infiniband/mlx5_0/ports/1/counters"
    counters.mkdir(parents=True)
    (counters / "port_xmit_data").write_text("1000\n")  # in units of four bytes
    monkeypatch.setattr(traffic, "SYSFS", tmp_path)
    monkeypatch.setattr(module, "COMPARE_S", 0.01)
    here = Namespace("/proc/self/ns/net", os.stat("/proc/self/ns/net").st_ino)  # noqa: PTH116
    rdma._host = HostView((ENDPOINT,), {KEY: here}, netdevs={KEY: "lo"}, complete=True)
    counted = replace(PORT, counters={"port_xmit_data": 1000})
    rdma._rnics = RdmaView((RdmaDevice("mlx5_0", ports=(counted,)),), "shared")
    rdma._places[KEY] = Place(device="mlx5_0", gid=GID, path="")
    sent = int(Path("/sys/class/net/lo/statistics/tx_bytes").read_text())

    async def compare():
        rdma._bypass = Heard()
        async with timeout(60), TaskGroup() as group:
            running = group.create_task(rdma._keep_comparing())
            await rdma._bypass.came.wait()
            running.cancel()

    asyncio.run(compare())
    (carried,) = rdma._bypass.read.values()
    assert carried == Carried("mlx5_0", 4000, carried.netdev_bytes)
    assert carried.netdev_bytes >= sent
