# SPDX-License-Identifier: Apache-2.0
"""Flows over few components, drawn by hypothesis."""

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from analyzer.localize.tomography.observations import Builder, Observations

NAMES = "abcdef"


@st.composite
def worlds(
    draw: DrawFn, *, most_ways: int = 3, most_flows: int = 8, most_legs: int = 2, free: bool = False
) -> Observations[str]:
    """Return observations of a few flows over at most six components."""
    builder = Builder[str]()
    legs = []
    for _ in range(draw(st.integers(1, 4))):
        length = draw(st.integers(1, 4))  # ways of equal cost are as long
        way = st.lists(st.sampled_from(NAMES), min_size=length, max_size=length, unique=True)
        legs.append(builder.leg(draw(st.lists(way, min_size=1, max_size=most_ways))))
    for _ in range(draw(st.integers(1, most_flows))):
        taken = draw(st.lists(st.sampled_from(legs), min_size=1, max_size=most_legs))
        sent = draw(st.integers(0, 40))
        other = draw(st.sampled_from([0.0, 0.1, 0.5])) if free else 0.0
        builder.flow(taken, sent, draw(st.integers(0, sent)), free=other)
    return builder.build()
