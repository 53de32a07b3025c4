# SPDX-License-Identifier: Apache-2.0
"""The overlay over Geneve: probes' outer headers are seen, their ways traced, a fault is named."""

import pytest

from tests.conftest import OVS, ROOT, require
from tests.lab import Lab, Shape
from tests.lab.demo import SETTLE_S, Observer, _try
from tests.lab.shape import Transport, Tunnel

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab():
    require(ROOT)
    require(OVS)
    made = Lab()
    made.up(Shape(encapsulation=Tunnel.GENEVE))
    try:
        yield made
    finally:
        assert made.down() == []


@pytest.fixture(scope="module")
def observer(lab):
    with lab.services().client() as client:
        found = Observer(client)
        assert found.wait(found.new, timeout_s=SETTLE_S[Transport.UDP]) == []
        yield found


def test_ways_are_traced_by_the_outer_headers_of_geneve(observer):
    topology = observer.client.get("/v1/topology").json()
    assert topology["undeclared_links"] == []
    assert topology["links"]


def test_a_lossy_link_is_found_named_and_over_when_healed(lab, observer):
    found = _try(lab, observer, "link-loss", lambda text: None)
    assert found.verdict is not None
    assert found.verdict[:2] == found.truth
    assert found.others == ()
    assert found.over, found
