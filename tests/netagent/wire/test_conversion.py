# SPDX-License-Identifier: Apache-2.0
import json
from contextlib import nullcontext, suppress
from dataclasses import fields

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import RemoteProtocolError
from netagent.wire import walk as wire
from netagent.wire.codec import ContentType, decode, encode
from netagent.wire.conversion import MAX_LEVEL, walk_from_wire, walk_to_wire
from netagent.wire.messages import CheckReply
from ovs_checks.openflow.packet import Header
from ovs_checks.translate.ends import End, Quote
from ovs_checks.walk.values import LocalWalk, Opinion, Step

QUOTE = Quote("br", 40, 100, 0xFFFFFFFFFFFFFFFF, None, 7, "priority=100 actions=drop")
FULL = LocalWalk(
    "h0",
    "br",
    "p1",
    (
        End(
            *("tunnelled", "br", 40, "out", Header(in_port=3, ipv6_src=1 << 127), "vx", QUOTE),
            *(QUOTE, "nw_dst", (QUOTE, QUOTE), (1 << 64) - 1, "1.2.3.4", "1.2.3.5"),
            *("{class=0x102,type=0x80,len=4,0x1}", QUOTE, QUOTE),
            *("reply", QUOTE),
        ),
        End("missed", "br", 0, "nothing"),
    ),
    (Step(0, "br/table=0", "a flow"), Step(1, "", "a remark")),
    Opinion("differs", "drop", "3"),
)


def data_of(walk):
    """Return what travels as JSON, decoded by nobody of ours."""
    return json.loads(encode(walk_to_wire(walk), ContentType.JSON))


def taken(data):
    """Return the walk that a peer's JSON says, as the analyzer gets it."""
    body = json.dumps({"walks": [data], "wall_ns": 1}).encode()
    (walk,) = decode(body, CheckReply, ContentType.JSON).walks
    return walk_from_wire(walk)


@pytest.mark.parametrize("form", list(ContentType))
def test_a_walk_survives_json_and_msgpack(form):
    reply = CheckReply(walks=(walk_to_wire(FULL),), wall_ns=1)
    (walk,) = decode(encode(reply, form), CheckReply, form).walks
    assert walk_from_wire(walk) == FULL


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (LocalWalk, wire.LocalWalk),
        (End, wire.End),
        (Quote, wire.Quote),
        (Step, wire.Step),
        (Opinion, wire.Opinion),
    ],
)
def test_both_have_the_same_fields(value, message):
    # A walk that travels is of one host, and says so once.
    joined = {"host"} if value is Step else set()
    assert {column.name for column in fields(value)} - joined == set(message.__struct_fields__)


def test_an_end_that_says_no_more_says_what_it_must():
    least = End("missed", "br", 0, "nothing")
    sent = wire.End(kind="missed", bridge="br", table=0, reason="nothing")
    assert walk_from_wire(wire.LocalWalk(host="", bridge="", port="", ends=(sent,), steps=())) == (
        LocalWalk("", "", "", (least,), ())
    )
    assert not {"flow", "nearest", "shadowed"} & set(msgspec.to_builtins(sent))


def test_what_a_newer_version_adds_is_passed_over():
    data = data_of(FULL)
    data["new"] = 1
    data["ends"][0]["new"] = {}
    assert taken(data) == FULL


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(_json, st.data())
def test_anything_else_is_a_protocol_error(junk, data):
    """Junk alone, and junk in the place of any one part."""
    with pytest.raises(RemoteProtocolError):
        taken(junk)
    walk = data_of(FULL)
    spot = data.draw(
        st.sampled_from((walk, walk["ends"][0], walk["ends"][0]["flow"], walk["opinion"]))
    )
    key = data.draw(st.sampled_from(sorted(spot)))
    spot[key] = junk
    with suppress(RemoteProtocolError):
        found = taken(walk)
        assert taken(data_of(found)) == found


def test_a_walk_has_an_end_of_a_known_kind():
    for change in ({"ends": []}, {"ends": [{**data_of(FULL)["ends"][1], "kind": "eaten"}]}):
        with pytest.raises(RemoteProtocolError):
            taken({**data_of(FULL), **change})


@pytest.mark.parametrize("number", [-2, 1 << 64, 1 << 70, True, "1", 1.5])
@pytest.mark.parametrize("key", ["table", "tun_id"])
def test_a_number_is_one_of_64_bits(key, number):
    data = data_of(FULL)
    data["ends"][0][key] = number
    with pytest.raises(RemoteProtocolError):
        taken(data)


def test_a_header_that_is_no_packet_is_refused():
    data = data_of(FULL)
    data["ends"][0]["header"] = "nw_dst=10.0.0.0/8"
    with pytest.raises(RemoteProtocolError, match="no walk through a vSwitch"):
        taken(data)


@pytest.mark.parametrize("level", [-1, MAX_LEVEL + 1, 1 << 62])
def test_steps_too_deep_to_print_are_refused(level):
    data = data_of(FULL)
    data["steps"][0][0] = level
    with pytest.raises(RemoteProtocolError):
        taken(data)


@pytest.mark.parametrize("options", ["garbage", "{class=1}", "{class=1,type=1,len=1,0x100}"])
def test_options_that_are_none_are_refused_before_another_host_is_asked_about_them(options):
    data = data_of(FULL)
    data["ends"][0]["options"] = options
    with pytest.raises(RemoteProtocolError, match="no walk through a vSwitch"):
        taken(data)


def test_more_options_than_a_packet_can_have_are_refused_and_not_cut():
    data = data_of(FULL)
    data["ends"][0]["options"] = "{class=0x102,type=0x80,len=4,0x1}" * 200
    with pytest.raises(RemoteProtocolError, match="options"):
        taken(data)


@pytest.mark.parametrize(("length", "refused"), [(wire.MAX_STEPS, False), (1 << 20, True)])
def test_steps_too_many_to_print_are_refused_before_they_are_decoded(length, refused):
    walk = walk_to_wire(FULL)
    longer = msgspec.structs.replace(walk, steps=walk.steps[:1] * length)
    body = encode(CheckReply(walks=(longer,), wall_ns=1))
    with pytest.raises(RemoteProtocolError) if refused else nullcontext():
        assert len(decode(body, CheckReply).walks[0].steps) == length


def test_a_reason_that_no_agent_would_give_is_no_walk():
    """It becomes an incident's sentence, and is stored and sent wherever that is."""
    data = data_of(FULL)
    data["ends"][0]["reason"] = "x" * (1 << 16)
    assert taken(data)
    data["ends"][0]["reason"] += "x"
    with pytest.raises(RemoteProtocolError):
        taken(data)
