# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace

import pytest

from netagent.cli import main
from netagent.commands import rnics
from netagent.host.rdma_facts import Gid, RdmaDevice, RdmaPort, RdmaView

PORT = RdmaPort(
    "mlx5_0", 1, "ACTIVE", "Ethernet", ("eth0",), "LinkUp", 200_000_000_000,
    lanes=4, gids=(Gid(0, "fe80::1"), Gid(1, "::ffff:10.0.0.1")),
    counters={"out_of_sequence": 7, "rx_crc_errors": 0},
)  # fmt: skip
DEVICE = RdmaDevice(
    "mlx5_0", "mlx5_core", firmware="20.31.1014", pci="0000:3b:00.2",
    physical_function="0000:3b:00.0", bond="bond0", ports=(PORT,),
)  # fmt: skip


@pytest.fixture
def host(monkeypatch):
    """Set what the host has."""

    def has(*devices, mode="shared"):
        monkeypatch.setattr(rnics.RnicReader, "read", lambda *_, **__: RdmaView(devices, mode))

    monkeypatch.setattr(rnics, "_mtu_bytes", {"mlx5_0": 4096}.get)
    return has


def test_devices_and_their_hardware_in_80_columns(host, capsys):
    host(DEVICE)
    assert main(["rnics", "--counters"]) == 0
    text = capsys.readouterr().out
    assert all(len(line) < 80 for line in text.splitlines())
    for part in (
        "200 Gb/s", "4096", "mlx5_core", "eth0", "PCI 0000:3b:00.2", "4 lanes; bond bond0",
        "GIDs 2",
        "virtual function of 0000:3b:00.0", "firmware 20.31.1014", "out_of_sequence",
    ):  # fmt: skip
        assert part in " ".join(text.split())
    assert "rx_crc_errors" not in text


def test_a_port_that_is_not_active_is_exit_1(host, capsys):
    down = replace(PORT, state="DOWN", phys_state="Polling", gids=None)
    host(replace(DEVICE, ports=(PORT, down)))
    assert main(["rnics"]) == 1
    text = capsys.readouterr().out
    assert "DOWN Polling" in text
    assert "GIDs unreadable" in text


def test_no_device_is_exit_1_and_exclusive_mode_is_told(host, capsys):
    host(mode="exclusive")
    assert main(["rnics"]) == 1
    text = capsys.readouterr().out
    assert "no RDMA device" in text
    assert "exclusive mode" in text


def test_json_has_all(host, capsys):
    host(DEVICE)
    assert main(["rnics", "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert device["ports"][0]["active_mtu_bytes"] == 4096
    assert device["ports"][0]["counters"]["out_of_sequence"] == 7
    assert device["physical_function"] == "0000:3b:00.0"
