# SPDX-License-Identifier: Apache-2.0
from netagent.host.figures import MAX_COUNTERS, counters_of
from netagent.host.rdma_facts import RdmaDevice, RdmaPort


def device(name: str, counters: dict[str, int], port: int = 1) -> RdmaDevice:
    found = RdmaPort(name, port, "ACTIVE", "Ethernet", counters=counters)
    return RdmaDevice(name, ports=(found,))


def test_counters_have_device_and_port_and_unknown_names_are_left_out() -> None:
    counters = {"port_rcv_data": 7, "link_downed": 2, "made_up": 9}
    assert counters_of([device("mlx5_0", counters, port=2)]) == [
        ("mlx5_0", "2", "link_downed", 2),
        ("mlx5_0", "2", "port_rcv_data", 7),
    ]


def test_of_too_many_the_least_important_ones_are_left_out() -> None:
    devices = [
        device(f"d{n}", {"port_rcv_data": n, "symbol_error": n}) for n in range(MAX_COUNTERS)
    ]
    names = [name for _, _, name, _ in counters_of(devices)]
    assert names == ["symbol_error"] * MAX_COUNTERS
