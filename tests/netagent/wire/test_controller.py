# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import decode, encode
from netagent.wire.controller import MOST_TEXT, ControllerState, PluggedPort, Working

STATE = ControllerState(
    source="ovn",
    chassis="h1",
    encapsulations=("10.99.0.1", "10.99.1.1"),
    working=Working.CONNECTED,
    generation=7,
    ports=(PluggedPort(name="train-a-0-0", interface="veth0", is_installed=True),),
)


def test_a_state_comes_out_as_it_went_in():
    assert decode(encode(STATE), ControllerState) == STATE


def test_how_a_later_agent_finds_its_controller_is_unknown_here():
    said = msgspec.to_builtins(STATE) | {"working": "asleep"}
    assert decode(encode(said), ControllerState).working is Working.UNKNOWN


def test_a_text_without_end_is_refused():
    said = msgspec.to_builtins(STATE) | {"chassis": "h" * (MOST_TEXT + 1)}
    with pytest.raises(RemoteProtocolError):
        decode(encode(said), ControllerState)
