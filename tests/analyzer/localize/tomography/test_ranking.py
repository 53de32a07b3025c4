# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given

from analyzer.localize.tomography.ranking import crossings
from tests.analyzer.localize.tomography.worlds import worlds
from tests.oracles.tomography_naive import crossing_probability


@given(worlds())
def test_a_flow_crosses_what_some_way_of_a_leg_crosses(seen):
    found = {(f, c): p for f, c, p in zip(*(x.tolist() for x in crossings(seen)), strict=True)}
    for flow in range(seen.flows):
        for component in range(len(seen.components)):
            wanted = crossing_probability(seen, flow, component)
            assert found.get((flow, component), 0.0) == pytest.approx(wanted)
