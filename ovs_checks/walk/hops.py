# SPDX-License-Identifier: Apache-2.0
"""The parts of two hosts that a walk met, and what each did with the packet."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from netagent.model.path import Component, flow_table, vswitch

from .reach import Reach
from .values import Step

MAX_DIGITS = 3
"""Digits of a table's number: OpenFlow has 255 tables."""

Action = Literal["forwarded", "delivered", "dropped", "unknown"]


@dataclass(frozen=True, slots=True)
class Hop:
    """One part that a packet met."""

    line: int
    """The first of its lines in the walk's outline; the next hop's come behind them."""
    host: str
    component: Component
    action: Action
    """`dropped`: it stops here, or is sent astray from here."""


def hops(reach: Reach) -> list[Hop]:
    """Return what a packet met, in order. The part that the walk names says how it ended."""
    found = list(_met(reach.steps))
    if reach.outcome == "delivered":
        return [*found[:-1], *(replace(hop, action="delivered") for hop in found[-1:])]
    action: Action = "unknown" if reach.outcome == "cannot_tell" else "dropped"
    if reach.component is None:
        return found
    for n in reversed(range(len(found))):
        if found[n].component == reach.component:
            return [*found[:n], replace(found[n], action=action), *found[n + 1 :]]
    # What no table did: a tunnel that nobody set up, a port that is not there.
    host = reach.component.name.partition("/")[0]
    return [*found, Hop(len(reach.steps), host, reach.component, action)]


def _met(steps: tuple[Step, ...]) -> Iterator[Hop]:
    for line, step in enumerate(steps):
        bridge, _, table = step.where.rpartition("/table=")
        if bridge and table.isdecimal() and len(table) <= MAX_DIGITS:
            yield Hop(line, step.host, flow_table(step.host, bridge, int(table)), "forwarded")
        elif step.where and step.where == step.host:
            yield Hop(line, step.host, vswitch(step.host), "forwarded")
