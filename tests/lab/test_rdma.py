# SPDX-License-Identifier: Apache-2.0
from itertools import product

from tests.lab import rdma
from tests.lab.shape import MAX_HOSTS, MAX_RAILS, Transport
from tests.lab.workload import Container


def test_udp_asks_nothing_of_the_kernel() -> None:
    assert rdma.choose("udp") is Transport.UDP


def test_every_endpoint_has_a_routing_table_of_its_own_that_is_told_from_others() -> None:
    everyone = product("az", (0, 1, MAX_HOSTS - 1), range(MAX_RAILS))
    tables = [
        rdma.table(Container(f"train-{tenant}", host, Transport.RDMA).endpoint(rail))
        for tenant, host, rail in everyone
    ]
    assert len(set(tables)) == len(tables)
    assert all(rdma._is_ours(number) for number in tables)
    assert not any(rdma._is_ours(number) for number in (0, 253, 254, 255, 1000))


def test_a_gid_is_made_of_the_address_as_sysfs_writes_it() -> None:
    assert rdma._gid("10.1.0.11") == "0000:0000:0000:0000:0000:ffff:0a01:000b"
