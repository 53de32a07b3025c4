# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ovs_checks.openflow.notation import SPECIAL_PORTS
from ovs_checks.openflow.packet import SLOTS
from ovs_checks.openflow.parse import parse_header
from ovs_checks.translate.choose import _link, member, multipath, note_hashed
from tests.ovs_checks.pipelines import packets
from tests.ovs_checks.translate.contexts import actions, bridge0, context

words = st.integers(0, 2**32 - 1)
NONE = SPECIAL_PORTS["none"]
PORTS = (1, 2, 3)


def with_live(*live):
    """Return a bridge of which only these ports are live."""
    at = bridge0()
    return replace(at, ports=tuple(replace(port, live=port.ofport in live) for port in at.ports))


@given(
    words,
    st.sampled_from(("modulo_n", "hash_threshold", "hrw", "iter_hash")),
    st.integers(1, 100),
    st.integers(0, 300),
)
def test_the_link_is_one_of_those_there_are(hashed, algorithm, links, argument):
    assert 0 <= _link(hashed, algorithm, links, argument) < links


@given(words, words, st.integers(1, 100))
def test_a_threshold_gives_each_link_one_stretch_of_the_hashes(one, other, links):
    low, high = (_link(n, "hash_threshold", links, 0) for n in sorted((one, other)))
    assert low <= high
    ends = (_link(0, "hash_threshold", links, 0), _link(2**32 - 1, "hash_threshold", links, 0))
    assert ends == (0, links - 1)


@given(words, st.integers(1, 63))
def test_the_highest_weight_moves_to_a_new_link_or_not_at_all(hashed, links):
    assert _link(hashed, "hrw", links + 1, 0) in {_link(hashed, "hrw", links, 0), links}


@given(packets, st.sampled_from(("modulo_n", "hrw")))
def test_a_link_is_written_into_its_bits_and_no_others(packet, algorithm):
    x = context(packet)
    x.flow[SLOTS["reg0"]] = 0xFFFFFFFF
    (action,) = actions(f"multipath(nw_dst,0,{algorithm},3,0,NXM_NX_REG0[4..7])")
    link = multipath(x, action)
    assert link in range(3)
    assert x.flow[SLOTS["reg0"]] == 0xFFFFFF0F | link << 4


@given(packets, st.lists(st.sampled_from(PORTS), unique=True))
def test_a_member_that_is_chosen_is_live(packet, live):
    for kind in ("hrw", "active_backup"):
        (action,) = actions(f"bundle(eth_src,7,{kind},ofport,members:1,2,3)")
        chosen = member(context(packet, with_live(*live)), action)
        assert chosen in (live or [NONE])


@given(packets, st.sampled_from(PORTS))
def test_a_member_that_dies_moves_only_the_packets_that_it_had(packet, dead):
    (action,) = actions("bundle(symmetric_l4,0,hrw,ofport,members:1,2,3)")
    chosen = member(context(packet), action)
    assume(chosen != dead)
    left = set(PORTS) - {dead}
    assert member(context(packet, with_live(*left)), action) == chosen


def test_the_first_live_member_is_the_active_one():
    (action,) = actions("bundle(eth_src,0,active_backup,ofport,members:3,1,2)")
    assert [member(context(at=with_live(*live)), action) for live in ((1, 2), (1, 2, 3), ())] == [
        1,
        3,
        NONE,
    ]


def test_a_member_that_is_not_there_is_not_chosen_and_a_reserved_one_always_may_be():
    (action,) = actions("bundle(eth_src,0,active_backup,ofport,members:9,2)")
    assert member(context(), action) == 2
    (action,) = actions("bundle(eth_src,0,active_backup,ofport,members:9,2)")
    assert (
        member(context(), replace(action, ports=(9, SPECIAL_PORTS["flood"], 2)))
        == (SPECIAL_PORTS["flood"])
    )


def test_nothing_is_looked_at_to_choose_of_one():
    (action,) = actions("bundle(eth_src,0,hrw,ofport,members:2)")
    x = context()
    member(x, action)
    assert not any(x.looked)


@pytest.mark.parametrize(
    ("packet", "hashed", "names"),
    [
        ("udp", "eth_src", "eth_src"),
        ("udp", "nw_src", "nw_src"),
        ("udp6", "nw_dst", "ipv6_dst"),
        ("arp", "nw_src", ""),
        ("udp", "symmetric_l3", "nw_src nw_dst"),
        ("udp", "symmetric_l3l4", "nw_src nw_dst nw_proto"),
        ("udp", "symmetric_l3l4+udp", "nw_src nw_dst nw_proto tp_src tp_dst"),
        ("udp,nw_frag=first", "symmetric_l3l4+udp", "nw_src nw_dst nw_proto"),
        ("tcp6", "symmetric_l3l4", "ipv6_src ipv6_dst nw_proto tp_src tp_dst"),
        ("tcp,nw_frag=first", "symmetric_l3l4", "nw_src nw_dst nw_proto"),
        ("udp", "symmetric_l4", "eth_src eth_dst nw_src nw_dst nw_proto vlan_tci vlan_tci1"),
        (
            "tcp",
            "symmetric_l4",
            "eth_src eth_dst nw_src nw_dst nw_proto tp_src tp_dst vlan_tci vlan_tci1",
        ),
    ],
)
def test_what_a_hash_looks_at(packet, hashed, names):
    x = context(packet)
    note_hashed(x, hashed)
    header = parse_header(packet)
    assert {name for name in header._fields if x.looked[SLOTS[name]]} == set(names.split())
