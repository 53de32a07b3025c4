# SPDX-License-Identifier: Apache-2.0
"""Matches of logical flows, against one that tries every way the rest of a packet may be."""

import contextlib
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.intent.matches import Can, Local, can_hold
from netagent.model.errors import RemoteProtocolError

ODD = 'odd "name"'
LOCAL = Local(
    ports=frozenset({"here", ODD}),
    resident=frozenset({"here"}),
    groups={"ours": frozenset({"here", "there"}), "theirs": frozenset({"there"})},
    empty=frozenset({"none"}),
)

KNOWN = {
    "1": True,
    "0": False,
    'inport == "there"': False,
    'inport == {"there", "elsewhere"}': False,
    "inport == @theirs": False,
    "ip4.src == $none": False,
    "$none == ip4.dst": False,
    'is_chassis_resident("here")': True,
    'is_chassis_resident("there")': False,
}
UNKNOWN = [
    'inport == "here"', 'inport == {"there", "here"}', "inport == @ours", 'inport != "there"',
    'outport == "there"', "ip4", "reg0[9] == 1", "eth.dst == 02:00:00:00:00:01", "ip4.src == $some",
    "0 < ip.ttl <= 64", "ip4.src == {10.0.0.1, 10.0.0.0/24, $none}", "ct.est", "ip4.src != $none",
    "ip6.dst == ff02::1", "tcp.flags[1..2] == 3", f"inport == {json.dumps(ODD)}",
]  # fmt: skip


class Tree:
    """A condition with each unknown leaf once, so that they vary on their own."""

    def __init__(self, draw, unknown, depth):
        kind = draw(st.sampled_from(["leaf", "not", "and", "or"] if depth else ["leaf"]))
        self.kind, self.parts, self.text = kind, [], ""
        if kind == "leaf":
            is_unknown = unknown and draw(st.booleans())
            self.text = unknown.pop() if is_unknown else draw(st.sampled_from(list(KNOWN)))
        else:
            count = 1 if kind == "not" else draw(st.integers(2, 3))
            self.parts = [Tree(draw, unknown, depth - 1) for _ in range(count)]

    def leaves(self):
        return [self.text] if self.kind == "leaf" else [t for p in self.parts for t in p.leaves()]

    def holds(self, truth):
        if self.kind == "leaf":
            return truth[self.text]
        each = [part.holds(truth) for part in self.parts]
        return {"not": not each[0], "and": all(each), "or": any(each)}[self.kind]

    def written(self):
        if self.kind == "leaf":
            return self.text
        inner = [f"({part.written()})" for part in self.parts]
        if self.kind == "not":
            return f"!{inner[0]}"
        return {"and": " && ", "or": " || "}[self.kind].join(inner)


@given(st.data())
def test_what_can_hold_is_what_some_packet_makes_true(data):
    unknown = data.draw(st.permutations(UNKNOWN))
    tree = Tree(data.draw, unknown, 3)
    free = sorted(set(tree.leaves()) - KNOWN.keys())
    ways = {
        tree.holds(KNOWN | dict(zip(free, way, strict=True)))
        for way in itertools.product([False, True], repeat=len(free))
    }
    wanted = {(True,): Can.ALWAYS, (False,): Can.NEVER}.get(tuple(ways), Can.MAYBE)
    assert can_hold(tree.written(), "ingress", LOCAL) is wanted


@pytest.mark.parametrize(
    ("match", "pipeline", "can"),
    [
        ('inport == "there" && ip4', "ingress", Can.NEVER),
        ('inport == "there" && ip4', "egress", Can.MAYBE),
        ('outport == "there"', "egress", Can.NEVER),
        ('outport == "there"', "ingress", Can.MAYBE),
        ('ip4 && inport == "there" || ip6', "ingress", Can.MAYBE),
        ("1", "ingress", Can.ALWAYS),
    ],
)
def test_a_port_counts_where_its_flows_are_dropped(match, pipeline, can):
    assert can_hold(match, pipeline, LOCAL) is can


@pytest.mark.parametrize(
    ("match", "can"),
    [
        ("eth.dst == 02:00:00:00:00:03 && ip4", Can.MAYBE),
        ("eth.dst == 02:00:00:00:00:04", Can.NEVER),
        ("ip4.dst == {10.0.1.0/24, 10.0.0.0/24}", Can.MAYBE),
        ("ip4.dst == 10.0.1.0/24", Can.NEVER),
        ("ip4.dst == $some", Can.MAYBE),
        ("ip4.dst == 10.0.0.0/0x00ffff00", Can.MAYBE),
        ("udp.dst == 4791", Can.MAYBE),
        ("udp.dst == {4790, 4792}", Can.NEVER),
        ("ip4.dst != 10.0.0.3", Can.MAYBE),
    ],
)
def test_what_is_known_of_a_packet_speaks_against_others(match, can):
    packet = {"eth.dst": "02:00:00:00:00:03", "ip4.dst": "10.0.0.3", "udp.dst": "4791"}
    assert can_hold(match, "ingress", Local(packet=packet)) is can


@given(st.text(alphabet='abc01 "&|!=<>(){},$@.', max_size=30))
def test_anything_else_is_refused_or_read(text):
    with contextlib.suppress(RemoteProtocolError):
        assert can_hold(text, "ingress", LOCAL) in Can


def test_parentheses_without_end_are_refused():
    with pytest.raises(RemoteProtocolError):
        can_hold("(" * 100_000 + "1", "ingress", LOCAL)
