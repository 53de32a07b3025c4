# SPDX-License-Identifier: Apache-2.0
"""The overlay and the underlay of IPv6: endpoints are found, probed and traced, a link is named."""

from ipaddress import ip_address

import pytest

from tests.conftest import OVS, ROOT, require
from tests.lab import Lab, Shape
from tests.lab.demo import SETTLE_S, Observer, _try
from tests.lab.shape import Transport, Versions

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab():
    require(ROOT)
    require(OVS)
    made = Lab()
    made.up(Shape(ip=Versions(overlay=6, underlay=6)))
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


def test_endpoints_are_up_and_ways_are_traced_by_ipv6(observer):
    endpoints = observer.client.get("/v1/endpoints").json()["endpoints"]
    assert {each["state"] for each in endpoints} == {"up"}
    addresses = [each[name] for each in endpoints for name in ("address", "underlay")]
    assert {ip_address(each).version for each in addresses} == {6}
    topology = observer.client.get("/v1/topology").json()
    assert topology["undeclared_links"] == []
    assert topology["links"]


def test_a_lossy_link_is_found_named_and_over_when_healed(lab, observer):
    found = _try(lab, observer, "link-loss", lambda text: None)
    assert found.verdict is not None
    assert found.verdict[:2] == found.truth
    assert found.others == ()
    assert found.over, found
