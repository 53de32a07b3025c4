# SPDX-License-Identifier: Apache-2.0
"""From a walk as `ovs_checks` has it to the walk on the wire, and back.

`ovs_checks` does not know the wire, and the agent, which only passes walks on, does not load
`ovs_checks`: so neither side's module can hold this.
"""

from dataclasses import asdict, fields
from typing import Any

from msgspec import UNSET, structs

from netagent.model.errors import RemoteProtocolError
from ovs_checks.datapath.key import parse_options
from ovs_checks.openflow.notation import format_header
from ovs_checks.openflow.parse import MalformedLine, parse_header
from ovs_checks.translate.ends import End, Quote
from ovs_checks.walk.values import LocalWalk, Opinion, Step

from . import walk as wire

MAX_LEVEL = 256
"""Most depth of a walk's steps. Chosen: Open vSwitch goes 64 deep, and each bridge begins anew."""


def walk_to_wire(walk: LocalWalk) -> wire.LocalWalk:
    """Return the message that says what `walk` does."""
    return wire.LocalWalk(
        host=walk.host,
        bridge=walk.bridge,
        port=walk.port,
        ends=tuple(_end_to_wire(end) for end in walk.ends),
        steps=tuple(wire.Step(step.level, step.where, step.text) for step in walk.steps),
        opinion=wire.Opinion(**asdict(walk.opinion)) if walk.opinion else None,
    )


def _end_to_wire(end: End) -> wire.End:
    values = {column.name: _value_to_wire(getattr(end, column.name)) for column in fields(end)}
    return wire.End(**{**values, "header": format_header(end.header)})


def _value_to_wire(value: Any) -> Any:
    match value:
        case None:
            return UNSET
        case Quote():
            return wire.Quote(**asdict(value))
        case [Quote(), *_]:
            return tuple(wire.Quote(**asdict(quote)) for quote in value)
    return value


def walk_from_wire(walk: wire.LocalWalk) -> LocalWalk:
    """Return the walk that a message describes.

    Raises
    ------
    RemoteProtocolError
        If the header of an end is no packet, or the steps are too many or too deep to print.
    """
    try:
        ends = tuple(_end_from_wire(end) for end in walk.ends)
    except MalformedLine as error:
        raise RemoteProtocolError(f"no walk through a vSwitch: {error}"[:200]) from error
    if any(not 0 <= step.level <= MAX_LEVEL for step in walk.steps):
        raise RemoteProtocolError("a walk deeper than any that is printed")
    steps = tuple(Step(step.level, step.where, step.text) for step in walk.steps)
    opinion = Opinion(**structs.asdict(walk.opinion)) if walk.opinion else None
    return LocalWalk(walk.host, walk.bridge, walk.port, ends, steps, opinion)


def _end_from_wire(end: wire.End) -> End:
    try:
        list(parse_options(end.options))
    except ValueError as error:
        raise RemoteProtocolError(f"no walk through a vSwitch: {error}"[:200]) from error
    values = {name: _value_from_wire(value) for name, value in structs.asdict(end).items()}
    return End(**{**values, "header": parse_header(end.header)})


def _value_from_wire(value: Any) -> Any:
    match value:
        case wire.Quote():
            return Quote(**structs.asdict(value))
        case [wire.Quote(), *_]:
            return tuple(Quote(**structs.asdict(quote)) for quote in value)
    return None if value is UNSET else value
