# SPDX-License-Identifier: Apache-2.0
import pytest

from netagent.host.checks.contract import State
from netagent.model.path import Component, Kind
from tests.netagent.host.checks.healthy import look, wrong
from tests.netagent.server_board import ACS_ON, ATS_ON, gpu_server, space


def test_acs_that_redirects_peers_below_a_switch_is_named(tmp_path):
    board = gpu_server(tmp_path)
    board.say("0000:12:01.0", config=space(0x000D, ACS_ON))
    (found,) = wrong(look(board))
    assert (found.check, found.component) == ("ACS and ATS", Component(Kind.HOST, "h0"))
    assert "0000:12:01.0" in found.text


def test_acs_does_no_harm_where_the_card_translates_addresses_itself(tmp_path):
    board = gpu_server(tmp_path)
    board.say("0000:12:01.0", config=space(0x000D, ACS_ON))
    board.say("0000:13:00.0", config=space(0x000F, ATS_ON))
    assert wrong(look(board)) == []


def test_acs_above_the_switch_does_no_harm(tmp_path):
    board = gpu_server(tmp_path)
    board.say("0000:10:01.0", config=space(0x000D, ACS_ON))
    assert wrong(look(board)) == []


def test_without_privileges_acs_cannot_be_told(tmp_path):
    board = gpu_server(tmp_path)
    for address in board.placed:
        board.say(address, config=bytes(64))
    (told,) = (each for each in look(board) if each.check == "ACS and ATS")
    assert told.state is State.UNKNOWN


def test_gpus_whose_memory_rnics_cannot_register_are_told(tmp_path):
    board = gpu_server(tmp_path)
    (board.sysfs / "module/nvidia_peermem").rmdir()
    (found,) = wrong(look(board))
    assert (found.check, found.remedy.split(",")[0]) == ("GPUDirect", "modprobe nvidia_peermem")


def test_how_far_gpus_are_is_told_and_no_fault(tmp_path):
    board = gpu_server(tmp_path)
    for address in ("0000:14:00.0", "0000:24:00.0"):
        (board.sysfs / "bus/pci/devices" / address).unlink()
    said = look(board)
    assert wrong(said) == []
    (told,) = (each for each in said if each.check == "GPU distance")
    assert "rnic0 in another NUMA node" in told.text
    assert "rnic2 behind the same switch" in told.text


@pytest.mark.parametrize("driver", ["amdgpu", "vfio-pci"])
def test_gpus_of_other_drivers_cannot_be_told(tmp_path, driver):
    board = gpu_server(tmp_path)
    (board.sysfs / "module/nvidia_peermem").rmdir()
    for n in range(1, 5):
        link = board.placed[f"0000:{n}4:00.0"] / "driver"
        link.unlink()
        link.symlink_to(f"../../bus/pci/drivers/{driver}")
    said = look(board)
    assert wrong(said) == []
    assert [e.text for e in said if e.state is State.UNKNOWN] == [
        f"4 GPUs of other drivers ({driver}), whose way is not known"
    ]
