# SPDX-License-Identifier: Apache-2.0

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.history import crossing as room
from analyzer.history.crossing import crossing
from analyzer.history.spread import NOTHING

SIZE = 5
WAYS = st.sets(st.integers(0, SIZE - 1), max_size=3)


def rows(ways):
    filled = [sorted(way) + [SIZE] * (3 - len(way)) for way in ways]
    return np.array(filled, np.int32).reshape(-1, 3)


@given(
    st.lists(st.tuples(WAYS, WAYS), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 278), st.integers(1, 2**33)), max_size=12),
)
def test_each_component_has_the_round_trips_of_the_flows_that_cross_it_once(flows, told):
    told = [(place % len(flows), bucket, count) for place, bucket, count in told]
    columns = [np.array(each, np.int64) for each in zip(*told, strict=True)]
    place, bucket, count = columns or [np.zeros(0, np.int64)] * 3
    there, back = (rows(each) for each in zip(*flows, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "AT_ONCE", 2)
        patch.setattr(room, "MANY", 3)
        found = crossing([(place, bucket.astype(np.int16), count)], there, back, SIZE)
    expected = Counter()
    for at, number, many in told:
        for component in flows[at][0] | flows[at][1]:
            expected[component, number] += many
    keys = zip(found.place.tolist(), found.bucket.tolist(), strict=True)
    assert dict(zip(keys, found.count.tolist(), strict=True)) == expected


def test_without_round_trips_nothing_is_spread():
    assert crossing([], rows([{1}]), rows([{2}]), SIZE) is NOTHING
