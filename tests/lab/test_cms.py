# SPDX-License-Identifier: Apache-2.0
import re

from tests.lab import cms
from tests.lab.workload import Container

ENDPOINT = Container("train-a", 2).endpoint(1)


def test_a_port_is_called_by_its_network_its_namespace_and_its_pod() -> None:
    """GetIfaceId and GetSecondaryNetworkPrefix, ovn-kubernetes' go-controller/pkg/util."""
    assert cms.port(ENDPOINT) == "train.a.rail1_train-a_train-a-2"
    found = re.fullmatch(r"(?:[^_]+_)?([^_]+)_[^_]+", cms.port(ENDPOINT))
    assert found is not None
    assert found[1] == ENDPOINT.container.task


def test_an_interface_says_nothing_of_tasks_and_rails_but_what_a_controller_writes() -> None:
    keys = cms.interface_ids(ENDPOINT)
    assert keys["iface-id"] == cms.port(ENDPOINT)
    assert keys["sandbox"] == "train-a-2"
    assert keys["encap-ip"] == "172.30.1.12"
    assert keys["attached_mac"] == "02:00:00:01:01:0c"
    assert keys["ip_addresses"] == "10.0.1.12/24"
    assert not keys.keys() & {"task", "rail"}


def test_tenants_share_no_switch_and_no_port() -> None:
    everyone = cms.endpoints([Container(f"train-{t}", host) for t in "ab" for host in (0, 1)], 2)
    assert len({cms.switch(each) for each in everyone}) == 4
    assert len({cms.port(each) for each in everyone}) == len(everyone) == 8
