# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from netagent.agent.answers import target_of, vteps_of
from netagent.model.endpoint import Endpoint, RdmaAddress
from netagent.model.errors import RemoteProtocolError
from netagent.model.ids import EndpointId
from netagent.model.pinglist import Target
from netagent.wire.messages import PathRequest, ProbeRequest

A, B = EndpointId("a", 0), EndpointId("b", 0)
LISTED = Target(A, B, "10.0.0.11", "")
OWN = Endpoint(A, "t", "h0", "10.0.0.10", "", "", "", "", "")
BY_RDMA = replace(OWN, rdma=RdmaAddress("mlx5_0", "::ffff:10.0.0.10", (17,), 1, 1024))


def test_what_is_listed_needs_no_address():
    request = ProbeRequest(source=A, target=B, address="10.0.0.99")
    assert target_of(request, [LISTED], [BY_RDMA]) == LISTED


def test_what_is_not_listed_is_probed_at_its_address():
    request = ProbeRequest(source=A, target=B, address="10.0.0.99")
    assert target_of(request, [], [OWN]).address == "10.0.0.99"
    with pytest.raises(RemoteProtocolError, match="give its address"):
        target_of(ProbeRequest(source=A, target=B), [], [OWN])


def test_an_address_is_not_enough_for_rdma():
    request = ProbeRequest(source=A, target=B, address="10.0.0.99")
    with pytest.raises(RemoteProtocolError, match="probes by RDMA"):
        target_of(request, [], [BY_RDMA])


def test_ways_are_looked_for_between_vteps_of_listed_pairs_only():
    request = PathRequest(source=A, target=B, ways=4)
    own, listed = replace(OWN, underlay="172.16.0.1"), replace(LISTED, underlay="172.16.0.2")
    assert vteps_of(request, [listed], [own]) == ("172.16.0.1", "172.16.0.2")
    for targets, endpoints in (([], [own]), ([listed], []), ([LISTED], [own])):
        with pytest.raises(RemoteProtocolError, match="not on the ping list"):
            vteps_of(request, targets, endpoints)
