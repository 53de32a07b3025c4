# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from analyzer.intent.differences.tunnels import taken, wrong
from analyzer.intent.model import Chassis, Encapsulation
from netagent.wire.controller import MOST_ADDRESSES, ControllerState
from tests.analyzer.intent.differences.clusters import Cluster


def test_an_offered_address_that_the_host_has_not_is_wrong():
    cluster = Cluster()
    assert list(wrong(cluster.sight())) == []
    cluster.host["h1"].offered = "192.0.2.99"
    (told,) = wrong(cluster.sight())
    assert (told.part, told.hosts, told.is_whole) == ("tunnel h1", ("h1",), True)
    assert told.evidence["offered"] == "192.0.2.99"


@pytest.mark.parametrize(("hosts", "strange", "told"), [(4, 2, 2), (4, 3, 0), (1, 1, 0)])
def test_where_most_tunnels_end_elsewhere_the_cluster_is_made_so(hosts, strange, told):
    cluster = Cluster(hosts=hosts)
    for host in list(cluster.host.values())[:strange]:
        host.offered = host.offered.replace("192.0.2", "198.51.100")
    assert len(list(wrong(cluster.sight()))) == told


@pytest.mark.parametrize("count", [0, MOST_ADDRESSES])
def test_addresses_that_were_not_read_or_not_all_accuse_nobody(count):
    cluster = Cluster()
    cluster.host["h1"].offered = "192.0.2.99"
    sight = cluster.sight()
    odd = ControllerState(
        source="ovn", chassis="chassis-1", encapsulations=("192.0.2.99",),
        addresses=tuple(f"10.9.0.{n}" for n in range(count)),
    )  # fmt: skip
    sight.heard["h1"] = odd
    assert list(wrong(sight)) == []


def test_addresses_are_compared_and_not_their_spelling():
    cluster = Cluster()
    cluster.host["h1"].offered, cluster.host["h1"].address = "2001:DB8:0::1", "2001:db8::1"
    assert list(wrong(cluster.sight())) == []
    cluster.host["h2"].offered = "2001:db8::0:1"
    assert [each.part for each in taken(cluster.sight())] == ["tunnel h2"]


def test_of_two_that_offer_an_address_the_one_that_has_it_not_is_told():
    cluster = Cluster()
    assert list(taken(cluster.sight())) == []
    cluster.host["h1"].offered = cluster.host["h3"].address
    (told,) = taken(cluster.sight())
    assert (told.part, told.hosts) == ("tunnel h1", ("h1",))
    assert told.evidence["addresses of h3"] == "192.0.2.13, 203.0.113.9"
    record = cluster.chassis["chassis-3"]
    cluster.chassis["chassis-3"] = replace(record, encapsulations=())
    (told,) = taken(cluster.sight())
    assert told.hosts == ("h1", "h3")  # either's writes may be refused


@pytest.mark.parametrize("first", ["h1", "h2"])
def test_of_two_that_both_have_it_the_controller_knows_who_came_first(first):
    cluster = Cluster()
    for name in ("h1", "h2"):
        host = cluster.host[name]
        host.offered = host.address = "192.0.2.77"
    record = cluster.host[first].chassis
    cluster.chassis[record] = Chassis(record, "", (Encapsulation("geneve", "192.0.2.77"),))
    (told,) = taken(cluster.sight())
    assert told.part == f"tunnel {'h2' if first == 'h1' else 'h1'}"
