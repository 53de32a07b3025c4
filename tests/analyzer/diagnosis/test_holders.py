# SPDX-License-Identifier: Apache-2.0
"""Holders in columns against each endpoint looked up by itself."""

from hypothesis import given
from hypothesis import strategies as st

from analyzer.diagnosis.holders import Holders
from analyzer.intake.flows import FlowNumbers
from analyzer.intake.table import NOBODY
from analyzer.roster.registry import Registry
from netagent.model.endpoint import EndpointState
from netagent.model.ids import EndpointId, FlowId
from tests.analyzer.cluster import endpoint, registration

HOSTS, CONTAINERS = ("h0", "h1", "h2"), ("c0", "c1", "c2", "c3")
STATES = st.sampled_from([None, EndpointState.UP, EndpointState.CRASHED])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.sampled_from(HOSTS), st.tuples(*[STATES] * len(CONTAINERS))),
        st.tuples(st.just("probe"), st.sampled_from(CONTAINERS), st.sampled_from(CONTAINERS)),
        st.tuples(st.just("forget"), st.none(), st.none()),
    ),
    max_size=12,
)


@given(steps=STEPS, at_s=st.integers(0, 14))
def test_columns_say_what_the_roster_says(steps, at_s):
    roster, numbers, holders = Registry(), FlowNumbers(), Holders()
    for now_s, (what, one, other) in enumerate(steps, start=1):
        if what == "claim":
            mine = [endpoint(one, c, state=s) for c, s in zip(CONTAINERS, other, strict=True) if s]
            roster.apply(registration(one, *mine, generation=now_s), now_s)
        elif what == "probe":
            numbers.number(FlowId(EndpointId(one, 0), EndpointId(other, 0), 1))
        else:
            numbers.recycle(before_ns=1)
        records = [record for record in roster.endpoints() if record.live]
        known = {
            r.endpoint.id: r.endpoint for r in records if not r.active or r.registered_ns <= at_s
        }
        assert holders.known(roster, at_s) == known
        ends = dict(numbers.ends_in_use())
        owners, names = holders.places(roster, numbers, HOSTS[:1])
        assert names[:1] == HOSTS[:1]
        found = {end: names[owners[n]] for n, end in ends.items() if owners[n] != NOBODY}
        there = {end: roster.endpoint(end) for end in ends.values()}
        assert found == {end: r.endpoint.host for end, r in there.items() if r is not None}
        owners, names = holders.places(roster, numbers, HOSTS, at_ns=at_s)
        found = {end: names[owners[n]] for n, end in ends.items() if owners[n] != NOBODY}
        assert found == {end: known[end].host for end in ends.values() if end in known}
