# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from netagent.adapters.host import board
from netagent.adapters.host.settings import Settings
from netagent.host.hardware import Hugepages, PciLink
from tests.netagent.server_board import ATS_ON, gpu_server, space

SETTINGS = Settings("mlx5_core", "6.8", "28.39.1002", offload=True, pause=(3,))


def read(made, names=("rnic0", "rnic1", "rnic2", "rnic3")):
    return board.read_hardware(
        names, sysfs=made.sysfs, procfs=made.procfs, ask=lambda name: SETTINGS
    )


def test_an_rnic_is_read_with_the_ports_above_it(tmp_path):
    hardware = read(gpu_server(tmp_path))
    nic = hardware.nics[1]
    assert nic.netdev == "rnic1"
    assert (nic.driver, nic.firmware, nic.offload, nic.pause) == (
        "mlx5_core", "28.39.1002", True, (3,)
    )  # fmt: skip
    assert nic.placed.function.address == "0000:23:00.0"
    assert nic.placed.function.model == "15b3:1021"
    assert nic.placed.function.link == PciLink(32.0, 16)
    assert nic.placed.function.errors == {"correctable": 0, "nonfatal": 0, "fatal": 0}
    assert [port.address for port in nic.placed.above] == [
        "0000:22:00.0", "0000:21:00.0", "0000:20:01.0"
    ]  # fmt: skip
    assert [port.acs for port in nic.placed.above] == [False, None, False]
    assert [nic.placed.function.numa for nic in hardware.nics] == [0, 0, 1, 1]


def test_gpus_modules_huge_pages_and_mtus_are_read(tmp_path):
    hardware = read(gpu_server(tmp_path))
    assert [gpu.function.address for gpu in hardware.gpus] == [
        f"0000:{n}4:00.0" for n in range(1, 5)
    ]
    assert hardware.modules == {"nvidia_peermem"}
    assert not hardware.open_gpu_driver
    assert hardware.hugepages == (Hugepages(2048, 1024, 1024),)
    assert hardware.mtus == {f"rnic{n}": 9000 for n in range(4)}


def test_the_gpus_open_driver_is_known(tmp_path):
    made = gpu_server(tmp_path)
    version = made.procfs / "driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15\n")
    assert read(made).open_gpu_driver


def test_address_translation_is_read_of_the_card(tmp_path):
    made = gpu_server(tmp_path)
    made.say("0000:13:00.0", config=space(0x000F, ATS_ON))
    nics = read(made).nics
    assert [nic.placed.function.ats for nic in nics] == [True, None, None, None]


@pytest.mark.parametrize("width", ["0", "255", "", "Unknown"])
def test_a_link_that_cannot_be_read_is_none(tmp_path, width):
    made = gpu_server(tmp_path)
    made.say("0000:13:00.0", current_link_width=width)
    assert read(made).nics[0].placed.function.link is None


def test_priorities_that_are_slowed_down_are_those_of_the_reaction_point(tmp_path):
    made = gpu_server(tmp_path)
    folder = made.sysfs / "class/net/rnic2/ecn/roce_rp/enable"
    folder.mkdir(parents=True)
    for priority in range(8):
        (folder / str(priority)).write_text("1\n" if priority == 3 else "0\n")
    assert [nic.marks for nic in read(made).nics] == [None, None, (3,), None]


def test_a_device_of_software_has_no_place_on_the_board(tmp_path):
    made = gpu_server(tmp_path)
    (made.sysfs / "class/net/veth0").mkdir()
    (nic,) = read(made, ["veth0"]).nics
    assert nic.placed is None


def test_a_machine_without_any_of_it_is_read_too(tmp_path):
    hardware = board.read_hardware(
        ["rnic0"], sysfs=tmp_path / "a", procfs=tmp_path / "b", ask=lambda name: Settings()
    )
    assert hardware.gpus == hardware.hugepages == ()
    assert hardware.nics[0].placed is None


def test_this_machine_is_read_as_it_is():
    names = [path.name for path in Path("/sys/class/net").iterdir()]
    hardware = board.read_hardware(names)
    assert [nic.netdev for nic in hardware.nics] == sorted(names)
    assert hardware.mtus["lo"] == 65536


def test_a_card_is_a_switch_where_ports_of_it_are_here(tmp_path):
    made = gpu_server(tmp_path)
    (made.sysfs / "class/net/rnic1/phys_switch_id").write_text("77\n")
    made.representor("eth9", "rnic0", "c1pf0vf12")
    assert [nic.switch for nic in read(made).nics] == ["0c42a1", "", "", ""]


def test_a_card_that_is_gone_while_it_is_read_has_no_place(tmp_path):
    made = gpu_server(tmp_path)
    (made.sysfs / "class/net/rnic0").unlink()
    assert read(made).nics[0].placed is None
