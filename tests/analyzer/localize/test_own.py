# SPDX-License-Identifier: Apache-2.0
"""Parts of hosts in columns, against a set for each endpoint."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.localize.case import parts_of_host
from analyzer.localize.voting.own import Own, names_of
from analyzer.simulate.fabric import Fabric
from netagent.model.path import Component, Kind, switch

ENDS = list(Fabric().endpoints.values())
PARTS = sorted({part for end in ENDS for part in parts_of_host(end)})


def own(chosen):
    """Return some endpoints, numbered by their place among all."""
    return Own(np.array(sorted(chosen), np.int64), lambda number: names_of(ENDS[number]))


@given(st.sets(st.integers(0, len(ENDS) - 1)), st.lists(st.sampled_from(PARTS), max_size=5))
def test_it_has_what_the_sets_have(chosen, among):
    plain = {number: parts_of_host(ENDS[number]) for number in chosen}
    among = [*among, switch("nowhere"), Component(Kind.HOST, "nobody"), ("a", "b")]
    weight = np.arange(1.0, len(ENDS) + 1)
    for each in (own(chosen), Own.of(plain)):
        assert dict(each) == plain
        assert each.size == 1 + max(chosen, default=-1)
        ends = {number for number, parts in plain.items() if not parts.isdisjoint(among)}
        assert set(each.ends_of(among).tolist()) == ends
        assert each.sums(among, weight).tolist() == [
            sum(weight[number] for number, parts in plain.items() if part in parts)
            for part in among
        ]


@pytest.mark.parametrize("number", range(3))
def test_a_recording_has_plain_sets(number):
    kind, arguments = own(range(3)).__reduce__()
    assert kind(*arguments)[number] == parts_of_host(ENDS[number])
