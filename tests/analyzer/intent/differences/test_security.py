# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest
from msgspec import structs

from analyzer.intent.differences.contract import HostSaid, Sight
from analyzer.intent.differences.security import refused
from analyzer.intent.model import Allowed
from netagent.model.endpoint import RdmaAddress
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


@pytest.mark.parametrize(
    ("address", "gid", "costs"),
    [
        ("10.0.0.1", "", False),
        ("10.0.0.1", "::ffff:10.0.0.1", False),
        ("10.0.0.1", "2001:db8::5", True),
        ("10.0.0.2", "::ffff:10.0.0.77", True),
        ("2001:db8::5", "", True),
    ],
)
def test_a_second_address_that_is_refused_is_not_why_all_is_lost(address, gid, costs):
    """A leaf that dies beside it would be the port's fault, for as long as it is dead."""
    cluster = Cluster(ports=0)
    plug = cluster.plug(cluster.declare(), "h1")
    allowed = (Allowed(MAC, ("10.0.0.1", "10.0.0.2")),)
    cluster.port[plug.name] = replace(cluster.port[plug.name], allowed=allowed)
    cluster.settle()
    rdma = RdmaAddress("mlx5_0", gid, (1,), 1, 1024) if gid else None
    ends = [replace(end, address=address, rdma=rdma) for end in cluster.endpoints()]
    host = cluster.host["h1"]
    (port,) = cluster.state(host).ports
    odd = structs.replace(port, addresses=("10.0.0.1", "10.0.0.77", "2001:db8::5"))
    state = structs.replace(cluster.state(host), ports=(odd,))
    said = {"h1": HostSaid(state, cluster.now_ns)}
    (told,) = refused(Sight(cluster.intent(), said, ends, cluster.now_ns))
    assert "has 10.0.0.77, 2001:db8::5" in told.text
    assert told.ports == (("p1",) if costs else ())


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
