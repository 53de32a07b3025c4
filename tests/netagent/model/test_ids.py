# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netagent.model.ids import EndpointId, FlowId

endpoints = st.builds(EndpointId, st.text(min_size=1), st.integers(0, 99))


@given(endpoints)
def test_an_endpoint_is_read_as_it_was_written(endpoint):
    assert EndpointId.parse(str(endpoint)) == endpoint


def test_a_container_may_have_rails_in_its_name():
    assert EndpointId.parse("a/rail1/rail2") == EndpointId("a/rail1", 2)


@pytest.mark.parametrize("text", ["", "a", "/rail1", "a/rail", "a/rail-1", "a/railx", "a/1"])
def test_what_is_no_endpoint_is_refused(text):
    with pytest.raises(ValueError, match="CONTAINER/railN"):
        EndpointId.parse(text)


@given(endpoints, endpoints, st.integers(0, 65535))
def test_equal_flows_hash_alike_and_a_way_back_is_another_flow(a, b, port):
    flow = FlowId(a, b, port)
    assert hash(flow) == hash(FlowId(EndpointId(a.container, a.rail), b, port))
    assert (flow == FlowId(b, a, port)) == (a == b)


def test_flows_with_one_thing_in_common_do_not_collide():
    ids = [EndpointId(name, rail) for name in "ab" for rail in range(2)]
    flows = [FlowId(a, b, port) for a in ids for b in ids for port in (1, 2)]
    assert len({hash(flow) for flow in flows}) == len(flows)
