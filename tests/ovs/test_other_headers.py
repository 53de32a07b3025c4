# SPDX-License-Identifier: Apache-2.0
"""Overlay and underlay of IPv6, over Geneve: endpoints are found, ways traced, a fault is named."""

from ipaddress import ip_address

import pytest

from tests.lab.demo import PATIENT_S, _try
from tests.lab.shape import Shape, Tunnel, Versions

pytestmark = pytest.mark.lab
SHAPE = Shape(encapsulation=Tunnel.GENEVE, ip=Versions(overlay=6, underlay=6))


def test_endpoints_are_up_and_ways_are_traced_by_their_outer_headers(observer):
    endpoints = observer.client.get("/v1/endpoints").json()["endpoints"]
    assert {each["state"] for each in endpoints} == {"up"}
    addresses = [each[name] for each in endpoints for name in ("address", "underlay")]
    assert {ip_address(each).version for each in addresses} == {6}
    topology = observer.client.get("/v1/topology").json()
    assert topology["undeclared_links"] == []
    assert topology["links"]


def test_a_spine_is_found_named_and_over_when_healed(lab, observer):
    """Which one it is, only the ways of all flows tell."""
    found = _try(lab, observer, "spine-down", lambda text: None, later_s=PATIENT_S)
    assert found.verdict is not None
    assert found.verdict[:2] == found.truth
    assert found.others == ()
    assert found.recovered_s is not None, found
