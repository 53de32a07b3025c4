# SPDX-License-Identifier: Apache-2.0
from analyzer.intent.model import Chassis, Intent, Placement, Port
from analyzer.intent.unplugged import Unplugged, unplugged
from netagent.wire.controller import ControllerState, PluggedPort

A, B, C, D, E = (Port(name) for name in "abcde")
ONE, TWO = Chassis("one", "h1.example"), Chassis("two", "h2")
INTENT = Intent(
    "ovn", 1, ports={port.name: port for port in (A, B, C, D, E)}, chassis={"one": ONE, "two": TWO},
    placements={
        "a": Placement("a", "one"), "b": Placement("b", "one"), "c": Placement("c"),
        "d": Placement("d", "two"), "e": Placement("e", "gone"),
        "router": Placement("router", "one"),
    },
)  # fmt: skip


def test_ports_that_are_placed_and_that_no_host_has_are_told_with_who_should():
    state = ControllerState(
        source="ovn", chassis="one", ports=(PluggedPort(name="a", interface="v"),)
    )
    assert list(unplugged(INTENT, {"h1": state})) == [
        Unplugged(B, ONE, "h1", is_said=True),
        Unplugged(D, TWO, "h2", is_said=False),
        Unplugged(E, Chassis("gone"), "", is_said=False),
    ]


def test_a_port_that_another_host_has_is_plugged_in():
    state = ControllerState(
        source="ovn", chassis="two", ports=(PluggedPort(name="b", interface="v"),)
    )
    assert "b" not in [each.port.name for each in unplugged(INTENT, {"h2": state})]
