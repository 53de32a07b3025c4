# SPDX-License-Identifier: Apache-2.0
"""What a host says of its part of a controller, held to what an agent can say."""

from collections.abc import Iterator, Sequence

from netagent.model.address import canonical
from netagent.model.errors import RemoteProtocolError
from netagent.wire.controller import (
    MOST_ADDRESSES,
    MOST_GENERATION,
    MOST_PORTS,
    MOST_TEXT,
    ControllerState,
    PluggedPort,
)


def check_controller(state: ControllerState) -> None:
    """Raise RemoteProtocolError for what is longer than agents make it, or cannot be.

    Two interfaces of one host may claim one logical port: that is a fault, and told.
    """
    if not state.source:
        raise RemoteProtocolError("a controller of no kind")
    if state.generation is not None and not 0 <= state.generation <= MOST_GENERATION:
        raise RemoteProtocolError(f"a controller with the generation {state.generation}")
    _check_ports(state.ports)
    for text in _texts(state):
        if len(text) > MOST_TEXT or not text.isprintable():
            raise RemoteProtocolError(f"a controller with the text {text[:MOST_TEXT]!r}")
    own = (state.addresses, *(each.addresses for each in state.ports))
    for several in (state.kinds, state.encapsulations, *own):
        if len(several) > MOST_ADDRESSES:
            raise RemoteProtocolError(f"a controller with {len(several)} addresses of one kind")
    for address in (each for several in own for each in several):
        if canonical(address) != address:
            raise RemoteProtocolError(f"a controller with the address {address!r}")


def _check_ports(ports: Sequence[PluggedPort]) -> None:
    if len(ports) > MOST_PORTS:
        raise RemoteProtocolError(f"a controller with {len(ports)} ports; {MOST_PORTS} at most")
    if not all(each.name and each.interface for each in ports):
        raise RemoteProtocolError("a controller with a port without a name")
    if len({each.interface for each in ports}) < len(ports):
        raise RemoteProtocolError("a controller that has an interface twice")


def _texts(state: ControllerState) -> Iterator[str]:
    yield from (state.source, state.chassis, state.central)
    yield from (*state.kinds, *state.encapsulations, *state.addresses)
    for each in state.ports:
        yield from (each.name, each.interface, each.mac, *each.addresses)
