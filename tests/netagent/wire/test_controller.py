# SPDX-License-Identifier: Apache-2.0
import zlib

import msgspec
import pytest

from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import decode, deflated, encode
from netagent.wire.controller import MOST_ADDRESSES, ControllerState, PluggedPort, Working
from netagent.wire.messages import Summary, SummaryHead

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


def test_a_list_without_end_is_refused():
    said = msgspec.to_builtins(STATE) | {"kinds": ["geneve"] * (4 * MOST_ADDRESSES + 1)}
    with pytest.raises(RemoteProtocolError):
        decode(encode(said), ControllerState)


class OldHead(msgspec.Struct, frozen=True, kw_only=True):
    """Some fields of a summary as an analyzer from before controllers knew it."""

    host: str
    start_ns: int


WINDOW = {"host": "h0", "instance": "i", "start_ns": 5, "width_ns": 5}


def test_versions_of_which_only_one_knows_controllers_understand_each_other():
    new = encode(Summary(**WINDOW, controller=STATE))
    assert decode(new, OldHead) == OldHead(host="h0", start_ns=5)
    assert decode(new, SummaryHead).controller == STATE
    assert decode(encode(WINDOW), Summary).controller is None
    later = {**WINDOW, "controller": {"source": "antrea", "zones": [1]}}
    assert decode(encode(later), SummaryHead).controller == ControllerState(source="antrea")


def test_a_host_with_sixteen_ports_says_it_in_little():
    """What ovn-kubernetes' names and addresses take."""
    ports = tuple(
        PluggedPort(
            name=f"training_llama-70b-worker-{n // 8}",
            interface=f"{zlib.crc32(bytes([n])):08x}7a1c2_3",
            is_installed=True,
            mac=f"0a:58:0a:f4:{n % 8:02x}:{n:02x}",
            addresses=(f"10.244.{n % 8}.{n}",),
        )
        for n in range(16)
    )
    state = msgspec.structs.replace(
        STATE, ports=ports, kinds=("geneve",), addresses=STATE.encapsulations,
        central="ssl:10.1.0.1:6642,ssl:10.1.0.2:6642,ssl:10.1.0.3:6642",
    )  # fmt: skip
    assert len(encode(state)) < 2500
    assert len(deflated(encode(state))) < 1000
