# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise

import pytest

from analyzer.simulate.fattree import FatTree, Silent


@pytest.mark.parametrize("k", [2, 4, 8])
def test_a_tree_has_as_many_ways_as_it_should(k):
    tree = FatTree(k, Silent(1))
    half = k // 2
    assert len(tree.ways((0, 0, 0), (1, 0, 0))) == half * half
    if half > 1:
        assert len(tree.ways((0, 0, 0), (0, 1, 0))) == half
        assert tree.ways((0, 0, 0), (0, 0, 1)) == (("host-0-0-0", "edge-0-0", "host-0-0-1"),)


def test_ports_come_in_pairs():
    with pytest.raises(ValueError, match="even"):
        FatTree(5, Silent())


def test_flows_take_one_of_their_ways_and_lose_where_links_are_bad():
    tree = FatTree(4, Silent(2, least=0.3, most=0.4, noise=0.0), seed=3)
    flows = list(tree.flows(2000))
    assert len(tree.bad) == 2
    lossy = [flow for flow in flows if flow.lost]
    assert lossy
    for flow in lossy:
        assert set(pairwise(flow.ways[flow.taken])) & set(tree.bad)
    for ends, rate in tree.bad.items():
        mine = [f for f in flows if ends in set(pairwise(f.ways[f.taken]))]
        lost, sent = sum(f.lost for f in mine), sum(f.sent for f in mine)
        assert rate - 0.03 < lost / sent < 0.8


def test_the_same_seed_gives_the_same_flows():
    one, other, third = (FatTree(4, Silent(), seed=seed) for seed in (1, 1, 2))
    assert one.bad == other.bad
    flows = [list(tree.flows(20)) for tree in (one, other, third)]
    assert flows[0] == flows[1] != flows[2]
