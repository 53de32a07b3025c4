# SPDX-License-Identifier: Apache-2.0
"""The answer itself is compared with a real Open vSwitch in tests/ovs/test_validate.py."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from netagent.commands.validate import MAX_TRACES, _asking, conversation, cut, to_wire
from netagent.host.ports import ContainerPort
from netagent.model.errors import ConfigError, Unreachable
from netagent.model.ids import EndpointId
from netagent.model.path import vswitch
from netagent.wire.codec import decode, encode
from netagent.wire.validate import MAX_QUOTES, MAX_TEXT, Inconsistency, ValidateRequest
from ovs_checks.lint.finding import TableFinding
from ovs_checks.openflow.addresses import destination
from ovs_checks.openflow.packet import Header

A, B = (
    ContainerPort(EndpointId(name, 0), "t", f"port-{name}", f"10.0.0.1{n}", f"02:00:00:00:00:0{n}")
    for n, name in enumerate("ab")
)
REQUEST = ValidateRequest(
    local=A.id, remote_address=B.address, remote_mac=B.mac, local_underlay="172.30.0.1",
    remote_underlay="172.30.1.1", source_port=7, destination_port=9,
)  # fmt: skip


def test_both_directions_are_packets_to_the_port_that_is_probed():
    talk = conversation(REQUEST, A, [A, B])
    assert (talk.port, talk.here, talk.there) == ("port-a", "172.30.0.1", "172.30.1.1")
    assert (talk.out.nw_src, talk.out.nw_dst) == (talk.back.nw_dst, talk.back.nw_src)
    assert (talk.out.eth_src, talk.out.eth_dst) == (talk.back.eth_dst, talk.back.eth_src)
    assert {(h.tp_src, h.tp_dst) for h in (talk.out, talk.back)} == {(7, 9)}
    assert talk.neighbour == ""  # it is behind a tunnel, whoever has its addresses here


def test_without_a_tunnel_the_other_end_is_a_neighbour():
    near = structs.replace(REQUEST, local_underlay="", remote_underlay="")
    assert conversation(near, A, [A, B]).neighbour == "port-b"
    assert conversation(near, A, [A]).neighbour == ""


@pytest.mark.parametrize("change", [{"remote_mac": "x"}, {"remote_address": "10.0.0"}])
def test_an_address_that_is_none_is_a_wrong_question(change):
    with pytest.raises(ConfigError, match="question"):
        conversation(structs.replace(REQUEST, **change), A)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=3 * MAX_TEXT)


@given(texts, st.lists(st.tuples(texts, texts), max_size=2 * MAX_QUOTES))
def test_whatever_a_check_finds_fits_into_a_message(text, quotes):
    found = TableFinding("missing", "note", vswitch("h0"), text, tuple(quotes))
    sent = to_wire(found)
    assert decode(encode(sent), Inconsistency) == sent
    assert sent.text.rstrip("…") == text[: len(sent.text.rstrip("…"))]


def test_what_is_cut_shows_it():
    assert cut("x" * MAX_TEXT) == "x" * MAX_TEXT
    assert cut("x" * (MAX_TEXT + 1)).endswith("x…")


class Live:
    def __init__(self, *, fails):
        self.asked, self.fails = 0, fails

    def trace(self, _bridge, _packet):
        self.asked += 1
        if self.fails:
            raise Unreachable("vswitchd", "timeout")
        return "Datapath actions: 2"


@pytest.mark.parametrize(("fails", "asked"), [(False, MAX_TRACES), (True, 1)])
def test_the_live_switch_is_asked_a_few_times_and_not_again_once_it_is_slow(fails, asked):
    live = Live(fails=fails)
    trace = _asking(live)
    said = [trace("br-int", Header()) for _ in range(MAX_TRACES + 3)]
    assert live.asked == asked
    assert said.count("Datapath actions: 2") == (0 if fails else MAX_TRACES)


def test_a_conversation_by_ipv6_over_an_ipv6_tunnel():
    near = dataclasses.replace(A, address="fd00::a")
    asked = structs.replace(
        REQUEST, remote_address="fd00::b", local_underlay="FD30::1", remote_underlay="fd30:0::2"
    )
    talk = conversation(asked, near)
    assert (talk.here, talk.there) == ("fd30::1", "fd30::2")
    assert (talk.out.eth_type, destination(talk.out)) == (0x86DD, "fd00::b")
    assert destination(talk.back) == "fd00::a"


def test_ends_of_two_families_are_a_wrong_question():
    with pytest.raises(ConfigError, match="one is IPv4, one IPv6"):
        conversation(structs.replace(REQUEST, remote_address="fd00::b"), A)
