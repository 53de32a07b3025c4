# SPDX-License-Identifier: Apache-2.0
"""Logical ports that a controller put somewhere, and that no host says it has plugged in. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from analyzer.intent.model import Chassis, Intent, Port
from netagent.wire.controller import ControllerState


@dataclass(frozen=True, slots=True)
class Unplugged:
    """A port that is placed, and reported by nobody."""

    port: Port
    chassis: Chassis
    host: str
    """Agent that says it is this chassis, else the chassis' host by its controller; "" where
    neither is said."""
    is_said: bool
    """Whether that agent says what it has plugged in."""


def unplugged(intent: Intent, states: Mapping[str, ControllerState]) -> Iterator[Unplugged]:
    """Yield the ports of `intent`, by name; `states` are what hosts said last, by host."""
    plugged = {port.name for state in states.values() for port in state.ports}
    host_of = {state.chassis: host for host, state in states.items() if state.chassis}
    for name, placement in sorted(intent.placements.items()):
        port = intent.ports.get(name)
        if port is None or not placement.chassis or name in plugged:
            continue
        chassis = intent.chassis.get(placement.chassis, Chassis(placement.chassis))
        host = host_of.get(chassis.name, "")
        yield Unplugged(port, chassis, host or chassis.hostname, bool(host))
