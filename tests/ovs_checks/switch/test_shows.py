# SPDX-License-Identifier: Apache-2.0
"""Readers of what Open vSwitch shows of settings, on what 3.1 printed (`dumps/settings.show`)."""

from pathlib import Path

import pytest

from ovs_checks.switch.bonds import parse_bonds
from ovs_checks.switch.shows import parse_fragments, parse_options, parse_ports, parse_tree
from ovs_checks.switch.snapshot import TunnelOption

SHOWN = (Path(__file__).parents[1] / "dumps" / "settings.show").read_text()
BRIDGE = "OFPT_GET_CONFIG_REPLY (OF1.5) (xid=0x5): frags={} miss_send_len=0\n"


def test_states_of_spanning_trees_are_those_of_the_ports():
    """Whether told by `stp/show` or `rstp/show`: blocked is blocked."""
    assert parse_tree(SHOWN) == {
        **dict.fromkeys(("br0p1", "br0p2", "br0p3"), "listening"),
        **dict.fromkeys(("br1p1", "br1p2", "br1p3"), "blocked"),
    }


def test_a_bond_whose_members_are_down_has_none_that_may_send():
    bond = parse_bonds(SHOWN)["bond0"]
    assert (bond.mode, bond.lacp, bond.recirculation) == ("balance-tcp", "negotiated", 1)
    assert [(member.name, member.may_enable) for member in bond.members] == [
        ("b1", False),
        ("b2", False),
    ]
    assert (bond.enabled, bond.active, bond.lb_output) == ((), "", None)


def test_ports_are_live_or_not():
    shown = parse_ports(SHOWN.replace("LIVE", "0", 1))
    assert [(port.number, port.name, port.live) for port in shown[:2]] == [
        (1, "br0p1", False),
        (2, "br0p2", True),
    ]


@pytest.mark.parametrize("mode", ["drop", "nx-match"])
def test_fragments_match_as_the_bridge_says(mode):
    assert parse_fragments(BRIDGE.format(mode)) == mode
    assert parse_fragments(SHOWN) == "normal"
    assert parse_fragments("OFPT_ERROR") == "normal"


def test_tunnel_options_are_numbers_in_either_notation():
    head = " class  type  length  match field\n"
    rows = "0xffff  0x09  4  tun_metadata0\n  09  1  8  tun_metadata63\nnonsense\n"
    assert parse_options(head + rows) == (
        TunnelOption(0xFFFF, 9, 4, 0),
        TunnelOption(9, 1, 8, 63),
    )
