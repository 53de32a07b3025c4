# SPDX-License-Identifier: Apache-2.0
"""A lab whose agents trace no flow, as where RNICs encapsulate: hosts look for the ways."""

import pytest

from netagent.model.ids import EndpointId
from netagent.wire.codec import ContentType, decode, encode
from netagent.wire.messages import PathReply, PathRequest
from tests.lab.config import agent_url
from tests.lab.demo import PATIENT_S, _try
from tests.lab.shape import Shape

pytestmark = pytest.mark.lab
SHAPE = Shape(traced=False)


def ways(lab):
    """Return what arrived at each router of each way out of the first host, by the way."""
    request = PathRequest(
        source=EndpointId("train-a-0", 0), target=EndpointId("train-a-2", 0), ways=4, count=100
    )
    headers = {"content-type": "application/json"}
    with lab.services().client(agent_url(0)) as client:
        content = encode(request, ContentType.JSON)
        answer = client.post("/v1/path", content=content, headers=headers, timeout=30)
    assert answer.is_success, answer.text
    return {
        each.hops: each.answered
        for each in decode(answer.content, PathReply, ContentType.JSON).paths
    }


def test_a_host_finds_every_way_counts_on_it_and_a_link_that_loses_is_named(lab, observer):
    def named():
        return {each["component"] for each in observer.new()}

    found = ways(lab)
    assert len(found) == SHAPE.spines
    assert all(len(hops) == 3 for hops in found)
    assert set(found.values()) == {(100, 100, 100)}
    fault = lab.inject("link-loss", percent=20)
    try:
        counted = ways(lab)
        assert observer.wait(lambda: fault.truth.component in named(), timeout_s=PATIENT_S)
    finally:
        lab.heal(fault.key)
    near = [answered[1] for answered in counted.values()]
    assert sorted(each < 100 for each in near) == [False, True]
    over = observer.wait(
        lambda: all(each["state"] == "recovered" for each in observer.new()), timeout_s=PATIENT_S
    )
    assert over
    assert named() == {fault.truth.component}


@pytest.mark.parametrize("fault", ["link-loss", "spine-down", "rnic-down"])
def test_a_fault_is_named_without_a_trace(lab, observer, fault):
    assert observer.client.get("/v1/topology").json()["links"] == []
    found = _try(lab, observer, fault, lambda text: None, later_s=PATIENT_S)
    assert found.verdict is not None
    assert found.verdict[:2] == found.truth
    # A spine that dies takes all that crosses either one for some seconds. No trace tells the two
    # apart, so that it is undecided at first, which names nobody.
    assert set(found.others) <= {"None"}
    assert found.recovered_s is not None, found
