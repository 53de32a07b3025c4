# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.controller import check_controller
from netagent.model.address import canonical
from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import decode, encode
from netagent.wire.controller import (
    MOST_ADDRESSES,
    MOST_GENERATION,
    MOST_PORTS,
    MOST_TEXT,
    ControllerState,
    PluggedPort,
    Working,
)

PORT = PluggedPort(
    name="p1-0", interface="veth0", mac="0a:58:0a:00:00:01", addresses=("10.0.0.1", "fd00::1")
)
FULL = ControllerState(
    source="ovn",
    chassis="h1",
    central="tcp:10.98.0.1:6642",
    kinds=("geneve",),
    encapsulations=("10.99.0.1", "10.99.0"),
    addresses=("10.99.0.1",),
    working=Working.CONNECTED,
    generation=MOST_GENERATION,
    ports=(PORT, PluggedPort(name="p1-0", interface="veth1")),
)
LONG, ESCAPE = "x" * (MOST_TEXT + 1), "\x1b[2J"


def changed(**fields):
    return msgspec.structs.replace(FULL, **fields)


def ported(**fields):
    return changed(ports=(msgspec.structs.replace(PORT, **fields),))


def test_what_agents_say_is_taken_and_two_interfaces_may_claim_one_port():
    check_controller(FULL)
    check_controller(ControllerState(source="ovn"))
    check_controller(changed(chassis="x" * MOST_TEXT, addresses=("10.0.0.1",) * MOST_ADDRESSES))
    check_controller(
        changed(ports=tuple(PluggedPort(name="p", interface=f"{n}") for n in range(MOST_PORTS)))
    )


@pytest.mark.parametrize(
    "state",
    [
        changed(source=""),
        changed(generation=-1),
        changed(generation=MOST_GENERATION + 1),
        *(changed(**{field: odd}) for field in ("source", "chassis", "central")
          for odd in (LONG, ESCAPE)),
        *(changed(**{field: (odd,)}) for field in ("kinds", "encapsulations", "addresses")
          for odd in (LONG, ESCAPE)),
        *(changed(**{field: ("10.0.0.1",) * (MOST_ADDRESSES + 1)})
          for field in ("kinds", "encapsulations", "addresses")),
        changed(addresses=("10.99.0",)),
        changed(addresses=("FD00::1",)),
        *(ported(**{field: odd}) for field in ("name", "interface", "mac")
          for odd in (LONG, ESCAPE)),
        ported(name=""),
        ported(interface=""),
        ported(addresses=("fe80::1",)),
        ported(addresses=("10.0.0.1",) * (MOST_ADDRESSES + 1)),
        changed(ports=(PORT, PORT)),
        changed(
            ports=tuple(PluggedPort(name="p", interface=f"{n}") for n in range(MOST_PORTS + 1))
        ),
    ],
)  # fmt: skip
def test_what_no_agent_says_is_refused(state):
    check_controller(FULL)
    with pytest.raises(RemoteProtocolError, match="a controller"):
        check_controller(decode(encode(state), ControllerState))


TEXTS = st.text(max_size=5) | st.sampled_from(["10.0.0.1", "fd00::1", "fe80::1", LONG])
SEVERAL = st.lists(TEXTS, max_size=4).map(tuple)
STATES = st.builds(
    ControllerState,
    source=TEXTS,
    chassis=TEXTS,
    kinds=SEVERAL,
    addresses=SEVERAL,
    working=st.sampled_from(Working),
    generation=st.integers(-(1 << 63), (1 << 64) - 1) | st.none(),
    ports=st.lists(
        st.builds(PluggedPort, name=TEXTS, interface=TEXTS, mac=TEXTS, addresses=SEVERAL),
        max_size=4,
    ).map(tuple),
)


@given(STATES)
def test_whatever_comes_is_refused_or_bounded(state):
    try:
        check_controller(decode(encode(state), ControllerState))
    except RemoteProtocolError:
        return
    ports = state.ports
    told = [state.source, state.chassis, *state.kinds, *(p.name for p in ports)]
    assert all(len(text) <= MOST_TEXT and text.isprintable() for text in told)
    assert len({each.interface for each in ports}) == len(ports)
    own = [*state.addresses, *(address for each in ports for address in each.addresses)]
    assert [canonical(each) for each in own] == own
