# SPDX-License-Identifier: Apache-2.0
from itertools import product

import pytest

from tests.lab.errors import LabError
from tests.lab.namespaces import _OUR_ROOT_LINKS
from tests.lab.shape import INITIAL_NAMESPACE, Transport, Versions
from tests.lab.workload import Container, container_of, task_containers


def test_tenants_overlap_in_addresses_but_in_nothing_else() -> None:
    a, b = (Container(task, 1).endpoint(0) for task in ("train-a", "train-b"))
    assert a.address == b.address == "10.0.0.11"
    assert (a.container.vni, b.container.vni) == (1001, 1002)
    assert a.mac != b.mac
    assert a.ofport != b.ofport


def test_addresses_are_of_the_versions_of_the_lab() -> None:
    six = Container("train-a", 3, ip=Versions(overlay=6, underlay=6)).endpoint(1)
    assert (six.address, six.network) == ("fd00:10:0:1::13", "fd00:10:0:1::/64")
    assert (six.vtep, six.mtu) == ("fd00:30:1::13", 1430)
    four = Container("train-a", 3, ip=Versions(underlay=6)).endpoint(1)
    assert (four.address, four.network, four.mtu) == ("10.0.1.13", "10.0.1.0/24", 1430)
    over_four = Container("train-a", 3, ip=Versions(overlay=6)).endpoint(0)
    assert (over_four.address, over_four.vtep, over_four.mtu) == (
        "fd00:10::13",
        "172.30.0.13",
        1450,
    )


def test_endpoints_that_share_a_namespace_share_no_address_and_no_name() -> None:
    everyone = [
        Container(f"train-{tenant}", host, Transport.RDMA).endpoint(rail)
        for tenant, host, rail in product("abz", (0, 1, 11, 199), (0, 7))
    ]
    assert {each.container.namespace for each in everyone} == {INITIAL_NAMESPACE}
    assert len({each.interface for each in everyone}) == len(everyone)
    assert len({each.rdma_device for each in everyone}) == len(everyone)
    addresses = {each.address for each in everyone} | {each.foreign_address for each in everyone}
    assert len(addresses) == 2 * len(everyone)
    assert all(len(each.interface) < 16 for each in everyone)
    assert all(_OUR_ROOT_LINKS.fullmatch(each.interface) for each in everyone)


def test_an_rdma_endpoint_is_named_after_tenant_host_and_rail() -> None:
    endpoint = Container("train-b", 2, Transport.RDMA).endpoint(1)
    assert endpoint.network == "10.1.1.0/24"
    assert endpoint.environment() == {
        "INTERFACE": "na-b2-r1",
        "ADDRESS": "10.1.1.12",
        "DEVICE": "rxe-b2-r1",
    }


def test_an_endpoint_without_rdma_has_no_device_to_name() -> None:
    known = Container("train-b", 2).endpoint(1).environment()
    assert known == {"INTERFACE": "eth1", "ADDRESS": "10.0.1.12"}


def test_a_port_carries_what_ovn_kubernetes_sets_plus_task_and_rail() -> None:
    assert Container("train-a", 2).endpoint(1).external_ids() == {
        "iface-id": "a_train-a-2_rail1",
        "attached_mac": "02:00:00:01:01:0c",
        "ip_addresses": "10.0.1.12/24",
        "sandbox": "train-a-2",
        "task": "train-a",
        "rail": "1",
    }


def test_port_names_of_the_longest_names_fit_the_kernel() -> None:
    assert len(Container("abcdef-z", 199).endpoint(7).port) < 16


def test_an_id_and_a_namespace_name_mean_the_same_container() -> None:
    assert container_of("train-a-3") == container_of("na-train-a-3") == Container("train-a", 3)


@pytest.mark.parametrize("name", ["h0", "train-a", "train-a-x", "leaf-s0-r0", "spine-0", ""])
def test_what_is_no_container_id_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="names no container"):
        container_of(name)


@pytest.mark.parametrize("name", ["train", "train-ab", "toolong-a", "Train-a"])
def test_what_is_no_task_name_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="no task name"):
        task_containers(name, (0,))
