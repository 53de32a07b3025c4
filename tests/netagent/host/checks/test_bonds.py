# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from netagent.host.checks.contract import State
from netagent.model.path import Component, Kind
from tests.netagent.host.checks.healthy import UPLINKS, VIEW, look, wrong
from tests.netagent.server_board import gpu_server


def with_bond(*members):
    return replace(VIEW, uplinks=(replace(UPLINKS[0], bond="bond0", members=members), *UPLINKS[1:]))


def test_a_bond_of_two_is_well(tmp_path):
    said = look(gpu_server(tmp_path), with_bond("rnic0", "rnic1"))
    assert wrong(said) == []
    (told,) = (each for each in said if each.check == "bonds")
    assert (told.state, told.text) == (State.OK, "bond0: rnic0 rnic1")


@pytest.mark.parametrize(("members", "text"), [(("rnic0",), "only rnic0"), ((), "no device")])
def test_a_bond_that_is_none_is_told(tmp_path, members, text):
    (found,) = wrong(look(gpu_server(tmp_path), with_bond(*members)))
    assert (found.check, found.component) == ("bonds", Component(Kind.HOST, "h0"))
    assert text in found.text
