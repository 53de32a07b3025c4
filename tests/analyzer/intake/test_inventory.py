# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intake.inventory import Aspect, parts_of
from netagent.model.errors import RemoteProtocolError
from netagent.model.path import Kind
from netagent.wire.codec import decode, encode
from netagent.wire.inventory import MOST_RNICS, MOST_TEXT, Inventory, RnicInventory

FULL = RnicInventory(
    netdev="rnic0", model="15b3:1021", board="MT_1", firmware="28.39.1002", driver="mlx5_core",
    pfc=(4, 3), dcqcn=(), trust="dscp", mtu=9000, mbps=400_000, offload=True,
)  # fmt: skip
CX7 = "15b3:1021 MT_1"


def test_each_property_is_an_aspect_of_the_model():
    inventory = Inventory(
        rnics=(FULL,), kernel="6.1", ovs="3.1.0", hw_offload=False, netagent="1.2.0"
    )
    found = parts_of("h0", inventory)
    rnic = {a.what: v for a, v in found.items() if (a.kind, a.model) == (Kind.RNIC, CX7)}
    assert rnic == {
        what: {value: ("h0/rnic0",)}
        for what, value in {
            "firmware": "28.39.1002", "driver": "mlx5_core", "PFC priorities": "3,4",
            "DCQCN priorities": "none", "trust": "dscp", "MTU": "9000",
            "speed": "400 Gb/s", "hw-tc-offload": "on",
        }.items()
    }  # fmt: skip
    host = {a.what: v for a, v in found.items() if (a.kind, a.model) == (Kind.HOST, CX7)}
    assert host == {
        what: {value: ("h0",)}
        for what, value in {
            "kernel": "6.1", "Open vSwitch": "3.1.0", "hw-offload": "off", "netagent": "1.2.0"
        }.items()
    }  # fmt: skip
    assert len(found) == len(rnic) + len(host)


def test_what_is_absent_is_compared_with_nothing():
    assert parts_of("h0", Inventory()) == {}
    assert parts_of("h0", Inventory(rnics=(RnicInventory(netdev="r", model="m"),))) == {}
    assert parts_of("h0", Inventory(rnics=(RnicInventory(netdev="r", firmware="1"),))) == {}
    assert parts_of("h0", Inventory(kernel="6.1")) == {
        Aspect(Kind.HOST, "", "kernel"): {"6.1": ("h0",)}
    }


def test_a_host_is_of_the_kind_that_most_of_its_rnics_are():
    rnics = [RnicInventory(netdev=f"r{n}", model=m) for n, m in enumerate(["b", "a", "b", "c"])]
    (aspect,) = parts_of("h0", Inventory(rnics=tuple(rnics), kernel="6.1"))
    assert aspect == Aspect(Kind.HOST, "b", "kernel")


@pytest.mark.parametrize(
    "inventory",
    [
        Inventory(kernel="k" * (MOST_TEXT + 1)),
        Inventory(ovs="\x1b[2J"),
        Inventory(rnics=(RnicInventory(netdev="r", firmware="1\n2"),)),
        Inventory(rnics=(RnicInventory(netdev="r" * (MOST_TEXT + 1)),)),
        Inventory(rnics=(RnicInventory(netdev="r", trust="\t"),)),
        Inventory(rnics=(RnicInventory(netdev="r", pfc=(8,)),)),
        Inventory(rnics=(RnicInventory(netdev="r", dcqcn=(-1,)),)),
        Inventory(rnics=(RnicInventory(netdev="r", mtu=-1),)),
        Inventory(rnics=(RnicInventory(netdev="r", mbps=1 << 62),)),
        Inventory(rnics=(RnicInventory(netdev="r"),) * 2),
        Inventory(rnics=tuple(RnicInventory(netdev=f"r{n}") for n in range(MOST_RNICS + 1))),
    ],
)  # fmt: skip
def test_what_no_agent_says_is_refused(inventory):
    with pytest.raises(RemoteProtocolError, match="an inventory"):
        parts_of("h0", inventory)


def test_more_priorities_than_there_are_cost_nothing():
    many = encode({"rnics": [{"netdev": "r", "pfc": [1] * 9}]})
    with pytest.raises(RemoteProtocolError, match="length <= 8"):
        decode(many, Inventory)


RNICS = st.builds(
    RnicInventory,
    netdev=st.text(max_size=70),
    model=st.text(max_size=3),
    board=st.text(max_size=3),
    firmware=st.text(max_size=70),
    pfc=st.none() | st.lists(st.integers(-1, 9)).map(tuple),
    mtu=st.none() | st.integers(-1, 1 << 40),
    offload=st.none() | st.booleans(),
)


@given(st.builds(Inventory, rnics=st.lists(RNICS, max_size=70).map(tuple), kernel=st.text()))
def test_whatever_comes_is_refused_or_bounded(inventory):
    try:
        found = parts_of("h0", decode(encode(inventory), Inventory))
    except RemoteProtocolError:
        return
    for aspect, values in found.items():
        names = [name for each in values.values() for name in each]
        assert len(set(names)) == len(names) <= MOST_RNICS
        assert len(aspect.model) <= 2 * MOST_TEXT + 1
        assert all(value.isprintable() for value in values)
