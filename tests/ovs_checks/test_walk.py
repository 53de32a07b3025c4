# SPDX-License-Identifier: Apache-2.0
import json
from contextlib import suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.errors import RemoteProtocolError
from ovs_checks.packet import Header
from ovs_checks.parse import parse_flow
from ovs_checks.walk import End, LocalWalk, Opinion, Quote, Step

QUOTE = Quote("br", 40, 100, 0xFFFFFFFFFFFFFFFF, None, 7, "priority=100 actions=drop")


def walk_of(*kinds):
    ends = tuple(End(kind, "br", n, "because") for n, kind in enumerate(kinds))
    return LocalWalk("h0", "br", "p1", ends, ())


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        (("dropped", "output", "tunnelled"), 1),
        (("dropped", "cannot_tell"), 1),
        (("missed", "loop", "controller"), 1),
        (("loop", "cannot_tell"), 1),
        (("dropped", "controller"), 1),
        (("dropped", "missed"), 1),
        (("missed", "dropped"), 1),
    ],
)
def test_the_end_that_counts(kinds, chosen):
    assert walk_of(*kinds).end.table == chosen


FULL = LocalWalk(
    "h0",
    "br",
    "p1",
    (
        End(
            *("tunnelled", "br", 40, "out", Header(in_port=3, ipv6_src=1 << 127), "vx", QUOTE),
            *(QUOTE, "nw_dst", (QUOTE, QUOTE), (1 << 64) - 1, "1.2.3.4", "1.2.3.5", QUOTE, QUOTE),
            *("reply", QUOTE),
        ),
        End("missed", "br", 0, "nothing"),
    ),
    (Step(0, "br/table=0", "a flow"), Step(1, "", "a remark")),
    Opinion("differs", "drop", "3"),
)


def test_a_walk_survives_json_and_msgpack():
    assert LocalWalk.from_data(json.loads(json.dumps(FULL.to_data()))) == FULL
    assert LocalWalk.from_data(msgpack.unpackb(msgpack.packb(FULL.to_data()))) == FULL


def test_what_a_newer_version_adds_is_passed_over():
    data = FULL.to_data()
    data["new"] = 1
    data["ends"][0]["new"] = {}
    assert LocalWalk.from_data(data) == FULL


def test_a_quote_says_where_it_is():
    flow = parse_flow("table=40,cookie=5,n_packets=1,n_bytes=2,priority=9 actions=drop")
    quote = Quote.of("br", flow)
    assert quote == Quote("br", 40, 9, 5, 1, 2, flow.text)
    assert QUOTE.place == "br/table=40"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(_json, st.data())
def test_anything_else_is_a_protocol_error(junk, data):
    """Junk alone, and junk in the place of any one part."""
    with pytest.raises(RemoteProtocolError):
        LocalWalk.from_data(junk)
    walk = FULL.to_data()
    spot = data.draw(
        st.sampled_from((walk, walk["ends"][0], walk["ends"][0]["flow"], walk["opinion"]))
    )
    key = data.draw(st.sampled_from(sorted(spot)))
    spot[key] = junk
    with suppress(RemoteProtocolError):
        taken = LocalWalk.from_data(walk)
        assert LocalWalk.from_data(taken.to_data()) == taken


def test_a_walk_has_an_end_of_a_known_kind():
    for change in ({"ends": []}, {"ends": [{**FULL.to_data()["ends"][1], "kind": "eaten"}]}):
        with pytest.raises(RemoteProtocolError):
            LocalWalk.from_data({**FULL.to_data(), **change})
