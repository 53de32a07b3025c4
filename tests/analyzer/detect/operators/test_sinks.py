# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st

from analyzer.detect.operators.sinks import sinks

GRAPHS = st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=3), max_size=8)


def reached(graph, start):
    seen, left = set(), [start]
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            left += graph.get(node, [])
    return seen


@given(GRAPHS, st.lists(st.integers(0, 7), max_size=4))
def test_they_are_the_sets_of_nodes_that_reach_each_other_and_nothing_else(graph, starts):
    everything = set().union(*(reached(graph, start) for start in starts), set())
    naive = {
        frozenset(reached(graph, node))
        for node in everything
        if all(node in reached(graph, other) for other in reached(graph, node))
    }
    found = sinks(starts, lambda node: graph.get(node, []))
    assert sorted(map(sorted, found)) == sorted(map(sorted, naive))


def test_a_long_chain_overflows_no_stack():
    assert sinks([0], lambda node: [node + 1] if node < 50_000 else []) == [(50_000,)]
