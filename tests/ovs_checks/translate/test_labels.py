# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovs_checks.openflow.packet import ETH_IPV4, ETH_IPV6, ETH_MPLS, SLOTS, TAG_PRESENT
from ovs_checks.openflow.parse import parse_header
from ovs_checks.translate.labels import (
    BOTTOM,
    count_common,
    count_labels,
    count_tags,
    pop_label,
    pop_tag,
    push_label,
    push_tag,
)

tcis = st.integers(0, 0xFFFF).map(lambda tci: tci | TAG_PRESENT)
tags = st.tuples(st.sampled_from((0x8100, 0x88A8)), tcis)
labels = st.integers(1, 0xFFFFFFFF).map(lambda lse: lse & ~BOTTOM | 1 << 12)
LSE = [SLOTS[name] for name in ("mpls_lse", "mpls_lse1", "mpls_lse2")]


def mask():
    return [0] * len(SLOTS)


def labelled(*stack):
    """Return a packet with these labels, the last of which ends the stack."""
    flow = list(parse_header("mpls"))
    for slot, label in zip(LSE, stack, strict=False):
        flow[slot] = label & ~BOTTOM
    flow[LSE[len(stack) - 1]] |= BOTTOM
    return flow


@given(st.lists(tags, max_size=1), tags)
def test_a_tag_that_was_pushed_is_popped_again(there, tag):
    flow = list(parse_header("udp"))
    for one in there:
        push_tag(flow, mask(), *one)
    before = list(flow)
    push_tag(flow, mask(), *tag)
    assert count_tags(flow) == len(there) + 1
    assert (flow[SLOTS["vlan_tpid"]], flow[SLOTS["vlan_tci"]]) == tag
    pop_tag(flow, mask())
    assert flow == before


def test_a_third_tag_costs_the_innermost():
    flow = list(parse_header("udp"))
    for vid in (1, 2, 3):
        push_tag(flow, mask(), 0x8100, TAG_PRESENT | vid)
    assert [flow[SLOTS[name]] & 0xFFF for name in ("vlan_tci", "vlan_tci1")] == [3, 2]


def test_popping_looks_at_what_moves_outwards_only():
    flow, looked = list(parse_header("vlan_tci=0x1005")), mask()
    pop_tag(flow, looked)
    assert (count_tags(flow), any(looked)) == (0, False)
    for vid in (6, 5):
        push_tag(flow, mask(), 0x8100, TAG_PRESENT | vid)
    pop_tag(flow, looked)
    assert flow[SLOTS["vlan_tci"]] & 0xFFF == 6
    assert [n for n, seen in enumerate(looked) if seen] == [SLOTS["vlan_tpid1"], SLOTS["vlan_tci1"]]


@given(st.lists(labels, min_size=1, max_size=2))
def test_a_label_that_was_pushed_is_popped_again(stack):
    flow = labelled(*stack)
    before = list(flow)
    push_label(flow, len(stack), ETH_MPLS, mask(), clear=True)
    assert count_labels(flow) == len(stack) + 1
    assert [bool(flow[slot] & BOTTOM) for slot in LSE].count(True) == 1
    assert pop_label(flow, len(stack) + 1, ETH_MPLS, mask())
    assert flow == before


@pytest.mark.parametrize(
    ("packet", "label", "traffic_class", "ttl"),
    [
        ("udp,nw_ttl=9,nw_tos=0x34", 0, 0x34 >> 2 & 7, 9),
        ("udp6,nw_ttl=9,nw_tos=0x34", 2, 0x34 >> 2 & 7, 9),
        ("udp,nw_ttl=0", 0, 0, 64),
        ("arp", 0, 0, 64),
    ],
)
def test_the_first_label_takes_over_what_the_packet_says(packet, label, traffic_class, ttl):
    flow = list(parse_header(packet))
    push_label(flow, 0, ETH_MPLS, mask(), clear=True)
    lse = flow[LSE[0]]
    assert (lse >> 12, lse >> 9 & 7, lse & 0xFF) == (label, traffic_class, ttl)
    assert (count_labels(flow), flow[SLOTS["eth_type"]]) == (1, ETH_MPLS)


@pytest.mark.parametrize("clear", [True, False])
def test_what_the_first_label_hides_is_forgotten_where_asked(clear):
    flow = list(parse_header("udp,dl_src=00:00:00:00:00:01,nw_ttl=9,udp_dst=5"))
    push_label(flow, 0, ETH_MPLS, None, clear=clear)
    assert (flow[SLOTS["nw_ttl"]], flow[SLOTS["tp_dst"]]) == ((0, 0) if clear else (9, 5))
    assert flow[SLOTS["eth_src"]] == 1


@given(st.lists(labels, max_size=3), st.lists(labels, max_size=3), st.lists(labels, max_size=3))
def test_what_two_stacks_have_in_common_is_their_innermost_labels(a, b, shared):
    a, b = (a + shared)[-3:], (b + shared)[-3:]
    naive = 0
    for one, other in zip(reversed(a), reversed(b), strict=False):
        if one != other:
            break
        naive += 1
    flows = [list(parse_header("mpls")) for _ in range(2)]
    for flow, stack in zip(flows, (a, b), strict=True):
        for slot, label in zip(LSE, stack, strict=False):
            flow[slot] = label
    assert count_common(flows[0], len(a), flows[1], len(b)) == naive


def test_labels_are_counted_to_the_bottom_and_looked_at_no_further():
    looked = mask()
    assert count_labels(labelled(0x5000, 0x6000), looked) == 2
    assert [looked[slot] for slot in LSE] == [BOTTOM, BOTTOM, 0]
    assert count_labels(list(parse_header("udp"))) == 0


def test_a_stack_deeper_than_can_be_seen_is_not_popped():
    deep = labelled(0x1000, 0x2000, 0x3000)
    deep[LSE[2]] &= ~BOTTOM
    before = list(deep)
    assert not pop_label(deep, 3, ETH_IPV4, mask())
    assert deep == before
    assert not pop_label(deep, 0, ETH_IPV4, mask())


def test_what_is_below_the_last_label_is_what_the_flow_says():
    flow = labelled(0x1000)
    assert pop_label(flow, 1, ETH_IPV6, mask())
    assert (flow[SLOTS["eth_type"]], flow[LSE[0]]) == (ETH_IPV6, 0)
