# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from netagent.host.checks.contract import State
from netagent.model.path import Component, Kind, rnic
from tests.netagent.host.checks.healthy import HEALTHY, VIEW, look, wrong
from tests.netagent.server_board import gpu_server


@pytest.mark.parametrize(
    ("settings", "check"),
    [
        (replace(HEALTHY, firmware="28.37.0001"), "firmware"),
        (replace(HEALTHY, driver_version="5.8"), "firmware"),
        (replace(HEALTHY, pause=()), "PFC and DCQCN"),
        (replace(HEALTHY, pause=(3, 4)), "PFC and DCQCN"),
    ],
)
def test_an_rnic_that_is_set_up_otherwise_than_all_others_is_named(tmp_path, settings, check):
    (found,) = wrong(look(gpu_server(tmp_path), odd={"rnic1": settings}))
    assert (found.check, found.component) == (check, rnic("h0", "rnic1"))


def test_another_model_may_have_another_firmware(tmp_path):
    board = gpu_server(tmp_path)
    board.say("0000:23:00.0", device="0xa2dc")
    assert wrong(look(board, odd={"rnic1": replace(HEALTHY, firmware="32.41")})) == []


def in_switchdev(folder):
    board = gpu_server(folder)
    for n in range(4):
        board.representor(f"rep{n}", f"rnic{n}", f"pf{n}vf3")
    return board, replace(VIEW, settings={"hw-offload": "true"})


def test_a_switch_of_which_no_port_is_here_is_one_in_legacy_mode(tmp_path):
    """Drivers tell its identity there, too: mlx5e_devlink_port_register of the kernel's mlx5."""
    board, view = in_switchdev(tmp_path)
    for n in range(4):
        (board.sysfs / f"class/net/rep{n}/phys_port_name").write_text("p1\n")
        board.say(f"0000:{n + 1}3:00.0", sriov_numvfs="8")
    off = {f"rnic{n}": replace(HEALTHY, offload=False) for n in range(4)}
    said = look(board, replace(view, settings={}), odd=off)
    assert wrong(said) == []
    unknown = [each.check for each in said if each.state is State.UNKNOWN]
    assert unknown == ["virtual functions"] * 4


def test_offload_that_is_on_everywhere_is_well(tmp_path):
    board, view = in_switchdev(tmp_path)
    assert wrong(look(board, view)) == []


def test_open_vswitch_that_does_not_offload_is_named(tmp_path):
    board, _ = in_switchdev(tmp_path)
    (found,) = wrong(look(board))
    assert (found.check, found.component) == ("offload", Component(Kind.HOST, "h0"))


def test_an_rnic_that_takes_no_flows_is_named(tmp_path):
    board, view = in_switchdev(tmp_path)
    (found,) = wrong(look(board, view, odd={"rnic2": replace(HEALTHY, offload=False)}))
    assert (found.check, found.component) == ("offload", rnic("h0", "rnic2"))


def test_functions_without_a_switch_are_told_for_nobody_finds_who_is_behind_them(tmp_path):
    board, view = in_switchdev(tmp_path)
    for n in range(1, 5):
        board.say(f"0000:{n}3:00.0", sriov_numvfs="8")
    told = [each for each in look(board, view) if each.check == "virtual functions"]
    assert [(each.state, each.text) for each in told] == [
        (State.OK, "32, each with its representor")
    ]
    (board.sysfs / "class/net/rnic2/phys_switch_id").write_text("77\n")
    (found,) = (each for each in look(board, view) if each.check == "virtual functions")
    assert (found.state, found.component) == (State.UNKNOWN, rnic("h0", "rnic2"))
    assert found.text.startswith("rnic2 has 8 virtual functions and no switch")
