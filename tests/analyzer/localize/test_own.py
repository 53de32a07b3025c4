# SPDX-License-Identifier: Apache-2.0
"""Parts of hosts in columns, against a set for each endpoint."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.localize.own import Before, Own, parts_of_host
from analyzer.simulate.fabric import Fabric
from netagent.model.path import Component, Kind, switch

ENDS = list(Fabric().endpoints.values())
PARTS = sorted({part for end in ENDS for part in parts_of_host(end)})


SOME = st.sets(st.integers(0, len(ENDS) - 1))


def own(chosen, before=None):
    """Return some endpoints, numbered by their place among all."""
    return Own(np.array(sorted(chosen), np.int64), ENDS.__getitem__, before)


@given(SOME, SOME, st.lists(st.sampled_from(PARTS), max_size=5))
def test_it_has_what_the_sets_have(chosen, earlier, among):
    plain = {number: parts_of_host(ENDS[number]) for number in chosen}
    among = [*among, switch("nowhere"), Component(Kind.HOST, "nobody"), ("a", "b")]
    weight = np.arange(1.0, len(ENDS) + 1)
    before = Before()
    own(earlier, before).ends_of(among)
    for each in (own(chosen), own(chosen, before), own(chosen, before), Own.of(plain)):
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
