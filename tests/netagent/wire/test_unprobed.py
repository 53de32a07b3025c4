# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from netagent.model.errors import RemoteProtocolError
from netagent.wire.codec import decode, deflated, encode
from netagent.wire.messages import Summary, SummaryHead
from netagent.wire.unprobed import MOST_PORTS, Unprobed, UnprobedPort, Why

PORT = UnprobedPort(port="veth0", why=Why.NO_RAIL, text="it has none", bridge="br-int", task="t")
SAID = Unprobed(ports=(PORT,), count=2)
WINDOW = {"host": "h0", "instance": "i", "start_ns": 5, "width_ns": 5}


def test_what_is_said_comes_out_as_it_went_in_and_nothing_differs_from_none():
    for said in (SAID, Unprobed()):
        assert decode(encode(Summary(**WINDOW, unprobed=said)), SummaryHead).unprobed == said
    assert decode(encode(WINDOW), Summary).unprobed is None


def test_a_reason_of_a_later_agent_is_unknown_here():
    said = msgspec.to_builtins(SAID)
    said["ports"][0]["why"] = "bewitched"
    assert decode(encode(said), Unprobed).ports[0].why is Why.UNKNOWN


def test_a_list_without_end_is_refused():
    said = msgspec.to_builtins(SAID) | {"ports": [msgspec.to_builtins(PORT)] * (4 * MOST_PORTS + 1)}
    with pytest.raises(RemoteProtocolError):
        decode(encode(said), Unprobed)


def test_forty_pods_of_others_are_said_in_little():
    """As ovn-kubernetes names what runs on each node of a cluster."""
    ports = tuple(
        UnprobedPort(
            port=f"{n * 7919:08x}7a1c2_3", why=Why.NO_RAIL, bridge="br-int", task="kube-system",
            text="it has no encap-ip, and stands for no function of an RNIC",
            name=f"kube-system_coredns-5d78c9869d-{n:05x}", container=f"{n * 7919:064x}",
        )
        for n in range(40)
    )  # fmt: skip
    assert len(deflated(encode(Unprobed(ports=ports, count=40)))) < 1500
