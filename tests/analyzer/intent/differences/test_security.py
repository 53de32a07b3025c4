# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.intent.differences.security import refused
from analyzer.intent.model import Allowed
from tests.analyzer.intent.differences.clusters import Cluster

MAC = "0a:00:00:00:00:01"


def said(allowed, mac=MAC, address="10.0.0.1", **changes):
    """Return what is told of a port that is allowed this, with these addresses inside."""
    cluster = Cluster(ports=0)
    plug = cluster.plug(cluster.declare(), "h1")
    cluster.port[plug.name] = replace(cluster.port[plug.name], allowed=allowed, **changes)
    cluster.settle()
    plug.mac, plug.address = mac, address
    return list(refused(cluster.sight()))


@pytest.mark.parametrize(
    ("allowed", "mac", "address", "refuses"),
    [
        ((), MAC, "10.9.9.9", ""),
        ((Allowed(MAC),), MAC, "10.9.9.9", ""),
        ((Allowed(MAC.upper()),), MAC, "10.9.9.9", ""),
        ((Allowed(MAC),), "02:00:00:00:00:99", "10.0.0.1", "02:00:00:00:00:99"),
        ((Allowed(MAC),), "", "10.0.0.1", ""),  # not read
        ((Allowed(MAC, ("10.0.0.1",)),), MAC, "10.0.0.1", ""),
        ((Allowed(MAC, ("10.0.0.1",)),), MAC, "10.0.0.77", "10.0.0.77"),
        ((Allowed(MAC, ("10.0.0.1",)),), "", "10.0.0.77", "10.0.0.77"),
        ((Allowed(MAC, ("10.0.0.0/24",)),), MAC, "10.0.0.77", ""),
        ((Allowed(MAC, ("10.0.0.5/24",)),), MAC, "10.0.0.77", "10.0.0.77"),
        ((Allowed(MAC, ("10.0.0.5/24",)),), MAC, "10.0.0.5", ""),
        ((Allowed(MAC, ("fd00::/64",)),), MAC, "fd00::9", ""),
        ((Allowed(MAC, ("10.0.0.1",)),), MAC, "fd00::9", "fd00::9"),
        ((Allowed(MAC, ("a set",)),), MAC, "10.0.0.1", ""),  # in words that nobody knows here
        ((Allowed("02:00:00:00:00:99", ("10.0.0.2",)), Allowed(MAC, ("10.0.0.1",))), MAC,
         "10.0.0.2", "10.0.0.2"),
    ],
)  # fmt: skip
def test_an_address_inside_is_held_against_what_its_port_may_use(allowed, mac, address, refuses):
    told = said(allowed, mac, address)
    assert bool(told) is bool(refuses)
    for each in told:
        assert f"has {refuses}, which port p1 refuses" in each.text
        assert (each.part, each.ports, each.hosts) == ("port p1", ("p1",), ("h1",))


def test_a_disabled_port_refuses_all_as_it_is_meant_to():
    assert said((Allowed(MAC, ("10.0.0.1",)),), address="10.0.0.77", is_enabled=False) == []


def test_a_port_that_is_bound_elsewhere_or_nowhere_is_not_looked_at():
    cluster = Cluster(ports=0)
    plug = cluster.plug(cluster.declare(), "h1")
    cluster.port[plug.name] = replace(cluster.port[plug.name], allowed=(Allowed("x"),))
    assert list(refused(cluster.sight())) == []
    cluster.settle()
    assert len(list(refused(cluster.sight()))) == 1
    cluster.away = {"OVN_Southbound": "refused"}
    assert list(refused(cluster.sight())) == []
