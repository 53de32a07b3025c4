# SPDX-License-Identifier: Apache-2.0

from dataclasses import replace

import numpy as np
import pytest

from analyzer.history.blocks import block_of
from analyzer.history.ledger import COLUMNS, NO_MIN, Part, Sealed
from analyzer.history.spread import values_ns
from analyzer.history.trips import none_of
from analyzer.localize.incidence import Incidence
from netagent.model.ids import EndpointId
from netagent.model.path import link, switch
from tests.oracles.history_naive import of_components, of_pairs

A, B, C = (EndpointId(name, 0) for name in "abc")
RNICS = {A: ("h0", "rnic0"), B: ("h0", "rnic0"), C: ("h1", "rnic0")}


def part(flows, there, back, incidence, trips=(), **columns):
    """Return a part of so many flows, of whose columns all others are zeros.

    `trips` are (flow, bucket, count).
    """
    zeros = {name: np.zeros(flows, of) for name, of in COLUMNS.items()}
    zeros["min_ns"] += NO_MIN
    given = {name: np.array(column, COLUMNS[name]) for name, column in columns.items()}
    ways = (np.array(each, np.int32) for each in (there, back))
    aside = tuple(np.array(column, np.int64) for column in zip(*trips, strict=True))
    spread = replace(none_of(flows), **({"aside": aside} if trips else {}))
    return Part(np.arange(flows), *ways, incidence, zeros | given, spread)


def sealed(*parts_with_ends):
    parts, ends = zip(*parts_with_ends, strict=True) if parts_with_ends else ((), ())
    ends = tuple(np.array(each, np.int64).reshape(2, -1) for each in ends)
    return Sealed(60, 12, parts, ends, (C, A, B) if parts else (), RNICS)


def test_a_minute_in_which_nothing_was_probed_has_no_rows():
    block = block_of(sealed())
    assert (block.start_ns, block.windows) == (60, 12)
    assert (len(block.pairs), len(block.components)) == (0, 0)


def test_flows_of_a_pair_are_one_row_and_round_trips_have_a_geometric_mean():
    ln = np.log([100.0, 10_000.0, 10_000.0])
    mine = part(
        3, [-1] * 3, [-1] * 3, Incidence(), sent=[5, 6, 7], lost=[1, 0, 0], count=[1, 1, 0],
        ln=[ln[0], ln[1], 0], min_ns=[100, 10_000, NO_MIN], max_ns=[100, 10_000, 0],
    )  # fmt: skip
    block = block_of(sealed((mine, [[1, 1, 0], [0, 0, 1]])))
    assert of_pairs(block) == {
        ("a/rail0", "c/rail0"): (11, 1, 0, 2, 100, 1_000, 10_000, 0, 0, 0),
        ("c/rail0", "a/rail0"): (7, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    }


def test_an_rnic_that_a_pair_shares_is_crossed_once():
    mine = part(2, [-1] * 2, [-1] * 2, Incidence(), sent=[5, 7])
    found = of_components(block_of(sealed((mine, [[1, 1], [2, 0]]))))
    assert found["rnic h0/rnic0"][0] == 12
    assert found["rnic h1/rnic0"][0] == 7


@pytest.mark.parametrize("more", [0, 1 << 17], ids=["few", "many"])
def test_a_component_that_is_crossed_both_ways_counts_a_probe_once(more):
    incidence = Incidence()
    names = ["", "l1", "s1", "s2", "l2"]
    hops = np.array([1, 2, 4, 4, 2, 1, 4, 3, 1, 1])
    incidence.enter(names, hops, np.array([0, 3, 6, 9, 10]))
    flows = 3 + more
    there, back = np.zeros(flows, int), np.ones(flows, int)
    there[1], back[1], back[2] = 0, 2, -1
    mine = part(flows, there, back, incidence, sent=[10, 100, 1_000] + [1] * more)
    found = of_components(block_of(sealed((mine, [[1] * flows, [0] * flows]))))
    sent = {name: row[0] for name, row in found.items() if not name.startswith("rnic")}
    assert sent == {
        str(switch("l1")): 110 + more,
        str(switch("l2")): 110 + more,
        str(switch("s1")): 110 + more,
        str(switch("s2")): 100,
        str(link("l1", "s1")): 110 + more,
        str(link("s1", "l2")): 110 + more,
        str(link("l1", "s2")): 100,
        str(link("l2", "s2")): 100,
    }


def test_parts_of_different_incidences_are_added_up_by_name():
    parts = []
    for leaf in ("l1", "l2"):
        incidence = Incidence()
        incidence.put([switch("s1"), switch(leaf), ("s1", leaf)])
        parts.append((part(1, [0], [0], incidence, sent=[3]), [[1], [0]]))
    found = of_components(block_of(sealed(*parts)))
    sent = {name: row[0] for name, row in found.items() if name.startswith("switch")}
    assert sent == {"switch l1": 3, "switch l2": 3, "switch s1": 6}


@pytest.mark.parametrize("both", [False, True], ids=["ways", "no way back"])
def test_round_trips_are_spread_over_what_they_crossed_once(both):
    """Two flows of a pair; of the second one the way back is known or not."""
    incidence = Incidence()
    incidence.enter(["", "l1", "s1", "s2"], np.array([1, 2, 3]), np.array([0, 2, 3]))
    trips = [(0, 100, 3), (0, 104, 1), (1, 100, 4)]
    mine = part(
        2, [0, 0], [1, -1 if both else 1], incidence, trips, sent=[5, 5], count=[4, 4],
        ln=[40.0, 40.0], min_ns=[1, 1], max_ns=[2**32 - 1] * 2,
    )  # fmt: skip
    block = block_of(sealed((mine, [[1, 1], [0, 0]])))
    low, high = values_ns(np.array([100, 104])).tolist()
    [pair] = of_pairs(block).values()
    assert pair[-3:] == (low, high, high)
    of = {name: row[-3:] for name, row in of_components(block).items()}
    assert of["rnic h0/rnic0"] == of["rnic h1/rnic0"] == (low, high, high)
    assert of["switch l1"] == of["switch s2"] == (low, high, high)
    found = block.components.spread
    place = list(of_components(block)).index("switch s1")
    assert found.count[found.place == place].tolist() == ([3, 1] if both else [7, 1])
    assert len(block.pairs.spread) == 2


def test_parts_of_several_incidences_add_up_how_round_trips_are_spread():
    parts = []
    for count in (3, 2):
        incidence = Incidence()
        incidence.enter(["", "l1"], np.array([1]), np.array([0, 1]))
        one = part(
            1, [0], [0], incidence, [(0, 50, count)], sent=[5], count=[count], ln=[9.0],
            min_ns=[5], max_ns=[5],
        )  # fmt: skip
        parts.append((one, [[1], [0]]))
    block = block_of(sealed(*parts))
    assert block.components.spread.count.tolist() == [5, 5, 5]
    assert of_pairs(block)["a/rail0", "c/rail0"][-3:] == (5, 5, 5)  # no more than the largest
